# SPDX-License-Identifier: Apache-2.0
"""Where a template of pods names ConfigMaps and Secrets.

`hashed` references are those whose contents have always been part of the config hash; the others
(projected volumes, pull secrets and what storage drivers ask for) are only renamed with a copy.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from pipecd_plugin_kubernetes.manifest import Manifest, find_map

CONFIG_MAP: Final = "ConfigMap"
SECRET: Final = "Secret"  # noqa: S105 - the name of a kind

_CONTAINERS: Final = ("containers", "initContainers")
_DRIVERS: Final = (
    "csi",
    "flexVolume",
    "azureFile",
    "cephfs",
    "iscsi",
    "rbd",
    "scaleIO",
    "storageos",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigReference:
    """One place that names a ConfigMap or Secret: `parent[key]`."""

    kind: str
    parent: dict[str, Any]
    key: str
    is_hashed: bool

    @property
    def name(self) -> str:
        """Returns the name that stands there."""
        return str(self.parent[self.key])

    def rename(self, name: str) -> None:
        """Writes another name there."""
        self.parent[self.key] = name


def find_references(manifest: Manifest) -> list[ConfigReference]:
    """Returns all places in a workload's template of pods, in the order of the text.

    A wrong shape is passed over: the API says what is wrong with it.
    """
    return list(_search_pod(find_pod_spec(manifest)))


def find_pod_template(manifest: Manifest) -> dict[str, Any]:
    """Returns the template of pods, itself; an empty map when the object has none.

    Example:
        >>> job = {"spec": {"template": {"spec": {}}}}
        >>> find_pod_template(Manifest({"kind": "CronJob", "spec": {"jobTemplate": job}}))
        {'spec': {}}
    """
    if manifest.kind == "CronJob":
        return find_map(manifest.body, "spec", "jobTemplate", "spec", "template")
    return find_map(manifest.body, "spec", "template")


def find_pod_spec(manifest: Manifest) -> dict[str, Any]:
    """Returns the description of the pods of a workload, or of the pod that it is, itself."""
    if manifest.kind == "Pod" and not manifest.group:
        return find_map(manifest.body, "spec")
    return find_map(find_pod_template(manifest), "spec")


def list_maps(parent: Any, key: str) -> Iterator[dict[str, Any]]:
    """Yields the maps of a list; nothing when there is no such list."""
    found = parent.get(key) if isinstance(parent, dict) else None
    if isinstance(found, list):
        yield from (each for each in found if isinstance(each, dict))


def _search_pod(pod: dict[str, Any]) -> Iterator[ConfigReference]:
    for volume in list_maps(pod, "volumes"):
        yield from _search_volume(volume)
    for key in _CONTAINERS:
        for container in list_maps(pod, key):
            yield from _search_container(container)
    for each in list_maps(pod, "imagePullSecrets"):
        yield from _read_place(SECRET, each, "name", is_hashed=False)


def _search_volume(volume: dict[str, Any]) -> Iterator[ConfigReference]:
    yield from _read_place(CONFIG_MAP, volume.get("configMap"), "name")
    yield from _read_place(SECRET, volume.get("secret"), "secretName")
    for source in list_maps(volume.get("projected"), "sources"):
        yield from _read_place(CONFIG_MAP, source.get("configMap"), "name", is_hashed=False)
        yield from _read_place(SECRET, source.get("secret"), "name", is_hashed=False)
    for driver in _DRIVERS:
        found = volume.get(driver)
        for key in ("secretRef", "nodePublishSecretRef"):
            below = found.get(key) if isinstance(found, dict) else None
            yield from _read_place(SECRET, below, "name", is_hashed=False)
    yield from _read_place(SECRET, volume.get("azureFile"), "secretName", is_hashed=False)


def _search_container(container: dict[str, Any]) -> Iterator[ConfigReference]:
    for variable in list_maps(container, "env"):
        source = find_map(variable, "valueFrom")
        yield from _read_place(CONFIG_MAP, source.get("configMapKeyRef"), "name")
        yield from _read_place(SECRET, source.get("secretKeyRef"), "name")
    for source in list_maps(container, "envFrom"):
        yield from _read_place(CONFIG_MAP, source.get("configMapRef"), "name")
        yield from _read_place(SECRET, source.get("secretRef"), "name")


def _read_place(
    kind: str, parent: Any, key: str, *, is_hashed: bool = True
) -> Iterator[ConfigReference]:
    if isinstance(parent, dict) and isinstance(parent.get(key), str) and parent[key]:
        yield ConfigReference(kind=kind, parent=parent, key=key, is_hashed=is_hashed)
