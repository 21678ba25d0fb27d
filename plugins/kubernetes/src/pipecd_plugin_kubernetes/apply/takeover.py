# SPDX-License-Identifier: Apache-2.0
"""Whose fields are ours from now on: `managedFields` and the last-applied annotation. Pure.

What another deployment tool has applied becomes ours at the first contact, and again whenever it
comes back: otherwise it would own what git no longer has, and that would stay in the cluster for
ever. Only the record of who owns what is written; the object, and its pods, stay as they are.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from pipecd_plugin_kubernetes.apply.field_sets import (
    FieldSet,
    has_path,
    make_path,
    restrict,
    subtract,
    unite,
)
from pipecd_plugin_kubernetes.client import Object
from pipecd_plugin_kubernetes.manifest import Manifest, find_map
from pipecd_plugin_kubernetes.metadata import MANAGED_BY
from pipecd_sdk.kit.text import make_printable_line

MANAGER: Final = "piped"
LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
LONGEST_LAST_APPLIED: Final = 200_000
"""Characters; all annotations of an object together may have 262,144 bytes."""

BEFORE_FIRST_APPLY: Final = "before-first-apply"
"""Who the server says owns the fields of an object that nobody was recorded for."""
_TOOLS: Final = frozenset(
    {
        MANAGER,
        "kubectl-client-side-apply",
        "argocd-controller",
        "argocd-application-controller",
        "kustomize-controller",
        "helm-controller",
        "helm",
    }
)
"""Tools that apply manifests, as they call themselves; what wrote the annotations below is one."""

ManagedFields = list[dict[str, Any]]


def read_managed_fields(live: Mapping[str, Any]) -> ManagedFields:
    """Returns the entries of an object that have the shape of one."""
    entries = find_map(live, "metadata").get("managedFields")
    if not isinstance(entries, list):
        return []
    return [each for each in entries if isinstance(each, dict)]


def is_ours(entry: Mapping[str, Any]) -> bool:
    """Returns whether this is what we have applied."""
    return (
        entry.get("manager") == MANAGER
        and entry.get("operation") == "Apply"
        and not entry.get("subresource")
    )


def is_former_tool(entry: Mapping[str, Any]) -> bool:
    """Returns whether this is what another tool, or upstream's plugin, has applied before us."""
    if is_ours(entry) or entry.get("subresource"):
        return False
    if _format_manager(entry) in _TOOLS:
        return True
    fields = entry.get("fieldsV1")
    return any(
        has_path(fields, "metadata", "annotations", name) for name in (LAST_APPLIED, MANAGED_BY)
    )


def is_unrecorded(entry: Mapping[str, Any]) -> bool:
    """Returns whether nobody was recorded for these fields when the first apply came."""
    return entry.get("manager") == BEFORE_FIRST_APPLY and not entry.get("subresource")


def plan_managed_fields(
    live: Mapping[str, Any], manifest: Manifest, *, release: Sequence[str] = ()
) -> tuple[ManagedFields, list[str]] | None:
    """Returns the entries as they should be, and the managers whose fields become ours.

    `release` is the path of a field that is given up instead: it keeps its value and is nobody's
    of those that apply manifests. Returns None when everything is as it should be.
    """
    entries = read_managed_fields(live)
    ours = next((each for each in entries if is_ours(each)), None)
    former = [each for each in entries if is_former_tool(each)]
    unrecorded = [each for each in entries if is_unrecorded(each)]
    version = _choose_version(ours, former + unrecorded, manifest)
    fields: FieldSet = unite((ours or {}).get("fieldsV1"), {})
    kept: ManagedFields = []
    managers: list[str] = []
    for entry in entries:
        if entry is ours:
            continue
        taken, left = _split_entry(entry, live, version)
        if taken is None:
            kept.append(entry)
            continue
        fields = unite(fields, taken)
        managers.append(_format_manager(entry))
        if left:
            kept.append(entry | {"fieldsV1": left})
    is_released = bool(release) and _is_owned_alone(fields, kept, release)
    if not managers and not is_released:
        return None
    if is_released:
        fields = subtract(fields, make_path(*release))
    made = _make_entry(ours, version, fields, entries)
    return [*([made] if made else []), *kept], managers


