# SPDX-License-Identifier: Apache-2.0
"""What can be wrong with a template, as the engine raises it: a sentence, a hint, a place.

The data may hold secrets. So these sentences are made of what stands in the template and of the
keys of the data, and never of values or of what functions made of them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from pipecd_model.close_matches import find_close_matches
from pipecd_model.templates.names import ALLOWED, GO, REFUSED

SHOWN: Final = 200
"""Characters of a name that are repeated."""


class TemplateFaultError(Exception):
    """A template cannot be read or rendered; `position` is the index of a character."""

    def __init__(self, message: str, *, hint: str = "", position: int | None = None) -> None:
        super().__init__(message)
        self.hint = hint
        self.position = position


class NoSuchKeyError(TemplateFaultError):
    """A template asks a map for what it has not.

    `path` are the keys that led to the map, from the dot or from what `start` names.
    """

    def __init__(
        self, key: str, inside: Mapping[str, object], path: Sequence[str] = (), start: str = ""
    ) -> None:
        where = start + "".join(f".{each}" for each in path)
        told = f" in {where}" if 0 < len(where) < SHOWN else ""
        super().__init__(f"there is no {key[:SHOWN]!r}{told}", hint=suggest(key, inside))
        self.key = key
        self.inside = inside
        self.path = path


class FunctionError(Exception):
    """A function cannot do what it is asked; says why, without the values."""


def suggest(name: str, known: Collection[str]) -> str:
    """Return a hint with the known name that is most like this one, if one is."""
    if len(name) > _COMPARED:
        return ""
    short = sorted(each for each in known if len(each) <= _COMPARED)
    near = find_close_matches(name, short[:_NAMES], cutoff=0.5)
    return f"did you mean {near[0]!r}?" if near else ""


_COMPARED: Final = 64
"""Characters of a name that is compared."""

_NAMES: Final = 300
"""Names it is compared with."""


def unknown_function(name: str, position: int) -> TemplateFaultError:
    """Return the fault of calling what is not there, or not here."""
    if name in REFUSED:
        message, hint = f"the function {name!r} is not available", REFUSED[name]
    else:
        message, hint = f"there is no function {name[:SHOWN]!r}", suggest(name, ALLOWED | GO)
    return TemplateFaultError(message, hint=hint, position=position)
