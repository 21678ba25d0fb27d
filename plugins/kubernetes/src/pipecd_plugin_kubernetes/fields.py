# SPDX-License-Identifier: Apache-2.0
"""Reads fields of objects whose shape nobody has checked: what is missing, and what is wrong.

A body of a cluster or repository may have any shape. A missing field reads as empty; one of the
wrong type raises ShapeError with a sentence, which the caller shows to people.
"""

import math
from collections.abc import Iterator, Mapping
from typing import Any, Final

from pipecd_sdk.kit.text import make_printable_line

LONGEST_TEXT: Final = 1_000
"""Characters of a text of the cluster that are shown."""
_EMPTY: Final[Mapping[str, Any]] = {}
_WORDS: Final = {
    dict: "an object",
    list: "a list",
    str: "a text",
    bool: "true or false",
    int: "a number",
    float: "a number",
    type(None): "nothing",
}


class ShapeError(Exception):
    """A field has not the type that it has in every version of the API."""

    def __init__(self, path: str, wanted: str, found: object) -> None:
        super().__init__(
            f"the object has {_WORDS.get(type(found), 'something else')} at {path!r},"
            f" where {wanted} belongs"
        )


def read_map(body: object, *path: str) -> Mapping[str, Any]:
    """Returns the object at a path, an empty one where there is none. Raises ShapeError."""
    value = body
    for depth in range(len(path) + 1):
        if value is None:
            return _EMPTY
        if not isinstance(value, Mapping):
            raise ShapeError(".".join(path[:depth]) or "the top", "an object", value)
        if depth < len(path):
            value = value.get(path[depth])
    return value  # type: ignore[return-value]  # the loop ends with a mapping


def read_number(body: object, *path: str) -> int | None:
    """Returns the whole number at a path, None where there is none. Raises ShapeError."""
    value = read_map(body, *path[:-1]).get(path[-1])
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ShapeError(".".join(path), "a number", value)
    return int(value)


def read_count(body: object, *path: str) -> int:
    """Returns the number at a path, 0 where there is none. Raises ShapeError."""
    return read_number(body, *path) or 0


def read_text(body: object, *path: str) -> str:
    """Returns the text at a path, an empty one where there is none. Raises ShapeError."""
    value = read_map(body, *path[:-1]).get(path[-1])
    if value is None:
        return ""
    if not isinstance(value, str):
        raise ShapeError(".".join(path), "a text", value)
    return value


def read_maps(body: object, *path: str) -> Iterator[Mapping[str, Any]]:
    """Yields the objects of the list at a path. Raises ShapeError."""
    value = read_map(body, *path[:-1]).get(path[-1])
    if value is None:
        return
    if not isinstance(value, list):
        raise ShapeError(".".join(path), "a list", value)
    for index, item in enumerate(value):
        if not isinstance(item, Mapping):
            raise ShapeError(f"{'.'.join(path)}[{index}]", "an object", item)
        yield item


def has_true(body: object, *path: str) -> bool:
    """Returns whether the field at a path is true. Raises ShapeError when it is no truth value."""
    value = read_map(body, *path[:-1]).get(path[-1])
    if value is None:
        return False
    if not isinstance(value, bool):
        raise ShapeError(".".join(path), "true or false", value)
    return value


def shorten(text: str) -> str:
    """Returns a text of the cluster as one printable line of bounded length."""
    line = make_printable_line(text[: LONGEST_TEXT * 4])
    return line if len(line) <= LONGEST_TEXT else f"{line[: LONGEST_TEXT - 1]}…"
