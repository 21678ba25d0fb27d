# SPDX-License-Identifier: Apache-2.0
"""Functions for maps, for kinds of values, and those that choose one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pipecd_model.templates.faults import FunctionError, TemplateFaultError
from pipecd_model.templates.functions.signature import Function, declare
from pipecd_model.templates.gofmt import to_text
from pipecd_model.templates.kinds import (
    Strings,
    identity,
    is_true,
    kind_name,
    sort_keys,
    type_name,
)

Map = dict[str, Any]


def _dict(*entries: object) -> Map:
    made: Map = {}
    for number in range(0, len(entries), 2):
        value = entries[number + 1] if number + 1 < len(entries) else ""
        made[to_text(entries[number])] = value
    return made


def _dig(*arguments: object) -> object:
    if len(arguments) < 3:
        raise FunctionError("it needs a key, a default and a map")
    *keys, default, inside = arguments
    for key in keys:
        if not isinstance(key, str):
            raise FunctionError("a key is no text")
        if type(inside) is not dict:
            raise FunctionError("there is no map to look into")
        if key not in inside:
            return default
        inside = inside[key]
    return inside


def _pick(value: Map, *keys: str) -> Map:
    return {key: value[key] for key in keys if key in value}


def _omit(value: Map, *keys: str) -> Map:
    return {key: item for key, item in value.items() if key not in set(keys)}


def _pluck(key: str, *values: Map) -> list[object]:
    return [each[key] for each in values if key in each]


def _keys(*values: Map) -> Strings:
    return Strings(key for each in values for key in sort_keys(each))


def _copy(value: object) -> object:
    if value is None:
        raise FunctionError("there is nothing to copy")
    return _deep_copy(value)


def _deep_copy(value: object) -> object:
    if isinstance(value, dict):
        return type(value)((key, _deep_copy(item)) for key, item in value.items())
    if isinstance(value, list):
        return type(value)(_deep_copy(item) for item in value)
    return value


def _default(default: object, *given: object) -> object:
    return given[0] if given and is_true(given[0]) else default


def _coalesce(*values: object) -> object:
    return next((each for each in values if is_true(each)), None)


def _fail(message: str) -> object:
    raise TemplateFaultError(message or "the template gives up", hint="the template itself says so")


def _deep_equal(left: object, right: object) -> bool:
    return identity(left) == identity(right)


MAPS: Final[Mapping[str, Function]] = {
    "dict": declare("a*", _dict),
    "get": declare("ms", lambda value, key: value.get(key, "")),
    "hasKey": declare("ms", lambda value, key: key in value),
    "keys": declare("m*", _keys),
    "values": declare("m", lambda value: [value[key] for key in sort_keys(value)]),
    "pick": declare("ms*", _pick),
    "omit": declare("ms*", _omit),
    "pluck": declare("sm*", _pluck),
    "dig": declare("a*", _dig),
    "deepCopy": declare("a", _copy),
    "mustDeepCopy": declare("a", _copy),
    "deepEqual": declare("aa", _deep_equal),
    "kindIs": declare("sa", lambda kind, value: kind_name(value) == kind),
    "kindOf": declare("a", kind_name),
    "typeIs": declare("sa", lambda name, value: type_name(value) == name),
    "typeIsLike": declare("sa", lambda name, value: type_name(value) in {name, f"*{name}"}),
    "typeOf": declare("a", type_name),
    "all": declare("a*", lambda *values: all(map(is_true, values))),
    "any": declare("a*", lambda *values: any(map(is_true, values))),
    "coalesce": declare("a*", _coalesce),
    "default": declare("aa*", _default),
    "empty": declare("a", lambda value: not is_true(value)),
    "fail": declare("s", _fail),
    "ternary": declare("aab", lambda yes, no, choice: yes if choice else no),
}
