# SPDX-License-Identifier: Apache-2.0
"""Whether what runs is what git says: fields, tags, and where the traffic goes. Pure."""

from typing import Final

from pipecd_plugin_cloudrun.compare import compare_resource, mask_variables
from pipecd_plugin_cloudrun.livestate import LiveResources
from pipecd_plugin_cloudrun.manifest import RunManifest
from pipecd_plugin_cloudrun.naming import get_short_name
from pipecd_plugin_cloudrun.traffic import describe_shares, read_shares, read_tags
from pipecd_sdk import SyncState, SyncStatus
from pipecd_sdk.kit.diff import render

LONGEST_REASON: Final = 64 * 1024


def detect_drift(live: LiveResources, manifest: RunManifest) -> SyncState:
    """Returns whether a service or job is in sync with git."""
    what = f"{manifest.kind.lower()} {manifest.name}"
    if live.root is None:
        return _differs(f"{what} is not there")
    if not live.is_ours:
        return _differs(f"{what} is there, and was not deployed by this application")
    nodes = compare_resource(live.root, manifest.body)
    if manifest.is_secret:
        nodes = mask_variables(nodes)
    traffic = [] if manifest.is_job else _compare_traffic(live, manifest)
    if not nodes and not traffic:
        return SyncState(status=SyncStatus.SYNCED)
    count = len(nodes) + len(traffic)
    places = [node.path for node in nodes] + ["traffic"] * bool(traffic)
    shown = ", ".join(places[:3]) + (f" and {len(places) - 3} more" if len(places) > 3 else "")
    text = "".join(f"{line}\n" for line in traffic) + render(nodes)
    return _differs(f"{count} difference{'s' * (count > 1)} in {what}: {shown}", text)


def describe_difference(live: LiveResources, manifest: RunManifest) -> str:
    """Returns how a service or job differs from git, as a diff; empty when it does not."""
    if live.root is None:
        return ""
    nodes = compare_resource(live.root, manifest.body)
    return render(mask_variables(nodes) if manifest.is_secret else nodes)


def _compare_traffic(live: LiveResources, manifest: RunManifest) -> list[str]:
    """Returns sentences: between deployments one revision has all traffic."""
    service = live.root or {}
    template = service.get("template")
    named = template.get("revision") if isinstance(template, dict) else ""
    newest = named or get_short_name(service.get("latestCreatedRevision"))
    shares, tags = read_shares(service), read_tags(service)
    found = []
    if shares != {newest: 100}:
        found.append(
            f"traffic: all should go to {newest}, and it goes to {describe_shares(shares)}"
        )
    for each in manifest.traffic.tags:
        wanted = each.revision or newest
        if tags.get(each.tag) != wanted:
            leads = tags.get(each.tag, "nothing")
            found.append(
                f"traffic: the tag {each.tag} should lead to {wanted}, and leads to {leads}"
            )
    return found


def _differs(short: str, reason: str = "") -> SyncState:
    return SyncState(
        status=SyncStatus.OUT_OF_SYNC,
        short_reason=short,
        reason=f"{short}\n{reason}"[:LONGEST_REASON],
    )
