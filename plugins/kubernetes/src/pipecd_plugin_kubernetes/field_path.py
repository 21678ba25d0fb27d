# SPDX-License-Identifier: Apache-2.0
"""Paths of fields in a tree of values: `$.spec.containers[0].image`, `$..image`, `$.data.'a.b'`."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

LONGEST: Final = 1_000


class BadPathError(ValueError):
    """A text that is not the path of a field; says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step down a tree."""

    key: str | int | None
    """A key of a map or a place in a list; None means every one."""
    is_recursive: bool = False
    """Whether it may be any number of levels down."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A field: `parent[key]`. The parent may be without it."""

    parent: Any
    key: Any

    @property
    def exists(self) -> bool:
        """Returns whether there is something."""
        if isinstance(self.parent, dict):
            return self.key in self.parent
        return isinstance(self.parent, list) and self.key < len(self.parent)

    @property
    def value(self) -> Any:
        """Returns what is there."""
        return self.parent[self.key]


def parse_path(text: str) -> tuple[Step, ...]:
    """Returns the steps of a path. Raises BadPathError.

    Example:
        >>> [step.key for step in parse_path("$.a.'b.c'[0][*]")]
        ['a', 'b.c', 0, None]
        >>> parse_path("$..image")[0].is_recursive
        True
    """
    if len(text) > LONGEST:
        raise BadPathError(f"longer than {LONGEST} characters")
    if not text.startswith("$"):
        raise BadPathError(f"must start with $, e.g. $.{text.lstrip('.')[:100]}")
    steps: list[Step] = []
    at = 1
    while at < len(text):
        if text.startswith("..", at):
            key, at = _read_name(text, at + 2)
            steps.append(Step(key=key, is_recursive=True))
        elif text[at] == ".":
            key, at = _read_name(text, at + 1)
            steps.append(Step(key=None if key == "*" else key))
        elif text[at] == "[":
            step, at = _read_bracket(text, at)
            steps.append(step)
        else:
            raise BadPathError(f"{text[at]!r} at character {at + 1} must be '.' or '['")
    return tuple(steps)


def _read_name(text: str, at: int) -> tuple[str, int]:
    if at < len(text) and text[at] in "'\"":
        return _read_quoted(text, at)
    end = at
    while end < len(text) and text[end] not in ".[":
        end += 1
    if end == at:
        raise BadPathError(f"there is no name at character {at + 1}")
    return text[at:end], end


def _read_quoted(text: str, at: int) -> tuple[str, int]:
    end = text.find(text[at], at + 1)
    if end < 0:
        raise BadPathError(f"the quote at character {at + 1} is never closed")
    return text[at + 1 : end], end + 1


def _read_bracket(text: str, at: int) -> tuple[Step, int]:
    if text[at + 1 : at + 2] in {"'", '"'}:
        key, end = _read_quoted(text, at + 1)
        if text[end : end + 1] != "]":
            raise BadPathError(f"the bracket at character {at + 1} is never closed")
        return Step(key=key), end + 1
    end = text.find("]", at)
    if end < 0:
        raise BadPathError(f"the bracket at character {at + 1} is never closed")
    inside = text[at + 1 : end]
    if inside == "*":
        return Step(key=None), end + 1
    if not (inside.isascii() and inside.isdigit() and len(inside) <= 9):
        raise BadPathError(f"[{inside[:100]}] must hold a place in a list, counted from 0, or *")
    return Step(key=int(inside)), end + 1


def find_places(tree: Any, steps: tuple[Step, ...]) -> list[Place]:
    """Returns the fields that a path leads to; the last step need not exist in its parent.

    Example:
        >>> [place.value for place in find_places({"a": [{"b": 1}, {"b": 2}]}, parse_path("$..b"))]
        [1, 2]
    """
    parents = [tree]
    places: list[Place] = []
    for number, step in enumerate(steps):
        places = [place for parent in parents for place in _descend(parent, step)]
        if number < len(steps) - 1:
            parents = [place.value for place in places if place.exists]
    return places


def _descend(parent: Any, step: Step) -> Iterator[Place]:
    if step.is_recursive:
        for each in _walk(parent):
            if isinstance(each, dict) and step.key in each:
                yield Place(parent=each, key=step.key)
    elif step.key is None:
        keys = parent.keys() if isinstance(parent, dict) else range(_count(parent))
        yield from (Place(parent=parent, key=key) for key in list(keys))
    elif isinstance(parent, dict if isinstance(step.key, str) else list):
        yield Place(parent=parent, key=step.key)


def _count(parent: Any) -> int:
    return len(parent) if isinstance(parent, list) else 0


def _walk(tree: Any) -> Iterator[Any]:
    """Yields a tree and everything below it, from the top, in the order of the text."""
    pending = [tree]
    while pending:
        each = pending.pop()
        yield each
        if isinstance(each, dict):
            pending.extend(reversed(list(each.values())))
        elif isinstance(each, list):
            pending.extend(reversed(each))
