# SPDX-License-Identifier: Apache-2.0
"""Versions and strategy of a deployment, from the manifests alone. Pure."""

from pipecd_plugin_cloudrun.manifest import RunManifest
from pipecd_sdk import Strategy, SyncStrategy, Version
from pipecd_sdk.kit.images import parse_image


def find_versions(manifest: RunManifest) -> list[Version]:
    """Returns the versions of all containers' images, each image once."""
    images = (parse_image(text) for text in dict.fromkeys(manifest.list_images()))
    return [Version(name=each.name, version=each.version, url=each.text) for each in images]


def decide_strategy(running: RunManifest | None, target: RunManifest) -> Strategy:
    """Returns the strategy: the pipeline, unless nothing runs yet."""
    if running is None:
        return Strategy(
            sync=SyncStrategy.QUICK_SYNC, summary="Quick sync, it is the first deployment"
        )
    before = {each.name: each.version for each in find_versions(running)}
    changed = [
        f"{each.name} {before.get(each.name, 'none')} → {each.version}"
        for each in find_versions(target)
        if before.get(each.name) != each.version
    ]
    if changed:
        return Strategy(summary=f"Pipeline sync, {', '.join(changed)}")
    if running.body == target.body:
        return Strategy(summary="Pipeline sync, the manifest has not changed")
    return Strategy(summary="Pipeline sync, the manifest changed and its images did not")
