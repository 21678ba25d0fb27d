# SPDX-License-Identifier: Apache-2.0
"""What a function takes, and whether a value is that.

A signature is written as letters, one for each argument: `s` text, `i` int, `f` float64, `b` bool,
`m` map, `a` anything, `v` anything but the word nil. A star after the last one says that there may
be any number of these.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from pipecd_model.templates.faults import TemplateFaultError
from pipecd_model.templates.kinds import MISSING, Int64, describe
from pipecd_model.templates.literals import Number


@dataclass(frozen=True, slots=True)
class Function:
    """A function and what it takes."""

    call: Callable[..., object]
    letters: str
    rest: str = ""
    metered: bool = False
    """Is the meter of the rendering its first argument?"""
    cost: Callable[..., int] | None = None
    """Says how large the result will be beside the arguments, before it is made."""
    stops_at: bool | None = None
    """Is only the first argument wanted that is so? Those after it are not evaluated."""

    def accepts(self, count: int) -> bool:
        return count >= len(self.letters) if self.rest else count == len(self.letters)

    def arity(self) -> str:
        return f"at least {len(self.letters)}" if self.rest else str(len(self.letters))


def declare(
    signature: str,
    call: Callable[..., object],
    *,
    metered: bool = False,
    cost: Callable[..., int] | None = None,
    stops_at: bool | None = None,
) -> Function:
    """Return a function with the signature that is written as letters."""
    rest = signature[-2] if signature.endswith("*") else ""
    letters = signature[:-2] if rest else signature
    return Function(call, letters, rest, metered, cost, stops_at)


_TYPES: Final[dict[str, type]] = {"s": str, "i": int, "f": float, "b": bool, "m": dict}
_WANTED: Final = {
    "s": "a text",
    "i": "a whole number",
    "f": "a number",
    "b": "true or false",
    "m": "a map",
}


def fit(name: str, function: Function, number: int, value: object) -> object:
    """Return a value as an argument; raises TemplateFaultError if it is of another kind."""
    letter = function.letters[number] if number < len(function.letters) else function.rest
    if isinstance(value, Number):
        if letter == "i" and value.whole is not None:
            return value.whole
        if letter == "f":
            return float(value.value)
        value = value.value
    if letter in "av":
        return None if value is MISSING else value
    if type(value) is _TYPES[letter]:
        return value
    if letter == "m" and value is MISSING:
        return {}
    wanted = _WANTED[letter]
    given = describe(value)
    if wanted == given:
        given = f"{given} of another type"
    hint = "write int before it, in parentheses" if isinstance(value, Int64) else ""
    raise TemplateFaultError(
        f"{name}: argument {number + 1} must be {wanted}, not {given}", hint=hint
    )
