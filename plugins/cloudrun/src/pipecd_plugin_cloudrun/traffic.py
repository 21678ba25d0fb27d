# SPDX-License-Identifier: Apache-2.0
"""Who gets how much of the traffic, and which tags lead where. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from pipecd_plugin_cloudrun.knative.service import TaggedRevision
from pipecd_plugin_cloudrun.naming import get_short_name

REVISION_TYPE: Final = "TRAFFIC_TARGET_ALLOCATION_TYPE_REVISION"
LATEST_TYPE: Final = "TRAFFIC_TARGET_ALLOCATION_TYPE_LATEST"

Body = dict[str, Any]
Shares = dict[str, int]
"""Percents by the names of revisions; their sum is 100."""


def read_shares(service: Mapping[str, Any]) -> Shares:
    """Returns who gets the traffic of a live service; `latest` counts as what it is now."""
    shares: Shares = {}
    for revision, entry in _iter_entries(service):
        percent = entry.get("percent")
        if isinstance(percent, int) and percent > 0 and revision:
            shares[revision] = shares.get(revision, 0) + percent
    return shares


def read_tags(service: Mapping[str, Any]) -> dict[str, str]:
    """Returns the tags of a live service, to the revisions that they lead to."""
    return {
        entry["tag"]: revision
        for revision, entry in _iter_entries(service)
        if isinstance(entry.get("tag"), str) and entry["tag"] and revision
    }


def _iter_entries(service: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    latest = get_short_name(service.get("latestReadyRevision"))
    entries = service.get("traffic") or [{"type": LATEST_TYPE, "percent": 100}]
    return [
        (get_short_name(each.get("revision")) or latest, each)
        for each in entries
        if isinstance(each, Mapping)
    ]


def shift(before: Mapping[str, int], revision: str, percent: int) -> Shares:
    """Returns the shares when a revision gets this percent and the others what is left.

    They share it as they did before; the sum is always 100.

    Example:
        >>> shift({"a": 100}, "b", 10)
        {'b': 10, 'a': 90}
        >>> shift({"a": 50, "c": 50}, "b", 33)
        {'b': 33, 'a': 34, 'c': 33}
        >>> shift({"a": 100}, "b", 100)
        {'b': 100}
    """
    others = {name: share for name, share in before.items() if name != revision and share > 0}
    total, left = sum(others.values()), 100 - percent
    if not total:
        return {revision: 100}
    parts = {name: left * share // total for name, share in others.items()}
    # What the division has left over goes to those that lost most by it, one each.
    by_loss = sorted(others, key=lambda name: -(left * others[name] % total))
    for name in by_loss[: left - sum(parts.values())]:
        parts[name] += 1
    return {name: share for name, share in {revision: percent, **parts}.items() if share > 0}


def merge_tags(
    live: Mapping[str, str], wanted: Sequence[TaggedRevision], revision: str, *, tag: str = ""
) -> dict[str, str]:
    """Returns the tags of a service: those that it has, then git's, then the stage's."""
    merged = dict(live)
    merged.update({each.tag: each.revision or revision for each in wanted})
    if tag:
        merged[tag] = revision
    return merged


def build_traffic(shares: Mapping[str, int], tags: Mapping[str, str]) -> list[Body]:
    """Returns the traffic of a service as the API takes it: shares first, then other tags."""
    left = dict(sorted(tags.items()))
    entries: list[Body] = []
    for revision, percent in shares.items():
        entry: Body = {"type": REVISION_TYPE, "revision": revision, "percent": percent}
        tag = next((name for name, leads in left.items() if leads == revision), "")
        if tag:
            entry["tag"] = tag
            del left[tag]
        entries.append(entry)
    entries += [
        {"type": REVISION_TYPE, "revision": revision, "tag": tag} for tag, revision in left.items()
    ]
    return entries


def is_same_traffic(service: Mapping[str, Any], traffic: Sequence[Body]) -> bool:
    """Returns whether a live service has this traffic already, by names of revisions."""
    entries = service.get("traffic") or [{"type": LATEST_TYPE}]
    if any(each.get("type") == LATEST_TYPE for each in entries):
        return False
    wanted = {"traffic": list(traffic)}
    return read_shares(service) == read_shares(wanted) and read_tags(service) == read_tags(wanted)


def describe_shares(shares: Mapping[str, int]) -> str:
    """Returns shares for people: `web-v2 10 %, web-v1 90 %`."""
    return ", ".join(f"{name} {percent} %" for name, percent in shares.items()) or "nobody"
