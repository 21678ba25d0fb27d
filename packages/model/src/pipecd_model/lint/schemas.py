# SPDX-License-Identifier: Apache-2.0
"""What people wrote for a plugin, judged by the schemas that its package ships.

Only what our generator writes of JSON Schema is read; of other schemas the rest is passed over, so
that nothing is refused by a rule that is not understood.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pipecd_model.config import rules
from pipecd_model.config.decoder import Finding
from pipecd_model.config.path import Path
from pipecd_model.config.schema import spelling

Schema = Mapping[str, Any]

_KINDS: Final[Mapping[str, tuple[type, ...]]] = {
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
    "object": (dict,),
    "array": (list,),
    "null": (type(None),),
}
_NAMES: Final = {
    "string": "a text",
    "object": "a mapping",
    "array": "a list",
    "boolean": "true or false",
    "integer": "a whole number",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginSchemas:
    """The schemas of an installed plugin; None where it takes nothing."""

    plugin_config: Schema | None = None
    deploy_target_config: Schema | None = None
    application_config: Schema | None = None
    stages: Mapping[str, Schema] = field(default_factory=dict)

    @classmethod
    def of(cls, text: str) -> PluginSchemas:
        """Read the file of a package; raises ValueError."""
        found = json.loads(text)
        if not isinstance(found, dict):
            raise ValueError("not a mapping")  # noqa: TRY004 - a value in a file, not a type of ours
        return cls(
            plugin_config=found.get("pluginConfig"),
            deploy_target_config=found.get("deployTargetConfig"),
            application_config=found.get("applicationConfig"),
            stages=found.get("stages") or {},
        )


def judge(schema: Schema, value: Any, path: Path) -> list[Finding]:
    """Say everything that is wrong with a value."""
    return list(_Judge(schema).judge(schema, value, path))


class _Judge:
    def __init__(self, whole: Schema) -> None:
        self._definitions = whole.get("$defs") or {}

    def judge(self, schema: Schema, value: Any, path: Path) -> Iterator[Finding]:
        schema = self._resolved(schema)
        if value is None:
            return  # written and left empty is not written
        arms = schema.get("anyOf")
        if arms:
            tried = [list(self.judge(arm, value, path)) for arm in arms]
            if all(tried):
                yield from tried[0]
            return
        yield from _wrong_kind(schema, value, path)
        choices = schema.get("enum")
        if choices is not None and value not in choices:
            known = [str(each) for each in choices]
            near = rules.nearest(str(value), known)
            hint = near or f"one of {', '.join(known)}"
            yield Finding(path=path, message=f"unknown value {value!r}", hint=hint)
        if isinstance(value, dict):
            yield from self._judge_mapping(schema, value, path)
        elif isinstance(value, list) and isinstance(schema.get("items"), dict):
            for index, item in enumerate(value):
                yield from self.judge(schema["items"], item, (*path, index))

    def _judge_mapping(
        self, schema: Schema, value: dict[str, Any], path: Path
    ) -> Iterator[Finding]:
        properties: Mapping[str, Schema] = schema.get("properties") or {}
        folded = {key.lower(): key for key in properties}
        others = schema.get("additionalProperties", True)
        for key, item in value.items():
            known = folded.get(key.lower())
            if known is not None:
                yield from self.judge(properties[known], item, (*path, key))
            elif others is False:
                hint = rules.nearest(key, properties)
                yield Finding(path=(*path, key), message="unknown key", hint=hint, on_key=True)
            elif isinstance(others, dict):
                yield from self.judge(others, item, (*path, key))
        for key in schema.get("required") or ():
            if value.get(spelling(value, key) or "") is None:
                yield Finding(path=(*path, key), message="missing", on_key=True)

    def _resolved(self, schema: Schema) -> Schema:
        name = schema.get("$ref", "")
        if not isinstance(name, str) or not name.startswith("#/$defs/"):
            return schema
        found = self._definitions.get(name.removeprefix("#/$defs/"))
        return found if isinstance(found, dict) else {}


def _wrong_kind(schema: Schema, value: Any, path: Path) -> Iterator[Finding]:
    wanted = schema.get("type")
    kinds = [wanted] if isinstance(wanted, str) else list(wanted or ())
    if not kinds or any(_is_of(value, kind) for kind in kinds):
        return
    names = " or ".join(_NAMES.get(kind, f"a {kind}") for kind in kinds)
    hint = f'quote it: "{value}"' if kinds == ["string"] and isinstance(value, int | float) else ""
    shown = repr(value)
    if isinstance(value, dict | list):
        shown = "a mapping" if isinstance(value, dict) else "a list"
    yield Finding(path=path, message=f"expected {names}, got {shown}", hint=hint)


def _is_of(value: Any, kind: str) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    if kind == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, _KINDS.get(kind, (object,)))
