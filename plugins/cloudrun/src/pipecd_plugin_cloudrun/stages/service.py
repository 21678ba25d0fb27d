# SPDX-License-Identifier: Apache-2.0
"""CLOUDRUN_SYNC and CLOUDRUN_PROMOTE: bring a service to the commit, with a share of the traffic.

Safe to repeat: the revision has a name that is chosen before it is made, and each write names the
etag of what was read.
"""

from typing import Any

from pipecd_google.errors import ChangedResourceError
from pipecd_plugin_cloudrun.compare import compare_resource
from pipecd_plugin_cloudrun.manifest import RunManifest
from pipecd_plugin_cloudrun.naming import OURS
from pipecd_plugin_cloudrun.stages.original import keep_original
from pipecd_plugin_cloudrun.stages.revision import choose_another, choose_revision
from pipecd_plugin_cloudrun.stages.run import MOST_TRIES, TargetWork
from pipecd_plugin_cloudrun.stages.waiting import wait_service
from pipecd_plugin_cloudrun.traffic import (
    build_traffic,
    describe_shares,
    is_same_traffic,
    merge_tags,
    read_tags,
    shift,
)
from pipecd_sdk import StageFailedError

Body = dict[str, Any]


async def deploy_service(
    run: TargetWork, manifest: RunManifest, *, percent: int, tag: str = ""
) -> None:
    """Gives the revision of the commit this percent of the traffic, and makes it if need be."""
    if manifest.traffic.has_shares:
        run.log.info("spec.traffic: the percents there are not used, stages decide about them")
    for attempt in range(MOST_TRIES):
        live = await run.cloud.get_service(manifest.name)
        original = await keep_original(run, manifest.name, live)
        if original.is_absent and percent < 100:
            raise StageFailedError(
                f"nothing runs yet that could get the other {100 - percent} % of the traffic",
                hint="a first deployment is a quick sync; take alwaysUsePipeline away for it",
            )
        if attempt == 0:
            run.tell_taking_over(live)
        revision = await choose_revision(run, manifest)
        shares = shift(original.shares, revision, percent)
        tags = merge_tags(read_tags(live or {}), manifest.traffic.tags, revision, tag=tag)
        if original.is_absent:  # a tag of git may lead only to what there is
            tags = {name: leads for name, leads in tags.items() if leads == revision}
        body = await _build(run, manifest, revision)
        try:
            operation = await write_service(
                run, manifest.name, live, body, build_traffic(shares, tags)
            )
        except ChangedResourceError as error:
            if live is not None and error.code == "ALREADY_EXISTS":
                await choose_another(run, manifest, revision)
            await run.pause_for_conflict(error, attempt)
            continue
        run.log.info("Traffic: %s", describe_shares(shares))
        is_used = revision in shares or revision in tags.values()
        await wait_service(run, manifest.name, {revision: is_used}, operation)
        return


async def _build(run: TargetWork, manifest: RunManifest, revision: str) -> Body:
    """Returns the service; a revision that is there already keeps the labels that it has."""
    body = run.build(manifest, run.ctx.source.target.commit_hash, revision=revision)
    existing = await run.cloud.get_revision(manifest.name, revision)
    if existing is not None and isinstance(existing.get("labels"), dict):
        body["template"]["labels"] = existing["labels"]
    return body


async def write_service(
    run: TargetWork, name: str, live: Body | None, body: Body, traffic: list[Body]
) -> Body | None:
    """Writes what differs; returns the operation, None when there is nothing to do.

    Raises ChangedResourceError when somebody else was faster.
    """
    full = {**body, "traffic": traffic}
    if live is None:
        run.log.info("Creating service %s", name)
        return await run.cloud.create_service(name, full)
    etag = str(live.get("etag") or "")
    if not is_described(live, body):
        run.log.info("Updating service %s, revision %s", name, body["template"]["revision"])
        return await run.cloud.replace_service(name, full, etag)
    if not is_same_traffic(live, traffic):
        return await run.cloud.set_traffic(name, traffic, etag)
    run.log.info("Service %s is as it should be already", name)
    return None


def is_described(live: Body, body: Body) -> bool:
    """Returns whether a service has this template, from this commit, and these settings."""
    template = live.get("template")
    named = template.get("revision") if isinstance(template, dict) else None
    labels, wanted = live.get("labels"), body.get("labels") or {}
    if not isinstance(labels, dict):
        labels = {}
    return (
        named == body["template"]["revision"]
        and all(labels.get(key) == wanted.get(key) for key in OURS)
        and not compare_resource(live, body)
    )
