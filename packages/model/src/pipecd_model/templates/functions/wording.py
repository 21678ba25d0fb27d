# SPDX-License-Identifier: Apache-2.0
"""Words to names: snake_case, kebab-case, CamelCase."""

from __future__ import annotations

import re
import unicodedata
from typing import Final

from pipecd_model.templates.functions.cases import to_lower, to_upper

_CLASSES: Final = {"Lu": "U", "Ll": "L", "Nd": "D"}
_WORD: Final = re.compile(
    r"""
      (?P<connector>[CS])
    | (?P<point>P[PC]*)
    | (?P<number>D+(?:L[LD]*)?)
    | (?P<word>U+(?=UL)|U?L+|U+|O+)(?P<digits>D+(?![DL]))?
    """,
    re.VERBOSE,
)


def _classes(value: str) -> str:
    """Return for each character what it is: upper, lower, digit, connector, space, point, other."""
    return "".join(map(_class, value))


def _class(char: str) -> str:
    if char in "-_":
        return "C"
    if char.isspace():
        return "S"
    category = unicodedata.category(char)
    if category[0] == "P":
        return "P"
    return _CLASSES.get(category, "O")


def _connect(value: str, connector: str) -> str:
    made: list[str] = []
    joins = False
    classes = _classes(value)
    lowered = "".join(
        to_lower(char) if each == "U" else char for char, each in zip(value, classes, strict=True)
    )
    for found in _WORD.finditer(classes):
        kind = found.lastgroup
        part = lowered[found.start() : found.end()]
        if kind == "connector":
            made.append(connector)
        elif kind == "point":
            made.append(part)
        else:
            made.append(connector + part if joins else part)
        joins = kind not in {"connector", "point"}
    return "".join(made)


def to_snake(value: str) -> str:
    return _connect(value, "_")


def to_kebab(value: str) -> str:
    return _connect(value, "-")


_NAME: Final = re.compile(r"(?P<connectors>[CS]+)|(?P<first>[^CS])(?P<run>U*)(?P<rest>[^CS]*)")


def to_camel(value: str) -> str:
    """Return words as one: each starts large, and one connector before it is left out."""
    made: list[str] = []
    for found in _NAME.finditer(_classes(value)):
        start, end = found.span()
        if found["connectors"]:
            inside = start > 0 and end < len(value)
            made.append(value[start + 1 : end] if inside else value[start:end])
            continue
        run = found.end("run")
        first = to_upper(value[start])
        lowers = found["first"] == "U"
        made += [
            first,
            *(map(to_lower, value[start + 1 : run]) if lowers else value[start + 1 : run]),
        ]
        made.append(value[run:end])
    return "".join(made)
