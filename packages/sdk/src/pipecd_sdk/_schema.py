# SPDX-License-Identifier: Apache-2.0
"""The JSON Schema of options, for editors and checks.

Ours, because msgspec's own writer cannot show the default of a type with a grammar of its own.
"""

import inspect
import json
import types
import typing
from enum import Enum
from typing import Any, Final, Literal, Union

import msgspec

from pipecd_model.config import ConfigModel, Duration, Secret

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"

_PLAIN: Final[dict[Any, dict[str, Any]]] = {
    str: {"type": "string"},
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    float: {"type": "number"},
    Secret: {"type": "string"},
    Duration: {"type": ["string", "number"], "examples": ["90s", "5m", "1h30m"]},
}


def schema(cls: type[ConfigModel]) -> str:
    """The schema of a struct as a text."""
    return json.dumps({"$schema": DIALECT, **_struct(cls)})


def _struct(cls: type[ConfigModel]) -> dict[str, Any]:
    hints = typing.get_type_hints(cls)
    properties: dict[str, Any] = {}
    required: list[str] = []
    for each in msgspec.structs.fields(cls):
        if each.name in cls.derived:
            continue
        properties[each.encode_name] = {**_of(hints[each.name]), **_default(each.default)}
        if each.required:
            required.append(each.encode_name)
    found: dict[str, Any] = {"type": "object", "title": cls.__name__, "properties": properties}
    if cls.__doc__:
        found["description"] = inspect.cleandoc(cls.__doc__).partition("\n")[0]
    if required:
        found["required"] = required
    return found


def _of(kind: Any) -> dict[str, Any]:
    """The schema of a type; one with a grammar of its own takes anything, as far as this says."""
    if kind in _PLAIN:
        return _PLAIN[kind]
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is Union or origin is types.UnionType:
        return _of(next(each for each in arguments if each is not type(None)))
    if origin is Literal:
        return {"enum": list(arguments)}
    if origin in {tuple, list}:
        return {"type": "array", "items": _of(arguments[0])}
    if origin is dict:
        return {"type": "object", "additionalProperties": _of(arguments[1])}
    if isinstance(kind, type) and issubclass(kind, Enum):
        return {"enum": [member.value for member in kind]}
    if isinstance(kind, type) and issubclass(kind, ConfigModel):
        return _struct(kind)
    return {}


def _default(value: Any) -> dict[str, Any]:
    if isinstance(value, Duration):
        return {"default": str(value)} if value else {}
    if isinstance(value, str | int | float) and not isinstance(value, Enum):
        return {"default": value} if value else {}
    return {}
