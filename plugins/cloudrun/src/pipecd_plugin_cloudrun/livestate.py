# SPDX-License-Identifier: Apache-2.0
"""What runs of an application: its service with the revisions in use, or its job."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from pipecd_google.errors import clean_message
from pipecd_plugin_cloudrun.manifest import RunManifest
from pipecd_plugin_cloudrun.naming import COMMIT_HASH, get_short_name, is_ours
from pipecd_plugin_cloudrun.provider.cloud_run import CloudRun
from pipecd_plugin_cloudrun.readiness import REVISION_NEEDS, SERVICE_NEEDS, assess_health
from pipecd_plugin_cloudrun.traffic import describe_shares, read_shares, read_tags
from pipecd_sdk import LiveSnapshot, Resource

MOST_REVISIONS: Final = 20
"""Revisions that are shown, those with most traffic first."""

Body = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveResources:
    """What was found for an application."""

    name: str
    kind: str
    root: Body | None = None
    """The service or job; None when it is not there."""
    is_ours: bool = False
    revisions: Sequence[Body] = field(default=())

    def find(self, resource_id: str) -> Body | None:
        """Returns what has this id."""
        for each in (self.root, *self.revisions):
            if each is not None and make_id(each) == resource_id:
                return each
        return None


async def read_live(
    cloud: CloudRun, manifest: RunManifest, application_id: str, listed: Body | None = None
) -> LiveResources:
    """Returns what runs. Raises GoogleError. `listed`: the service, where it is known already."""
    root = listed
    if manifest.is_job:
        root = await cloud.get_job(manifest.name)
    elif root is None:
        root = await cloud.get_service(manifest.name)
    if root is None or not is_ours(root, application_id):
        return LiveResources(name=manifest.name, kind=manifest.kind, root=root)
    names = [] if manifest.is_job else list_revisions_in_use(root)
    found = [
        body
        for each in names
        if (body := await cloud.get_revision(manifest.name, each)) is not None
    ]
    return LiveResources(
        name=manifest.name, kind=manifest.kind, root=root, is_ours=True, revisions=found
    )


def list_revisions_in_use(service: Mapping[str, Any]) -> list[str]:
    """Returns the revisions with traffic, then those with tags, then the newest."""
    shares = read_shares(service)
    ordered = sorted(shares, key=lambda name: -shares[name])
    newest = get_short_name(service.get("latestCreatedRevision"))
    wanted = dict.fromkeys([*ordered, *read_tags(service).values(), newest])
    wanted.pop("", None)
    return list(wanted)[:MOST_REVISIONS]


def describe_live(live: LiveResources) -> LiveSnapshot:
    """Returns the live state; what is not this application's is not shown."""
    if live.root is None or not live.is_ours:
        return LiveSnapshot(data=live)
    root = live.root
    needs = SERVICE_NEEDS if live.kind == "Service" else ("Ready",)
    shares = read_shares(root) if live.kind == "Service" else {}
    resources = [_to_resource(root, live.kind, needs, (), _describe_root(root, shares))]
    tags = read_tags(root) if live.kind == "Service" else {}
    for each in live.revisions:
        name = get_short_name(each.get("name"))
        used = shares.get(name, 0)
        own = [tag for tag, leads in tags.items() if leads == name]
        more = {"traffic": f"{used} %"} | ({"tags": ", ".join(own)} if own else {})
        needed = (*REVISION_NEEDS, "Active") if used else REVISION_NEEDS
        resources.append(_to_resource(each, "Revision", needed, (make_id(root),), more))
    return LiveSnapshot(resources=resources, data=live)


def _describe_root(root: Body, shares: dict[str, int]) -> dict[str, str]:
    found = {"commit": str((root.get("labels") or {}).get(COMMIT_HASH) or "")}
    if shares:
        found["traffic"] = describe_shares(shares)
    if isinstance(root.get("uri"), str):
        found["address"] = clean_message(root["uri"])
    return {key: value for key, value in found.items() if value}


def _to_resource(
    body: Body, kind: str, needs: tuple[str, ...], parents: tuple[str, ...], more: dict[str, str]
) -> Resource:
    health, description = assess_health(body, needs=needs)
    return Resource(
        id=make_id(body),
        name=get_short_name(body.get("name")),
        kind=kind,
        parents=parents,
        health=health,
        description=description,
        metadata=more,
        created_at=read_time(body.get("createTime")),
    )


def make_id(body: Mapping[str, Any]) -> str:
    """Returns what tells a resource from all others."""
    uid = body.get("uid")
    return uid if isinstance(uid, str) and uid else str(body.get("name") or "")


def read_time(text: Any) -> datetime | None:
    """Returns a time of the API, None when it is none."""
    try:
        return datetime.fromisoformat(text).astimezone(UTC)
    except (TypeError, ValueError, OverflowError, OSError):
        return None
