# SPDX-License-Identifier: Apache-2.0
"""The labels and annotations by which an object is known to be ours, as they have always been."""

from collections.abc import Iterable, Sequence
from typing import Final

from pipecd_plugin_kubernetes.manifest import Manifest, find_map, open_map

MANAGED_BY: Final = "pipecd.dev/managed-by"
PIPED: Final = "pipecd.dev/piped"
APPLICATION: Final = "pipecd.dev/application"
COMMIT_HASH: Final = "pipecd.dev/commit-hash"
ORIGINAL_API_VERSION: Final = "pipecd.dev/original-api-version"
RESOURCE_KEY: Final = "pipecd.dev/resource-key"
CONFIG_HASH: Final = "pipecd.dev/config-hash"
"""Of the template of pods: they are replaced when what they are configured with changes."""
CONFIG_DIGEST: Final = "pipecd.dev/config-digest"
"""Of the workload itself: what its pods are configured with, `stringData` of Secrets included."""
RESTARTED_FOR: Final = "pipecd.dev/restarted-for"
"""Of the template of pods: the digest for which they were replaced although the hash is the same.

Only there when that has happened; nobody else writes or removes it.
"""
ORDER: Final = "pipecd.dev/order"
"""Given by people: the place of an object among the others, a whole number."""

MANAGER: Final = "piped"
"""The value of the label that says who manages an object."""

_LABELS: Final = (MANAGED_BY, PIPED, APPLICATION, COMMIT_HASH)
_ANNOTATIONS: Final = (*_LABELS, ORIGINAL_API_VERSION, RESOURCE_KEY, CONFIG_DIGEST)
_OF_PODS: Final = (CONFIG_HASH, RESTARTED_FOR)


def add_builtin(
    manifests: Iterable[Manifest], *, piped_id: str, application_id: str, commit: str = ""
) -> list[Manifest]:
    """Returns copies with the labels and annotations that mark objects as this application's.

    Without `commit` the commit is left out: objects are then equal for all commits that do not
    change them. Templates of pods are never touched.

    Example:
        >>> web = Manifest({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}})
        >>> (made,) = add_builtin([web], piped_id="p", application_id="a")
        >>> made.annotations["pipecd.dev/resource-key"]
        ':Service::web'
    """
    shared = {MANAGED_BY: MANAGER, PIPED: piped_id, APPLICATION: application_id}
    if commit:
        shared[COMMIT_HASH] = commit
    made = []
    for manifest in manifests:
        copy = manifest.copy()
        add_labels(copy, shared)
        add_annotations(copy, shared)
        add_annotations(copy, {ORIGINAL_API_VERSION: copy.api_version})
        refresh_resource_key(copy)
        made.append(copy)
    return made


def refresh_resource_key(manifest: Manifest) -> None:
    """Writes the key that the object has now; one with another name must not keep the old."""
    add_annotations(manifest, {RESOURCE_KEY: str(manifest.key)})


def add_variant(manifests: Iterable[Manifest], *, key: str, value: str) -> None:
    """Marks objects as those of one variant, by label and annotation, in place."""
    for manifest in manifests:
        add_labels(manifest, {key: value})
        add_annotations(manifest, {key: value})


def add_labels(manifest: Manifest, labels: dict[str, str]) -> None:
    """Adds labels to an object, in place."""
    open_map(manifest.body, "metadata", "labels").update(labels)


def add_annotations(manifest: Manifest, annotations: dict[str, str]) -> None:
    """Adds annotations to an object, in place."""
    open_map(manifest.body, "metadata", "annotations").update(annotations)


def strip_builtin(manifest: Manifest, *, also: Sequence[str] = ()) -> Manifest:
    """Returns a copy without what PipeCD itself writes; `also` names more keys, e.g. the variant's.

    What is left is what people wrote: two commits are compared by it. The hash of the
    configuration in the template of pods goes too; a map that is empty then is left out.
    """
    copy = manifest.copy()
    metadata = copy.metadata
    _drop(metadata, "labels", (*_LABELS, *also))
    _drop(metadata, "annotations", (*_ANNOTATIONS, *also))
    _drop(find_map(copy.body, "spec", "template", "metadata"), "annotations", _OF_PODS)
    return copy


def read_order(manifest: Manifest) -> int:
    """Returns the place that somebody gave an object; 0 when there is none, or it is no number."""
    given = manifest.annotations.get(ORDER, "")
    digits = given[1:] if given[:1] in {"-", "+"} else given
    is_number = digits.isascii() and digits.isdigit() and len(digits) <= 18
    return int(given) if is_number else 0


def _drop(parent: dict[str, object], name: str, keys: Sequence[str]) -> None:
    found = parent.get(name)
    if not isinstance(found, dict):
        return
    removed = [found.pop(key) for key in keys if key in found]
    if removed and not found:
        del parent[name]
