# SPDX-License-Identifier: Apache-2.0
"""What the structs say about themselves: the text under each setting, for schemas and pages.

Python keeps the docstring of a class but not the one under a field; it is read from the source.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
import typing
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from pipecd_model.config.schema import ConfigModel
from pipecd_model.config.shape import Field
from pipecd_model.config.unserved import UNSERVED


def summary(cls: type[ConfigModel]) -> str:
    """Say what a struct is, in one line or more."""
    return inspect.cleandoc(cls.__doc__ or "")


def field_text(cls: type[ConfigModel], each: Field) -> str:
    """Say what a setting is; a section without a text of its own says what its struct says."""
    text = field_texts(cls).get(each.name, "")
    inner = next(_structs_of(each.type), None)
    if not text and inner is not None and not (each.key == "config" and cls.variants):
        text = summary(inner).partition("\n")[0]
    why = UNSERVED.get(f"{cls.__name__}.{each.name}")
    return text if why is None else f"{text} Has no effect: {why}.".strip()


def _structs_of(kind: Any) -> Iterator[type[ConfigModel]]:
    if isinstance(kind, type) and issubclass(kind, ConfigModel):
        yield kind
    for argument in typing.get_args(kind):
        yield from _structs_of(argument)


@cache
def field_texts(cls: type[ConfigModel]) -> Mapping[str, str]:
    """Say what each field is: the field's name to its text; inherited ones too."""
    texts: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        if issubclass(base, ConfigModel) and base is not ConfigModel:
            texts |= _own_texts(base) | dict(base.__dict__.get("descriptions", {}))
    return texts


def _own_texts(cls: type[ConfigModel]) -> dict[str, str]:
    try:
        source = inspect.getsource(cls)
    except (OSError, TypeError):
        return {}  # shipped without, or made by a program
    (definition,) = ast.parse(textwrap.dedent(source)).body
    if not isinstance(definition, ast.ClassDef):
        return {}
    texts: dict[str, str] = {}
    for statement, following in zip(definition.body, definition.body[1:], strict=False):
        if (
            isinstance(statement, ast.AnnAssign)
            and isinstance(statement.target, ast.Name)
            and isinstance(following, ast.Expr)
            and isinstance(following.value, ast.Constant)
            and isinstance(following.value.value, str)
        ):
            texts[statement.target.id] = inspect.cleandoc(following.value.value)
    return texts
