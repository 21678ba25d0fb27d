# SPDX-License-Identifier: Apache-2.0
"""What a server says about a Secret that was sent to it: without what may be values of it. Pure.

Decoders quote what they cannot read, and webhooks say whatever they like. So only sentences are
shown that are known to have no values in them; of others, that there was one.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from pipecd_plugin_kubernetes.client.errors import StatusCause

WITHHELD: Final = "what the server says of it is not shown, it may have values of the Secret"

_QUOTED: Final = r'"[^"]{0,300}"'
_OF_AN_OBJECT: Final = (
    "not found",
    "already exists",
    (
        rf'is forbidden: User {_QUOTED} cannot [a-z]+ resource "secrets" in API group ""'
        rf"(?: in the namespace {_QUOTED}| at the cluster scope)?"
    ),
    (
        r"is forbidden: unable to create new content in namespace [a-z0-9-]+"
        r" because it is being terminated"
    ),
)
_CHANGED: Final = (
    rf"Operation cannot be fulfilled on secrets {_QUOTED}: the object has been modified; please"
    r" apply your changes to the latest version and try again"
)
_HARMLESS: Final = re.compile(
    rf"(?:secrets|namespaces) {_QUOTED} (?:{'|'.join(_OF_AN_OBJECT)})|{_CHANGED}|Unauthorized"
)
_BEGINNING: Final = re.compile(
    rf"(?:Internal error occurred: )?(?:admission webhook {_QUOTED} denied the request"
    rf"|failed calling webhook {_QUOTED})"
)
_IMMUTABLE: Final = "field is immutable"


def withhold_message(message: str) -> str:
    """Returns a message about a Secret without what may be a value.

    Example:
        >>> withhold_message('admission webhook "w.example" denied the request: hunter2 is weak')
        'admission webhook "w.example" denied the request'
    """
    if not message or _HARMLESS.fullmatch(message):
        return message
    beginning = _BEGINNING.match(message)
    return beginning.group() if beginning else WITHHELD


def withhold_causes(causes: Sequence[StatusCause]) -> tuple[StatusCause, ...]:
    """Returns which fields of a Secret are wrong, without their values."""
    return tuple(
        each
        if each.reason == "FieldManagerConflict"
        else replace(each, message=_IMMUTABLE if _IMMUTABLE in each.message else each.reason)
        for each in causes
    )
