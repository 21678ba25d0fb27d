# SPDX-License-Identifier: Apache-2.0
"""The part of JSONPath that names numbers in an answer: `$.data[*].value`, `$['a b'][-1]`. Pure."""

import json
import re
from collections.abc import Sequence
from typing import Any, Final, TypeAlias

MOST_FOUND: Final = 100_000
LONGEST_PATH: Final = 1000

Step: TypeAlias = str | int | None
"""A key, a place in a list, or None for all that there is."""

_STEP: Final = re.compile(
    r"""\.(?P<name>[^\s.\[\]'"*$@()?,:]+)
      | (?P<every>\.\*|\[\*\])
      | \[(?P<index>-?\d{1,9})\]
      | \[(?P<quoted>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")\]""",
    re.VERBOSE,
)


class BadJsonPathError(ValueError):
    """A text that is no path, or one of a kind that is not understood."""


class NoSuchValueError(LookupError):
    """An answer has nothing where a path leads."""


def parse_path(text: str) -> tuple[Step, ...]:
    """Reads a path. Raises BadJsonPathError.

    Example:
        >>> parse_path("$.data[*]['error rate'][-1]")
        ('data', None, 'error rate', -1)
    """
    if len(text) > LONGEST_PATH:
        raise BadJsonPathError("the path is too long")
    if not text.startswith("$"):
        raise BadJsonPathError(f"a path begins with $: {text!r}")
    steps: list[Step] = []
    place = 1
    while place < len(text):
        found = _STEP.match(text, place)
        if found is None:
            raise BadJsonPathError(f"not understood at character {place + 1}: {text!r}")
        if found["every"]:
            steps.append(None)
        elif found["index"]:
            steps.append(int(found["index"]))
        else:
            steps.append(found["name"] or _unquote(found["quoted"]))
        place = found.end()
    return tuple(steps)


def find_values(document: Any, steps: Sequence[Step]) -> list[Any]:
    """Returns what a path leads to, a list at its end item by item.

    Raises NoSuchValueError when a step that names one thing does not find it.
    """
    found = [document]
    for number, step in enumerate(steps):
        found = [inner for each in found for inner in _follow(each, step, steps[: number + 1])]
        if len(found) > MOST_FOUND:
            raise NoSuchValueError(f"{format_path(steps)} leads to more than {MOST_FOUND:,} values")
    if len(found) == 1 and isinstance(found[0], list):
        return found[0]
    return found


def _follow(value: Any, step: Step, path: Sequence[Step]) -> list[Any]:
    if step is None:
        if isinstance(value, list):
            return value
        if isinstance(value, dict):
            return list(value.values())
    elif isinstance(step, int):
        if isinstance(value, list) and -len(value) <= step < len(value):
            return [value[step]]
    elif isinstance(value, dict) and step in value:
        return [value[step]]
    raise NoSuchValueError(f"the answer has nothing at {format_path(path)}")


def format_path(steps: Sequence[Step]) -> str:
    """Returns a path as text."""
    words = ["[*]" if step is None else f"[{json.dumps(step)}]" for step in steps]
    return "$" + "".join(words)


def _unquote(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text[1:-1])
