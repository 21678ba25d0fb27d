# SPDX-License-Identifier: Apache-2.0
"""What git wants of an object that is there, so that only what people wrote makes a difference.

Pure. Marks that PipeCD itself writes are taken from the object: another commit, piped or variant is
no drift. So is the label of the variant in a selector, which a stage may have added.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from pipecd_plugin_kubernetes.apply.single import REPLACED_BY
from pipecd_plugin_kubernetes.manifest import Manifest, ResourceKey, find_map, open_map
from pipecd_plugin_kubernetes.metadata import (
    APPLICATION,
    COMMIT_HASH,
    MANAGED_BY,
    ORIGINAL_API_VERSION,
    PIPED,
    RESOURCE_KEY,
)
from pipecd_plugin_kubernetes.variants import add_selector_label
from pipecd_sdk.kit import yaml

_MARKS: Final = (
    *(MANAGED_BY, PIPED, APPLICATION, COMMIT_HASH),
    *(ORIGINAL_API_VERSION, RESOURCE_KEY, REPLACED_BY),
)

IgnoredFields = Mapping[ResourceKey, Sequence[str]]
"""Paths of fields that may differ, by the normalized key of their object."""


def adopt_marks(manifest: Manifest, live: Mapping[str, Any], *, variant_key: str) -> Manifest:
    """Returns a copy of a manifest with the marks of the live object."""
    copy = manifest.copy()
    for part in ("labels", "annotations"):
        there = find_map(dict(live), "metadata", part)
        for key in (*_MARKS, variant_key):
            if key in there:
                open_map(copy.body, "metadata", part)[key] = there[key]
            else:
                find_map(copy.body, "metadata", part).pop(key, None)
    value = find_map(dict(live), "spec", "selector", "matchLabels").get(variant_key)
    wanted = find_map(copy.body, "spec", "selector", "matchLabels")
    if isinstance(value, str) and wanted and variant_key not in wanted:
        add_selector_label(copy, key=variant_key, value=value)
    return copy


def read_ignored_fields(config: bytes) -> IgnoredFields:
    """Returns `spec.driftDetection.ignoreFields` of an application file.

    What is not written as `apiVersion:kind:namespace:name#path` is passed over: piped has refused
    the file already.
    """
    try:
        document = yaml.load(config.decode())
    except (yaml.YamlError, UnicodeDecodeError):
        return {}
    fields = find_map(document, "spec", "driftDetection").get("ignoreFields")
    found: dict[ResourceKey, list[str]] = {}
    for text in fields if isinstance(fields, list) else ():
        if not isinstance(text, str):
            continue
        name, _, path = text.partition("#")
        parts = name.split(":")
        if len(parts) == 4 and path:
            api_version, kind, namespace, name = parts
            group = api_version.rpartition("/")[0]
            key = ResourceKey(group, kind, namespace, name).normalize()
            found.setdefault(key, []).append(path)
    return found


def find_ignored_paths(ignored: IgnoredFields, *keys: ResourceKey) -> list[str]:
    """Returns the paths that may differ in an object; it may be named with or without namespace."""
    return [path for key in dict.fromkeys(keys) for path in ignored.get(key.normalize(), ())]


def is_variant(labels: Mapping[str, str], *, variant_key: str, primary: str) -> bool:
    """Returns whether an object is of a canary or baseline: a stage made it, not git."""
    return labels.get(variant_key, primary) != primary


def is_variant_service(
    live: Mapping[str, Any], *, variant_key: str, services: Iterable[str]
) -> bool:
    """Returns whether a stage made a Service for one variant alone, beside one of git."""
    name = find_map(dict(live), "metadata").get("name")
    return (
        live.get("kind") == "Service"
        and isinstance(name, str)
        and variant_key in find_map(dict(live), "spec", "selector")
        and any(name.startswith(f"{each}-") for each in services)
    )
