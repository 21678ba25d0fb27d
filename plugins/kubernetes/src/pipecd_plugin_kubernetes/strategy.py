# SPDX-License-Identifier: Apache-2.0
"""Decides whether a change is worth the pipeline, from the manifests of two commits. Pure.

Each commit's manifests come from its own configuration. What PipeCD itself writes into them makes
no difference.
"""

import base64
import binascii
from collections.abc import Sequence
from typing import Any

from pipecd_plugin_kubernetes.config import WorkloadReference
from pipecd_plugin_kubernetes.images import list_images
from pipecd_plugin_kubernetes.manifest import Manifest, ResourceKey, find_map
from pipecd_plugin_kubernetes.metadata import strip_builtin
from pipecd_plugin_kubernetes.workloads import find_workloads
from pipecd_sdk import Strategy, SyncStrategy
from pipecd_sdk.kit import diff, text
from pipecd_sdk.kit.images import parse_image

_MOST_NAMED = 3
_LONGEST_NAME = 200


def decide_strategy(
    running: Sequence[Manifest],
    target: Sequence[Manifest],
    *,
    running_workloads: Sequence[WorkloadReference] = (),
    target_workloads: Sequence[WorkloadReference] = (),
) -> Strategy:
    """Returns the strategy for the way from one commit's manifests to another's, and why."""
    before = _index(find_workloads(running, running_workloads))
    after = _index(find_workloads(target, target_workloads))
    if not before:
        return _quick("there are no running workloads")
    if not after:
        return _quick("there are no workloads in the new commit")
    pairs = [(before[key], after[key]) for key in after if key in before]
    for old, new in pairs:
        if _differ(_template(old), _template(new)):
            return _pipeline(_explain_template(old, new))
    if reason := _compare_configs(running, target):
        return _pipeline(reason)
    scaled = [
        f"{new.kind}/{new.name} from {_replicas(old)} to {_replicas(new)}"
        for old, new in pairs
        if _replicas(old) != _replicas(new)
    ]
    if scaled:
        return _quick(f"only the scale changed: {_name(scaled)}")
    return _quick("no template of pods and no configuration changed")


def _quick(reason: str) -> Strategy:
    return Strategy(sync=SyncStrategy.QUICK_SYNC, summary=f"Quick sync, {reason}")


def _pipeline(reason: str) -> Strategy:
    return Strategy(sync=SyncStrategy.PIPELINE, summary=f"Pipeline sync, {reason}")


def _index(manifests: Sequence[Manifest]) -> dict[ResourceKey, Manifest]:
    return {each.key.normalize(): strip_builtin(each) for each in manifests}


def _differ(old: Any, new: Any) -> bool:
    return bool(diff.diff(old, new, equate_empty=True, numeric_strings=True))


def _template(manifest: Manifest) -> Any:
    return find_map(manifest.body, "spec").get("template")


def _replicas(manifest: Manifest) -> str:
    found = find_map(manifest.body, "spec").get("replicas")
    return "<nil>" if found is None else _clean(str(found))


def _explain_template(old: Manifest, new: Manifest) -> str:
    """Returns which images changed, or else that the template did."""
    before = {image.name: image for image in map(parse_image, list_images(old))}
    changed = []
    for image in map(parse_image, list_images(new)):
        known = before.get(image.name)
        if known is not None and known.text != image.text:
            changed.append(f"{image.name} from {known.version} to {image.version}")
        elif known is None:
            changed.append(f"{image.name} {image.version} is new")
    if changed:
        return f"images of {new.kind}/{new.name} changed: {_name(changed)}"
    return f"the template of pods of {new.kind}/{new.name} changed"


def _compare_configs(running: Sequence[Manifest], target: Sequence[Manifest]) -> str:
    """Returns what changed among ConfigMaps and Secrets; empty when nothing did."""
    before, after = _index(_find_configs(running)), _index(_find_configs(target))
    for key, old in before.items():
        if key not in after:
            return f"{old.kind}/{old.name} is no longer there"
    for key, new in after.items():
        if key not in before:
            return f"{new.kind}/{new.name} is new"
        if _differ(open_values(before[key]), open_values(new)):
            return f"{new.kind}/{new.name} changed"
    return ""


def _find_configs(manifests: Sequence[Manifest]) -> list[Manifest]:
    return [each for each in manifests if each.is_config_map() or each.is_secret()]


def open_values(manifest: Manifest) -> dict[str, Any]:
    """Returns the body; a Secret's with the values that it has in the cluster, however written."""
    if not manifest.is_secret():
        return manifest.body
    body = {key: value for key, value in manifest.body.items() if key != "stringData"}
    opened = {key: _decode(value) for key, value in find_map(body, "data").items()}
    written = find_map(manifest.body, "stringData")
    body["data"] = opened | {
        key: value.encode(errors="replace") if isinstance(value, str) else value
        for key, value in written.items()
    }
    return body


def _decode(value: Any) -> Any:
    try:
        return base64.b64decode(value)
    except (TypeError, ValueError, binascii.Error):
        return value


def _name(things: Sequence[str]) -> str:
    named = [_clean(each) for each in things[:_MOST_NAMED]]
    more = len(things) - len(named)
    return ", ".join(named) + (f" and {more} more" if more else "")


def _clean(said: str) -> str:
    return text.make_printable_line(said[:_LONGEST_NAME])
