# SPDX-License-Identifier: Apache-2.0
"""What the decoder has to know about a struct, worked out once: its keys, types and defaults."""

from __future__ import annotations

import typing
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import msgspec

from pipecd_model.config.schema import ConfigModel


class Field(msgspec.Struct, frozen=True, kw_only=True):
    """One setting: its name in the struct, its key in the file, and what it is if not given."""

    name: str
    key: str
    type: Any
    required: bool
    default: Callable[[], Any]
    empty: Any
    """Stands in for a required value that is missing or was refused."""


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """All settings of a struct, found by any spelling of their keys."""

    fields: tuple[Field, ...]
    known: Mapping[str, str]
    """The keys in lower case, each with the way it is spelled."""
    aliases: Mapping[str, str]

    def key(self, written: str) -> str | None:
        """Returns the key that a written key stands for, in any case or by an alias; else None."""
        low = written.lower()
        return self.known.get(low) or self.aliases.get(low)


@cache
def shape(cls: type[ConfigModel]) -> Shape:
    """Work out the shape of a struct."""
    hints = typing.get_type_hints(cls)
    fields = tuple(
        Field(
            name=each.name,
            key=each.encode_name,
            type=hints[each.name],
            required=each.required,
            default=_default(each),
            empty="" if hints[each.name] is str else None,
        )
        for each in msgspec.structs.fields(cls)
        if each.name not in cls.derived
    )
    aliases = {alias.lower(): key for alias, key in cls.aliases.items()}
    if cls.snake_case:
        aliases |= {each.name: each.key for each in fields}
    return Shape(
        fields=fields, known={each.key.lower(): each.key for each in fields}, aliases=aliases
    )


def _default(each: msgspec.structs.FieldInfo) -> Callable[[], Any]:
    if each.default_factory is not msgspec.NODEFAULT:
        factory: Callable[[], Any] = each.default_factory
        return factory
    value = each.default
    return lambda: value
