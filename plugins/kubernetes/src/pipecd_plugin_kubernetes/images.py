# SPDX-License-Identifier: Apache-2.0
"""The container images that manifests use, and their versions."""

from collections.abc import Iterable, Iterator

from pipecd_plugin_kubernetes.manifest import Manifest
from pipecd_plugin_kubernetes.references import find_pod_spec, list_maps
from pipecd_sdk import Version
from pipecd_sdk.kit.images import parse_image


def list_images(manifest: Manifest) -> Iterator[str]:
    """Yields the images of a workload's containers, those that run first included."""
    pod = find_pod_spec(manifest)
    for key in ("initContainers", "containers"):
        for container in list_maps(pod, key):
            image = container.get("image")
            if isinstance(image, str) and image:
                yield image


def find_versions(manifests: Iterable[Manifest]) -> list[Version]:
    """Returns the versions of all images, each image once, in the order of the manifests.

    Images of containers stand before those that only prepare them: the first is shown first.
    """
    found: dict[str, None] = {}
    prepared: dict[str, None] = {}
    for manifest in manifests:
        own = {c.get("image") for c in list_maps(find_pod_spec(manifest), "containers")}
        for text in list_images(manifest):
            (found if text in own else prepared)[text] = None
    images = (parse_image(text) for text in {**found, **prepared})
    return [Version(name=each.name, version=each.version, url=each.text) for each in images]
