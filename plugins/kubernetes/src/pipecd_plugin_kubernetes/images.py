# SPDX-License-Identifier: Apache-2.0
"""Container images: their names and versions, and those that manifests use."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from pipecd_plugin_kubernetes.manifest import Manifest
from pipecd_plugin_kubernetes.references import find_pod_spec, list_maps
from pipecd_sdk import Version


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """A container image as manifests name it."""

    text: str
    name: str
    """The last part of its path."""
    version: str
    """The tag; the digest where there is no tag; `latest` where there is neither."""


def parse_image(text: str) -> Image:
    """Returns the parts of an image's name.

    Example:
        >>> parse_image("registry:5000/team/web:v1@sha256:ab")
        Image(text='registry:5000/team/web:v1@sha256:ab', name='web', version='v1')
        >>> parse_image("registry:5000/web").version
        'latest'
        >>> parse_image("web@sha256:ab").version
        'sha256:ab'
    """
    path, _, digest = text.partition("@")
    name, _, tag = path.rpartition("/")[2].partition(":")
    return Image(text=text, name=name, version=tag or digest or "latest")


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
