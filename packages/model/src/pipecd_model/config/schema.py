# SPDX-License-Identifier: Apache-2.0
"""What a piece of a config file is: an immutable struct that says how files spell it.

The structs carry names, types, defaults and rules; `decode` reads plain values into them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Protocol

import msgspec

from pipecd_model.config.constraints import Constraint


def yaml_key(name: str) -> str:
    """Spell a field as existing files do: `piped_id` is `pipedID`, `host_name` is `hostName`."""
    first, *rest = name.strip("_").split("_")
    return first + "".join(_ACRONYMS.get(word, word.title()) for word in rest)


_ACRONYMS = {"id": "ID", "url": "URL"}


class Report(Protocol):
    """Where a rule says what it found."""

    def fault(self, *path: str | int, message: str, hint: str = "") -> None:
        """Refuse the file because of what stands at the path, which starts at this struct."""

    def warn(self, *path: str | int, message: str, hint: str = "") -> None:
        """Adds a warning for the author; the file is still accepted."""

    def is_broken(self, key: str) -> bool:
        """Returns whether a value under this key was refused: rules about it prove nothing then."""


class _ConfigMeta(msgspec.StructMeta):
    """Makes every struct immutable and built by keyword, without each of them having to say so."""

    def __new__(mcs, name: str, bases: Any, namespace: Any, **options: Any) -> Any:
        options = {"frozen": True, "kw_only": True, "rename": yaml_key, **options}
        return super().__new__(mcs, name, bases, namespace, **options)


class ConfigModel(msgspec.Struct, metaclass=_ConfigMeta):
    """A piece of a config file: immutable, spelled as existing files spell it.

    A field without a default must be given and must not be empty. Zero and empty mean the default,
    as everywhere in these files; only booleans can be turned off.
    """

    aliases: ClassVar[Mapping[str, str]] = {}
    """Other spellings that are read, each with the key it stands for."""
    moved: ClassVar[Mapping[str, str]] = {}
    """Keys that people still write although they do nothing here, each with what to do instead."""
    variants: ClassVar[Mapping[str, type[ConfigModel]]] = {}
    """For a pair of `type` and `config`: what `config` is for each type."""
    elsewhere: ClassVar[Mapping[str, str]] = {}
    """Keys that `prepare` takes from here, each with the place that it brings them to."""
    constraints: ClassVar[tuple[Constraint, ...]] = ()
    """What values must be, as data, so that the schema of the struct can tell it too."""
    descriptions: ClassVar[Mapping[str, str]] = {}
    """What each field is, for structs that have no source to read it from."""
    derived: ClassVar[frozenset[str]] = frozenset()
    """Fields that no file may set."""
    snake_case: ClassVar[bool] = False
    """Are keys read with underscores too?"""

    @classmethod
    def prepare(cls, raw: dict[str, Any], report: Report) -> dict[str, Any]:
        """Bring other shapes of the same thing into the decoded one, in a copy of `raw`."""
        return raw

    @classmethod
    def finish(cls, values: dict[str, Any]) -> dict[str, Any]:
        """Complete the decoded fields before the struct is made; those not written are absent."""
        return values

    def check(self, report: Report) -> None:
        """Say what is wrong between fields. Required fields may be missing: then they are empty."""


def find_key(raw: Mapping[str, Any], key: str) -> str | None:
    """Returns a key as it is written, whatever its case; None when it is not there."""
    if key in raw:
        return key
    low = key.lower()
    for written in raw:
        if written.lower() == low:
            return written
    return None


def find_value(raw: Mapping[str, Any], key: str) -> Any:
    """Returns what a key holds, whatever its case; None when it is not there."""
    written = find_key(raw, key)
    return None if written is None else raw[written]


def find_mapping(raw: Mapping[str, Any], key: str) -> dict[str, Any]:
    """Returns the mapping that a key holds; an empty one when there is none."""
    value = find_value(raw, key)
    return value if isinstance(value, dict) else {}


def find_list(raw: Mapping[str, Any], key: str) -> list[Any]:
    """Returns the list that a key holds; an empty one when there is none."""
    value = find_value(raw, key)
    return value if isinstance(value, list) else []
