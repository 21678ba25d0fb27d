# SPDX-License-Identifier: Apache-2.0
"""The values of templates: plain Python data, and the few kinds of Go that authors can tell apart.

A whole number is Go's `int`, a list is `[]interface {}` and a map is `map[string]interface {}`.
What functions make may be of a narrower type: those are the classes here. A text is any bytes, as
in Go: bytes that are no UTF-8 are there in the form of Python's `surrogateescape`.
"""

from __future__ import annotations

import enum
import math
import re
from typing import Final


class Missing(enum.Enum):
    """What stands for a value that is not there; Go calls it the invalid value."""

    MISSING = "missing"


MISSING: Final = Missing.MISSING


class Int64(int):
    """A whole number that calculations give."""


class Byte(int):
    """A byte of a text; Go calls it `uint8`."""


class Strings(list[str]):
    """A list of texts alone."""


class NoStrings(Strings):
    """A list of texts that was never made; empty, and null in JSON."""


class NoItems(list[object]):
    """A list that was never made; empty, and null in JSON."""


class Ints(list[int]):
    """A list of whole numbers alone."""


class Lists(list[list[object]]):
    """A list of lists."""


class StringMap(dict[str, str]):
    """A map whose values are texts alone."""


_TYPES: Final[dict[type, str]] = {
    bool: "bool",
    int: "int",
    Int64: "int64",
    Byte: "uint8",
    float: "float64",
    str: "string",
    list: "[]interface {}",
    tuple: "[]interface {}",
    NoItems: "[]interface {}",
    Strings: "[]string",
    NoStrings: "[]string",
    Ints: "[]int",
    Lists: "[][]interface {}",
    dict: "map[string]interface {}",
    StringMap: "map[string]string",
    type(None): "<nil>",
    Missing: "<nil>",
}

_PLAIN: Final = {
    "bool": "true or false",
    "int": "a whole number",
    "int64": "a whole number",
    "uint8": "a byte",
    "float64": "a number",
    "string": "a text",
    "<nil>": "nothing",
}


NOT_PLAIN: Final = "the data has a value that is no plain one"


class StrangeValueError(TypeError):
    """A value that is no plain data."""


def type_name(value: object) -> str:
    """Return the name that Go gives the type of a value; raises StrangeValueError."""
    name = _TYPES.get(type(value))
    if name is None:
        raise StrangeValueError(NOT_PLAIN)
    return name


def describe(value: object) -> str:
    """Return what a value is, for people."""
    name = _TYPES.get(type(value), "something else")
    if name.startswith("["):
        return "a list"
    return "a map" if name.startswith("map") else _PLAIN.get(name, name)


def kind_name(value: object) -> str:
    """Return what Go calls the kind of a value."""
    name = type_name(value)
    if name.startswith("["):
        return "slice"
    if name.startswith("map"):
        return "map"
    return "invalid" if name == "<nil>" else name


def is_true(value: object) -> bool:
    """Say whether a condition holds: what is empty or zero is not true."""
    return value is not MISSING and bool(value)


_ESCAPED: Final = "surrogateescape"
_STRAY: Final = re.compile("[\ud800-\udc7f\udd00-\udfff]")


def to_bytes(text: str) -> bytes:
    """Return the bytes that a text is made of."""
    try:
        return text.encode(errors=_ESCAPED)
    except UnicodeEncodeError:
        return _STRAY.sub("\ufffd", text).encode(errors=_ESCAPED)


def to_text(content: bytes) -> str:
    """Return bytes as a text."""
    return content.decode(errors=_ESCAPED)


def unite(text: str) -> str:
    """Return a text in which bytes that have become a letter by standing together are one."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return to_text(to_bytes(text))
    return text


_WRAP: Final = 1 << 64


def wrap64(number: int) -> Int64:
    """Return a number as 64 bits hold it: beyond the largest comes the smallest."""
    number &= _WRAP - 1
    return Int64(number - _WRAP if number >> 63 else number)


def identity(value: object) -> object:
    """Return something that is equal, and has the same hash, for deeply equal values alone."""
    if isinstance(value, dict):
        return type_name(value), frozenset((key, identity(item)) for key, item in value.items())
    if isinstance(value, list | tuple):
        return type_name(value), tuple(identity(item) for item in value)
    if isinstance(value, float) and math.isnan(value):
        return object()
    return type_name(value), value


def sort_keys(value: dict[str, object]) -> list[str]:
    """Return the keys of a map in the order of their bytes."""
    if not all(isinstance(key, str) for key in value):
        raise StrangeValueError(NOT_PLAIN)
    return sorted(value, key=to_bytes)
