# SPDX-License-Identifier: Apache-2.0
"""The JSON Schema of a struct, made from the same fields that decode what people write.

For the kinds of documents `jsonschema` puts an envelope around it; plugins publish those of their
options with it. A schema is stricter than the decoder where that helps while typing (one spelling
per key), and looser where it cannot say the rule.
"""

from __future__ import annotations

import types
import typing
from enum import Enum
from typing import Any, Final, Literal, Union

from pipecd_model.config.amounts import Percentage, Replicas, Share
from pipecd_model.config.describe import field_text, summary
from pipecd_model.config.schema import ConfigModel
from pipecd_model.config.shape import Field, shape
from pipecd_model.config.values import Base64Secret, Duration, Secret

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"

_PLAIN: Final[dict[Any, dict[str, Any]]] = {
    str: {"type": "string"},
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    float: {"type": "number"},
    Any: {},
    Secret: {"type": "string"},
    Base64Secret: {"type": "string", "contentEncoding": "base64"},
    Duration: {
        "type": ["string", "number"],
        "x-type": "duration",
        "examples": ["90s", "5m", "1h30m"],
    },
    Percentage: {"type": ["string", "integer"], "x-type": "percentage", "examples": ["10%"]},
    Replicas: {"type": ["string", "integer"], "x-type": "replicas", "examples": [2, "10%"]},
    Share: {"type": ["string", "number"], "x-type": "share", "examples": [30, "30%"]},
}


def struct_schema(cls: type[ConfigModel]) -> dict[str, Any]:
    """Describe a struct by itself."""
    definitions: dict[str, Any] = {}
    whole = _struct(cls, definitions)
    found = {"$schema": DIALECT, "title": cls.__name__, **whole}
    return {**found, "$defs": dict(sorted(definitions.items()))} if definitions else found


def reference(cls: type[ConfigModel], definitions: dict[str, Any]) -> dict[str, Any]:
    """Name a struct that is described among the definitions."""
    if cls.__name__ not in definitions:
        definitions[cls.__name__] = {}  # in work: a struct may hold itself
        definitions[cls.__name__] = _struct(cls, definitions)
    return {"$ref": f"#/$defs/{cls.__name__}"}


def _struct(cls: type[ConfigModel], definitions: dict[str, Any]) -> dict[str, Any]:
    properties = {
        each.key: _property(cls, each, field_text(cls, each), definitions)
        for each in shape(cls).fields
    }
    for alias, key in cls.aliases.items():
        properties[alias] = {**properties[key], "description": f"Another spelling of `{key}`."}
    for key, place in cls.elsewhere.items():
        properties[key] = {"description": f"Read as `{place}`."}
    found: dict[str, Any] = {
        "type": "object",
        "description": summary(cls),
        "properties": properties,
        "additionalProperties": False,
    }
    required = [each.key for each in shape(cls).fields if each.required]
    if required and not set(cls.aliases.values()) & set(required):
        found["required"] = required
    if cls.moved:
        found["x-moved"] = dict(cls.moved)
    if cls.constraints:
        found["x-constraints"] = [each.to_json() for each in cls.constraints]
    return found


def _property(
    cls: type[ConfigModel], each: Field, text: str, definitions: dict[str, Any]
) -> dict[str, Any]:
    if each.key == "config" and cls.variants:
        found: dict[str, Any] = {
            "anyOf": [reference(kind, definitions) for kind in cls.variants.values()]
        }
    else:
        found = dict(_type_schema(each.type, definitions))
    if text:
        found["description"] = text
    default = default_of(each)
    return found if default is None else {**found, "default": default}


def _type_schema(kind: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    if kind in _PLAIN:
        return _PLAIN[kind]
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is Union or origin is types.UnionType:
        arms = [_type_schema(arm, definitions) for arm in arguments if arm is not type(None)]
        return arms[0] if len(arms) == 1 else {"anyOf": arms}
    if origin is Literal:
        return {"enum": list(arguments)}
    if origin is tuple:
        return {"type": "array", "items": _type_schema(arguments[0], definitions)}
    if origin is dict:
        values = _type_schema(arguments[1], definitions)
        if values == {"type": "object", "additionalProperties": True}:
            values = {"type": ["object", "null"]}  # a plugin may only be named
        return {"type": "object", "additionalProperties": values or True}
    if isinstance(kind, type) and issubclass(kind, Enum):
        return {"enum": [member.value for member in kind]}
    if isinstance(kind, type) and issubclass(kind, ConfigModel):
        return reference(kind, definitions)
    return {}


def default_of(each: Field) -> Any:
    """Give what a setting is when it is not written; None if that is nothing."""
    value = None if each.required else each.default()
    if isinstance(value, Duration):
        return str(value) if value else None
    if isinstance(value, bool):
        return value
    if isinstance(value, str | int | float):
        return value or None
    return list(value) or None if isinstance(value, tuple) else None
