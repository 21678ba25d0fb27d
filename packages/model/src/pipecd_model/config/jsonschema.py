# SPDX-License-Identifier: Apache-2.0
"""The JSON Schema of each kind, for editors, made from the same structs that load the files.

A schema is stricter than the loader where that helps while typing (one spelling per key), and
looser where it cannot say the rule.
"""

from __future__ import annotations

import types
import typing
from enum import Enum
from typing import Any, Final, Literal, Union

from pipecd_model.config import v0
from pipecd_model.config.amounts import Percentage, Replicas
from pipecd_model.config.application import ApplicationConfig
from pipecd_model.config.describe import field_text, summary
from pipecd_model.config.document import API_VERSION, KINDS
from pipecd_model.config.schema import ConfigModel
from pipecd_model.config.shape import Field, shape
from pipecd_model.config.values import Base64Secret, Duration, Secret

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
NAMES: Final = (*KINDS, *v0.KINDS)
"""Every kind that has a schema."""

_PLAIN: Final[dict[Any, dict[str, Any]]] = {
    str: {"type": "string"},
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    float: {"type": "number"},
    Any: {},
    Secret: {"type": "string"},
    Base64Secret: {"type": "string", "contentEncoding": "base64"},
    Duration: {"type": ["string", "number"], "examples": ["90s", "5m", "1h30m"]},
    Percentage: {"type": ["string", "integer"], "examples": ["10%"]},
    Replicas: {"type": ["string", "integer"], "examples": [2, "10%"]},
}


def document_schema(kind: str) -> dict[str, Any]:
    """Describe a whole file of a kind."""
    cls = KINDS.get(kind, ApplicationConfig)
    definitions: dict[str, Any] = {}
    spec = _reference(cls, definitions)
    if kind in v0.KINDS:
        older = {key: {"type": ["object", "array", "null"]} for key in v0.section_keys(kind)}
        body = definitions[cls.__name__]
        definitions[cls.__name__] = {**body, "properties": body["properties"] | older}
    return {
        "$schema": DIALECT,
        "title": kind,
        "description": summary(cls),
        "type": "object",
        "properties": {
            "apiVersion": {"const": API_VERSION},
            "kind": {"const": kind},
            "metadata": {"type": "object", "description": "`labels.kind` becomes a label."},
            "spec": spec,
        },
        "required": ["apiVersion", "kind"],
        "additionalProperties": False,
        "$defs": dict(sorted(definitions.items())),
    }


def _reference(cls: type[ConfigModel], definitions: dict[str, Any]) -> dict[str, Any]:
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
    return found


def _property(
    cls: type[ConfigModel], each: Field, text: str, definitions: dict[str, Any]
) -> dict[str, Any]:
    if each.key == "config" and cls.variants:
        found: dict[str, Any] = {
            "anyOf": [_reference(kind, definitions) for kind in cls.variants.values()]
        }
    else:
        found = dict(_of(each.type, definitions))
    if text:
        found["description"] = text
    default = default_of(each)
    return found if default is None else {**found, "default": default}


def _of(kind: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    if kind in _PLAIN:
        return _PLAIN[kind]
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is Union or origin is types.UnionType:
        arms = [_of(arm, definitions) for arm in arguments if arm is not type(None)]
        return arms[0] if len(arms) == 1 else {"anyOf": arms}
    if origin is Literal:
        return {"enum": list(arguments)}
    if origin is tuple:
        return {"type": "array", "items": _of(arguments[0], definitions)}
    if origin is dict:
        values = _of(arguments[1], definitions)
        if values == {"type": "object", "additionalProperties": True}:
            values = {"type": ["object", "null"]}  # a plugin may only be named
        return {"type": "object", "additionalProperties": values or True}
    if isinstance(kind, type) and issubclass(kind, Enum):
        return {"enum": [member.value for member in kind]}
    if isinstance(kind, type) and issubclass(kind, ConfigModel):
        return _reference(kind, definitions)
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
