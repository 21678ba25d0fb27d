# SPDX-License-Identifier: Apache-2.0
"""Who owns which fields, as a server keeps it: the part of server-side apply that the fake has.

Lists of objects with names are merged by name, others are one value.
"""

import copy
import json
from collections.abc import Iterator
from typing import Any

from pipecd_plugin_kubernetes.apply.field_sets import find_item, subtract, unite
from pipecd_plugin_kubernetes.client import Object

BEFORE = "before-first-apply"
_IDENTITY = {"apiVersion", "kind", "status"}
_NO_FIELDS = {
    "name",
    "namespace",
    "uid",
    "generation",
    "resourceVersion",
    "managedFields",
    "creationTimestamp",
    "deletionTimestamp",
}
Fields = dict[str, Any]


def apply_fields(live: Object, body: Object, manager: str) -> Object:
    """Returns the object after an apply that takes what it needs."""
    fields = make_fields(body)
    entries = list(live.get("metadata", {}).get("managedFields") or [])
    if live and not entries:
        entries = [_make_entry(BEFORE, "Update", live, make_fields(live))]
    ours = next((each for each in entries if _is_applier(each, manager)), None)
    lost = subtract(ours["fieldsV1"], fields) if ours is not None else {}
    conflicts = dict(find_conflicting(live, body, entries, manager))
    others: list[Any] = []
    for each in entries:
        if each is ours:
            continue
        left = subtract(each["fieldsV1"], conflicts.get(id(each), {}))
        lost = subtract(lost, left)
        if left:
            others.append({**each, "fieldsV1": left})
    merged: Object = _merge(copy.deepcopy(live), _strip(body), fields)
    _remove(merged, lost)
    entry = _make_entry(manager, "Apply", body, fields)
    merged["apiVersion"], merged["kind"] = body["apiVersion"], body["kind"]
    merged["metadata"]["name"] = body["metadata"]["name"]
    merged["metadata"]["managedFields"] = [*([entry] if fields else []), *others]
    return merged


def record_update(live: Object, body: Object, manager: str, *, subresource: str = "") -> Object:
    """Returns an object that somebody wrote as a whole: what changed is theirs."""
    written = copy.deepcopy(body)
    before = make_fields(live) if live else {}
    after = make_fields(written)
    changed = subtract(after, _find_same(after, live, written))
    gone = subtract(before, after)
    entries = []
    mine: Fields = changed
    for each in (live.get("metadata") or {}).get("managedFields") or []:
        fields = subtract(subtract(each["fieldsV1"], changed), gone)
        is_mine = (each["manager"], each["operation"]) == (manager, "Update")
        if is_mine and each.get("subresource", "") == subresource:
            mine = unite(fields, changed)
        elif fields:
            entries.append({**each, "fieldsV1": fields})
    entry = _make_entry(manager, "Update", written, mine)
    if subresource:
        entry["subresource"] = subresource
    written["metadata"]["managedFields"] = [*entries, *([entry] if mine else [])]
    return written


def find_conflicts(live: Object, body: Object, manager: str) -> list[tuple[str, str]]:
    """Returns the managers and paths that an apply without force would take."""
    entries = live["metadata"].get("managedFields") or []
    if not entries:
        entries = [_make_entry(BEFORE, "Update", live, make_fields(live))]
    names = {id(each): each["manager"] for each in entries}
    return [
        (names[which], path)
        for which, fields in find_conflicting(live, body, entries, manager)
        for path in _iter_paths(fields)
    ]


def find_conflicting(
    live: Object, body: Object, entries: list[Any], manager: str
) -> Iterator[tuple[int, Fields]]:
    """Yields, for each entry of others, the fields that the body has with another value."""
    fields = make_fields(body)
    different = subtract(fields, _find_same(fields, live, body))
    for each in entries:
        if _is_applier(each, manager):
            continue
        shared = subtract(different, subtract(different, each["fieldsV1"]))
        if shared:
            yield id(each), shared


def make_fields(body: Object) -> Fields:
    """Returns the fields of an object: all leaves, without what identifies it."""
    return _make_fields(_strip(body))


def _strip(body: Object) -> Object:
    bare = {key: value for key, value in body.items() if key not in _IDENTITY}
    metadata = {
        key: value for key, value in body.get("metadata", {}).items() if key not in _NO_FIELDS
    }
    return {**bare, "metadata": metadata}


def _make_fields(value: Any) -> Fields:
    if isinstance(value, dict):
        found = {f"f:{key}": _make_fields(each) for key, each in value.items()}
        return {key: below for key, below in found.items() if below or not _is_tree(value[key[2:]])}
    if _is_named(value):
        return {
            f"k:{json.dumps({'name': each['name']})}": {".": {}, **_make_fields(each)}
            for each in value
        }
    return {}


def _is_tree(value: Any) -> bool:
    return isinstance(value, dict) or _is_named(value)


def _is_named(value: Any) -> bool:
    return (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(each, dict) and "name" in each for each in value)
    )


def _find_same(fields: Fields, one: Any, other: Any) -> Fields:
    """Returns the leaves that two values have the same."""
    same: Fields = {}
    for key, below in fields.items():
        if key == ".":
            if one is not None:
                same[key] = {}
            continue
        (has_one, first), (has_other, second) = find_item(key, one), find_item(key, other)
        if not (has_one and has_other):
            continue
        if not below:
            if first == second:
                same[key] = {}
        elif found := _find_same(below, first, second):
            same[key] = found
    return same


def _merge(live: Any, wanted: Any, fields: Fields) -> Any:
    if isinstance(wanted, dict):
        merged = live if isinstance(live, dict) else {}
        for key, value in wanted.items():
            merged[key] = _merge(merged.get(key), value, fields.get(f"f:{key}", {}))
        return merged
    if _is_named(wanted):
        merged_list = live if isinstance(live, list) else []
        for item in wanted:
            found = next((each for each in merged_list if each.get("name") == item["name"]), None)
            if found is None:
                merged_list.append(copy.deepcopy(item))
            else:
                _merge(found, item, {})
        return merged_list
    return copy.deepcopy(wanted)


def _remove(value: Any, fields: Fields) -> None:
    """Takes these leaves out of a value, and the maps that are empty then."""
    for key, below in fields.items():
        has, item = find_item(key, value)
        if key == "." or not has:
            continue
        if key.startswith("k:") and "." in below:
            value.remove(item)
            continue
        if below:
            _remove(item, below)
        if not below or item in ({}, []):
            del value[key[2:]]


def _is_applier(entry: Any, manager: str) -> bool:
    return bool(entry["manager"] == manager and entry["operation"] == "Apply")


def _make_entry(manager: str, operation: str, body: Object, fields: Fields) -> dict[str, Any]:
    return {
        "manager": manager,
        "operation": operation,
        "apiVersion": body["apiVersion"],
        "time": "2024-01-01T00:00:00Z",
        "fieldsType": "FieldsV1",
        "fieldsV1": fields,
    }


def _iter_paths(fields: Fields, path: str = "") -> Iterator[str]:
    for key, below in fields.items():
        if key == ".":
            continue
        step = f".{key[2:]}" if key.startswith("f:") else f"[{key[2:]}]"
        if below:
            yield from _iter_paths(below, path + step)
        else:
            yield path + step
