# SPDX-License-Identifier: Apache-2.0
"""Sets of fields as `metadata.managedFields` has them (`FieldsV1`). Pure.

A set is a tree: `f:NAME` is a key of a map, `k:{…}` the item of a list with these keys, `v:VALUE`
an item of a list of values, `i:NUMBER` one by its place, and `.` the node itself. A node without
anything below it is a member. What has another shape is passed over: a server may say anything.

Example:
    >>> ours = {"f:spec": {"f:replicas": {}, "f:paused": {}}}
    >>> subtract(ours, {"f:spec": {"f:paused": {}}})
    {'f:spec': {'f:replicas': {}}}
"""

import json
from collections.abc import Mapping
from typing import Any, Final, TypeAlias

FieldSet: TypeAlias = dict[str, Any]

_SELF: Final = "."
_DEEPEST: Final = 100
"""Levels; the API's own objects have a few dozen."""


def unite(one: object, other: object, depth: int = 0) -> FieldSet:
    """Returns the fields that are in either set."""
    first, second = _as_tree(one), _as_tree(other)
    if depth > _DEEPEST:
        return first
    result: FieldSet = {}
    for key in first | second:
        below = (key in first, key in second)
        if all(below):
            both = unite(first[key], second[key], depth + 1)
            has_leaf = not _as_tree(first[key]) or not _as_tree(second[key])
            result[key] = {_SELF: {}} | both if both and has_leaf else both
        else:
            result[key] = first[key] if below[0] else second[key]
    return result


def subtract(one: object, other: object, depth: int = 0) -> FieldSet:
    """Returns the fields of the first set that are not in the second."""
    first, second = _as_tree(one), _as_tree(other)
    if depth > _DEEPEST:
        return first
    result: FieldSet = {}
    for key, below in first.items():
        if key not in second:
            result[key] = below
            continue
        taken = _as_tree(second[key])
        left = subtract(below, taken or {_SELF: {}}, depth + 1)
        # A member without anything below is gone when the other has it as a member.
        if left or (not _as_tree(below) and taken and _SELF not in taken):
            result[key] = left
    return result


def restrict(fields: object, value: object, depth: int = 0) -> FieldSet:
    """Returns the fields of a set that a value has, e.g. those that a manifest names."""
    result: FieldSet = {}
    if depth > _DEEPEST:
        return result
    for key, below in _as_tree(fields).items():
        if key == _SELF:
            result[key] = {}
            continue
        found, item = find_item(key, value)
        if found:
            tree = _as_tree(below)
            kept = restrict(tree, item, depth + 1)
            if kept or not tree:
                result[key] = kept
    return result


def has_path(fields: object, *path: str) -> bool:
    """Returns whether the field with these names, or something below it, is in the set."""
    for name in path:
        tree = _as_tree(fields)
        if f"f:{name}" not in tree:
            return False
        fields = tree[f"f:{name}"]
    return True


def make_path(*path: str) -> FieldSet:
    """Returns the set of the one field with these names."""
    result: FieldSet = {}
    for name in reversed(path):
        result = {f"f:{name}": result}
    return result


def find_item(key: str, value: object) -> tuple[bool, Any]:
    """Returns whether a value has what a key of a set names, and what that is."""
    mark, _, rest = key.partition(":")
    if mark == "f" and isinstance(value, Mapping):
        return rest in value, value.get(rest)
    if not isinstance(value, list):
        return False, None
    if mark == "i":
        return _find_by_index(rest, value)
    wanted = _read_json(rest)
    for item in value:
        if mark == "v" and item == wanted and type(item) is type(wanted):
            return True, item
        if mark == "k" and _has_keys(item, wanted):
            return True, item
    return False, None


def _find_by_index(text: str, value: list[Any]) -> tuple[bool, Any]:
    if text.isascii() and text.isdigit() and len(text) < len(str(len(value))) + 1:
        number = int(text)
        if number < len(value):
            return True, value[number]
    return False, None


def _has_keys(item: object, wanted: object) -> bool:
    """Returns whether an item has these keys; one that it leaves out may be the server's default.

    Ports are told apart by number and protocol, and few manifests write the protocol.
    """
    if not isinstance(item, Mapping) or not isinstance(wanted, Mapping) or not wanted:
        return False
    given = [key for key in wanted if key in item]
    return bool(given) and all(item[key] == wanted[key] for key in given)


def _read_json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _as_tree(value: object) -> FieldSet:
    return value if isinstance(value, dict) else {}
