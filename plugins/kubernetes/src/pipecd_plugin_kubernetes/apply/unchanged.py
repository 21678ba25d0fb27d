# SPDX-License-Identifier: Apache-2.0
"""Whether an object is already what applying a manifest would make of it. Pure.

It is when we own exactly the fields that the manifest names, with exactly its values. Where that
cannot be seen for sure (the server writes quantities its own way, for example) the answer is no:
the manifest is then applied, and the server finds that nothing changes.
"""

from collections.abc import Mapping
from typing import Any, Final

from pipecd_plugin_kubernetes.apply.field_sets import find_item
from pipecd_plugin_kubernetes.apply.takeover import is_ours, read_managed_fields

_IDENTITY: Final = frozenset({"apiVersion", "kind"})
_NAMES: Final = frozenset({"name", "namespace"})
_DEEPEST: Final = 100


def is_applied(body: Mapping[str, Any], live: Mapping[str, Any]) -> bool:
    """Returns whether applying a body would change nothing of a live object."""
    ours = next((each for each in read_managed_fields(live) if is_ours(each)), None)
    if ours is None or ours.get("apiVersion") != body.get("apiVersion"):
        return False
    wanted = {key: value for key, value in body.items() if key not in _IDENTITY}
    metadata = wanted.get("metadata")
    if not isinstance(metadata, dict):
        return False
    wanted["metadata"] = {key: metadata[key] for key in metadata if key not in _NAMES}
    if not wanted["metadata"]:
        del wanted["metadata"]
    return _matches(ours.get("fieldsV1"), wanted, live, 0)


def _matches(fields: object, wanted: Any, live: Any, depth: int) -> bool:
    if not isinstance(fields, dict) or depth > _DEEPEST or wanted is None:
        return False
    below = {key: fields[key] for key in fields if key != "."}
    if not below:
        return _is_same(wanted, live)
    if isinstance(wanted, dict):
        return _matches_map(below, wanted, live, depth)
    if isinstance(wanted, list):
        return _matches_list(below, wanted, live, depth)
    return False


def _matches_map(
    below: Mapping[str, Any], wanted: Mapping[str, Any], live: Any, depth: int
) -> bool:
    if not isinstance(live, dict) or below.keys() != {f"f:{key}" for key in wanted}:
        return False
    return all(
        key in live and _matches(below[f"f:{key}"], value, live[key], depth + 1)
        for key, value in wanted.items()
    )


def _matches_list(below: Mapping[str, Any], wanted: list[Any], live: Any, depth: int) -> bool:
    """Compares the items that are ours; they must stand in the same order."""
    if not isinstance(live, list) or len(below) != len(wanted):
        return False
    places: list[tuple[int, int]] = []
    for key, fields in below.items():
        has_wanted, item = find_item(key, wanted)
        has_live, found = find_item(key, live)
        if not has_wanted or not has_live or not _matches(fields, item, found, depth + 1):
            return False
        places.append((_find_place(wanted, item), _find_place(live, found)))
    in_git = [place for place, _ in places]
    return len(set(in_git)) == len(in_git) and [at for _, at in sorted(places)] == sorted(
        at for _, at in places
    )


def _find_place(items: list[Any], item: Any) -> int:
    return next(place for place, each in enumerate(items) if each is item or each == item)


def _is_same(wanted: Any, live: Any) -> bool:
    """Returns whether two values are the same to the server: 1 is not true, and not "1"."""
    if isinstance(wanted, dict) and isinstance(live, dict):
        return wanted.keys() == live.keys() and all(_is_same(wanted[k], live[k]) for k in wanted)
    if isinstance(wanted, list) and isinstance(live, list):
        return len(wanted) == len(live) and all(map(_is_same, wanted, live))
    return bool(type(wanted) is type(live) and wanted == live)
