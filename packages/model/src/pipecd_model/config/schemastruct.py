# SPDX-License-Identifier: Apache-2.0
"""A struct made from its JSON Schema: the way back from `structschema`.

What people wrote is then decoded as the program that has the real struct decodes it, with the same
sentences. Only what our generator writes of JSON Schema is read; of other schemas the rest is
passed over, so that nothing is refused by a rule that is not understood.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterable, Mapping
from functools import reduce
from operator import or_
from typing import Any, Final, Literal

import msgspec

from pipecd_model.config.amounts import Percentage, Replicas, Share
from pipecd_model.config.constraints import Constraint, NoSuchConstraintError, parse_constraint
from pipecd_model.config.schema import ConfigModel, Report
from pipecd_model.config.values import BadValueError, Duration

Schema = Mapping[str, Any]

_DEFINITIONS: Final = "#/$defs/"
_VALUE_TYPES: Final[Mapping[str, Any]] = {
    "duration": Duration,
    "percentage": Percentage,
    "replicas": Replicas,
    "share": Share,
}
_TYPES: Final[Mapping[str, Any]] = {"string": str, "boolean": bool, "integer": int, "number": float}


def struct_from_schema(schema: Schema) -> type[ConfigModel]:
    """Make the struct that a schema describes; one without settings if it describes no mapping."""
    return _SchemaReader(schema.get("$defs") or {}).struct(
        schema, str(schema.get("title", "Options"))
    )


class _SchemaReader:
    def __init__(self, definitions: Mapping[str, Schema]) -> None:
        self._definitions = definitions
        self._structs: dict[str, Any] = {}

    def struct(self, schema: Schema, name: str) -> type[ConfigModel]:
        properties: Mapping[str, Schema] = schema.get("properties") or {}
        required = set(schema.get("required") or ())
        keys = {f"field_{index}": key for index, key in enumerate(properties)}
        namespace: dict[str, Any] = {
            "__module__": __name__,
            "__doc__": schema.get("description") or None,
            "__annotations__": {field: self._type(properties[key]) for field, key in keys.items()},
            "moved": schema.get("x-moved") or {},
            "constraints": tuple(_constraints(schema.get("x-constraints") or ())),
            "descriptions": {
                field: properties[key].get("description", "") for field, key in keys.items()
            },
        }
        for field, key in keys.items():
            if key not in required:
                namespace[field] = msgspec.field(default_factory=_always(properties[key]))
        if schema.get("additionalProperties", True) is not False:
            namespace["prepare"] = classmethod(_prepare_without_others(properties))
        metaclass: Any = type(ConfigModel)
        found: type[ConfigModel] = metaclass(name, (ConfigModel,), namespace, rename=keys)
        return found

    def _type(self, schema: Schema) -> Any:
        name = schema.get("$ref")
        if isinstance(name, str) and name.startswith(_DEFINITIONS):
            return self._definition(name.removeprefix(_DEFINITIONS))
        if arms := schema.get("anyOf"):
            kinds = [self._type(arm) for arm in arms]
            return Any if Any in kinds else reduce(or_, kinds)
        if choices := schema.get("enum"):
            return Literal[tuple(choices)]
        if schema.get("x-type") in _VALUE_TYPES:
            return _VALUE_TYPES[schema["x-type"]]
        kind = schema.get("type")
        if kind == "array":
            return types.GenericAlias(tuple, (self._type(schema.get("items") or {}), ...))
        if kind == "object":
            return self._mapping_type(schema)
        return _TYPES.get(kind, Any) if isinstance(kind, str) else Any

    def _mapping_type(self, schema: Schema) -> Any:
        if "properties" in schema:
            return self.struct(schema, str(schema.get("title", "Section")))
        others = schema.get("additionalProperties")
        return dict[str, self._type(others) if isinstance(others, dict) else Any]  # type: ignore[misc]

    def _definition(self, name: str) -> Any:
        if name not in self._structs:
            self._structs[name] = Any  # in work: a struct that holds itself is not followed
            found = self._definitions.get(name)
            self._structs[name] = self._type(found) if isinstance(found, dict) else Any
        return self._structs[name]


def _constraints(raw: Iterable[Mapping[str, Any]]) -> Iterable[Constraint]:
    for each in raw:
        try:
            yield parse_constraint(each)
        except NoSuchConstraintError:
            continue  # of a newer version: the plugin will say it


def _always(schema: Schema) -> Callable[[], Any]:
    """Make a function that returns the default of a setting; None where the schema has none."""
    default = schema.get("default")
    kind = _VALUE_TYPES.get(str(schema.get("x-type")))
    if kind is not None and default is not None:
        try:
            default = kind.from_config(default)
        except BadValueError:
            default = None
    return lambda: default


def _prepare_without_others(properties: Iterable[str]) -> Any:
    """Make a `prepare` that leaves out the keys that a schema allows without describing them."""
    known = {key.lower() for key in properties}

    def prepare(_cls: type[ConfigModel], raw: dict[str, Any], _report: Report) -> dict[str, Any]:
        return {key: value for key, value in raw.items() if key.lower() in known}

    return prepare