def _is_owned_alone(fields: FieldSet, others: ManagedFields, path: Sequence[str]) -> bool:
    return has_path(fields, *path) and not any(
        has_path(each.get("fieldsV1"), *path) for each in others
    )


def _split_entry(
    entry: Mapping[str, Any], live: Mapping[str, Any], version: str
) -> tuple[FieldSet | None, FieldSet]:
    """Returns what of an entry becomes ours, None when nothing is touched, and what is left."""
    fields = entry.get("fieldsV1")
    if is_unrecorded(entry):
        known = read_last_applied(live)
        taken = restrict(fields, known) if known and entry.get("apiVersion") == version else {}
        return (taken, subtract(fields, taken)) if taken else (None, {})
    if not is_former_tool(entry):
        return None, {}
    if entry.get("apiVersion") != version:
        return {}, {}  # of another version of the API: its paths may mean something else in ours
    tree = fields if isinstance(fields, dict) else {}
    return {key: tree[key] for key in tree if key != "f:status"}, {}


def _choose_version(
    ours: Mapping[str, Any] | None, others: ManagedFields, manifest: Manifest
) -> str:
    """Returns the version of the API whose paths our entry has."""
    if ours is not None:
        return str(ours.get("apiVersion", ""))
    versions = [str(each.get("apiVersion", "")) for each in others]
    if manifest.api_version in versions or not versions:
        return manifest.api_version
    return max(zip((str(each.get("time", "")) for each in others), versions, strict=True))[1]


def _make_entry(
    ours: Mapping[str, Any] | None, version: str, fields: FieldSet, entries: ManagedFields
) -> dict[str, Any] | None:
    if not fields:
        return None
    times = [each["time"] for each in entries if isinstance(each.get("time"), str)]
    entry = {
        "manager": MANAGER,
        "operation": "Apply",
        "apiVersion": version,
        "fieldsType": "FieldsV1",
    }
    time = (ours or {}).get("time") or max(times, default="")
    return entry | ({"time": time} if time else {}) | {"fieldsV1": fields}


def _format_manager(entry: Mapping[str, Any]) -> str:
    """Returns the name of a manager as one line; the API allows 128 characters."""
    return make_printable_line(str(entry.get("manager", "")))[:128]


def read_last_applied(live: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the manifest that client-side apply has last applied; empty when there is none."""
    text = find_map(live, "metadata", "annotations").get(LAST_APPLIED)
    if not isinstance(text, str):
        return {}
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def has_last_applied(live: Mapping[str, Any]) -> bool:
    """Returns whether somebody who applies on the client's side may come back to this object."""
    return LAST_APPLIED in find_map(live, "metadata", "annotations")


def write_last_applied(body: Object, source: Mapping[str, Any]) -> bool:
    """Writes into `body` that `source` was applied, as `kubectl apply` does.

    Returns False, and writes nothing, when it would be too long to be kept: the annotation then
    goes, and whoever applies on the client's side begins anew.
    """
    annotations = find_map(source, "metadata", "annotations")
    bare = {
        **source,
        "metadata": {
            **find_map(source, "metadata"),
            "annotations": {key: annotations[key] for key in annotations if key != LAST_APPLIED},
        },
    }
    text = json.dumps(bare, sort_keys=True, separators=(",", ":"), ensure_ascii=False) + "\n"
    if len(text.encode(errors="replace")) > LONGEST_LAST_APPLIED:
        return False
    metadata = {**find_map(body, "metadata")}
    metadata["annotations"] = {**find_map(body, "metadata", "annotations"), LAST_APPLIED: text}
    body["metadata"] = metadata
    return True


def find_owners(live: Mapping[str, Any], *path: str) -> Iterator[dict[str, Any]]:
    """Yields the entries that own a field."""
    for entry in read_managed_fields(live):
        if has_path(entry.get("fieldsV1"), *path):
            yield entry
