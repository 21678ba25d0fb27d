# SPDX-License-Identifier: Apache-2.0
"""Checks of a response: values found by a path, and rules that they must keep."""

import itertools
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from pipecd_sdk.conformance.case import CaseFileError, Check

_STEP: Final = re.compile(r"(?P<name>\w+)(?P<many>\[(?:(?P<key>\w+)=(?P<value>[^\]]*))?\])?")


def values_at(message: Any, path: str) -> list[Any]:
    """Returns all values at a path such as `stages[rollback=False].index`; `.` is the message."""
    found = [message]
    for part in path.split(".") if path != "." else ():
        step = _STEP.fullmatch(part)
        if step is None:
            raise CaseFileError(f"{path!r} is not a path")
        found = [_get(each, step["name"]) for each in found]
        if step["many"]:
            found = [item for each in found for item in each]
        if step["key"]:
            found = [each for each in found if str(_get(each, step["key"])) == step["value"]]
    return found


def _get(message: Any, name: str) -> Any:
    if isinstance(message, Mapping):
        return message[name]
    if name.startswith("has_"):
        return message.HasField(name.removeprefix("has_"))
    return getattr(message, name)


def failure(check: Check, answer: Any, known: Mapping[str, Any]) -> str:
    """Returns what is wrong with a response; empty when nothing is. `known` has the `$names`."""
    rule = RULES.get(check.must)
    if rule is None:
        raise CaseFileError(f"no such rule: {check.must!r}; there are {', '.join(sorted(RULES))}")
    wanted = check.value
    if isinstance(wanted, str) and wanted.startswith("$"):
        wanted = known[wanted[1:]]
    values = values_at(answer, check.path)
    if check.must == "the same as in":
        wanted = values_at(wanted, check.path)
    if rule(values, wanted):
        return ""
    beside = f" {wanted!r}" if check.value is not None else ""
    return f"{check.path} must be {check.must}{beside}, and is {_format_values(values)}"


def _format_values(values: list[Any]) -> str:
    text = ", ".join(repr(value) for value in values) or "nothing"
    return text if len(text) <= 200 else f"{text[:200]}…"


def _hashable(values: Iterable[Any]) -> list[Any]:
    return [
        value if isinstance(value, str | int | float | bytes) else repr(value) for value in values
    ]


RULES: Final[Mapping[str, Callable[[list[Any], Any], bool]]] = {
    "there": lambda values, _: bool(values),
    "not there": lambda values, _: not values,
    "filled": lambda values, _: all(bool(value) for value in values),
    "empty": lambda values, _: not any(bool(value) for value in values),
    "positive": lambda values, _: all(value > 0 for value in values),
    "rising": lambda values, _: all(a < b for a, b in itertools.pairwise(values)),
    "without doubles": lambda values, _: len(set(_hashable(values))) == len(values),
    "among": lambda values, wanted: all(value in wanted for value in values),
    "none of": lambda values, wanted: all(value not in wanted for value in values),
    "exactly": lambda values, wanted: sorted(values) == sorted(wanted),
    "the same as in": lambda values, wanted: values == wanted,
}
