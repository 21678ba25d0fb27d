# SPDX-License-Identifier: Apache-2.0
"""Names in commands that a person may copy: what a shell or an option could misread is an id."""

import re
import shlex
from typing import Final

PLAIN: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@:/+-]*")
SHORT_ID: Final = 8


def format_typeable(name: str, thing_id: str) -> str:
    """Returns the name of a thing as it can be typed, or the start of its id.

    Names come from repositories: one with a space, a quote or a dash in front would make another
    command of the one that is suggested.
    """
    return name if PLAIN.fullmatch(name) else shlex.quote(thing_id[:SHORT_ID])
