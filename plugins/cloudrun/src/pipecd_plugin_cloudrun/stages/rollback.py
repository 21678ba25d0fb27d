# SPDX-License-Identifier: Apache-2.0
"""CLOUDRUN_ROLLBACK: traffic back where it was, then the template, then wait until it is ready.

Traffic comes first and alone: it takes effect at once, and nothing about the template can keep it
from being restored.
"""

from typing import Any

from pipecd_google.errors import ChangedResourceError, GoogleError
from pipecd_plugin_cloudrun.compare import (
    SERVICE_TEMPLATE_FIELDS,
    compare_template,
    extract_template,
)
from pipecd_plugin_cloudrun.manifest import RunManifest
from pipecd_plugin_cloudrun.naming import COMMIT_HASH, make_revision_name
from pipecd_plugin_cloudrun.stages.job import deploy_job
from pipecd_plugin_cloudrun.stages.original import OriginalService, read_original
from pipecd_plugin_cloudrun.stages.run import MOST_TRIES, TargetWork
from pipecd_plugin_cloudrun.stages.service import is_described, write_service
from pipecd_plugin_cloudrun.stages.waiting import wait_service
from pipecd_plugin_cloudrun.traffic import (
    build_traffic,
    describe_shares,
    is_same_traffic,
)
from pipecd_sdk import InvalidFileError, Source, StageFailedError
from pipecd_sdk.config import OptionFaultsError

Body = dict[str, Any]


async def roll_back(run: TargetWork) -> None:
    """Undoes this deployment on one deploy target. May be repeated. Raises StageFailedError."""
    original = await read_original(run)
    if original is None:
        await _undo_without_record(run)
    elif original.is_absent:
        raise StageFailedError(
            f"service {original.name} was not there before this deployment: there is nothing to go"
            " back to, and it is left as it is",
            hint="deploy a commit that works, or remove the service",
        )
    else:
        await _restore_traffic(run, original)
        await _restore_template(run, original)


async def _restore_traffic(run: TargetWork, original: OriginalService) -> None:
    traffic = build_traffic(original.shares, original.tags)
    for attempt in range(MOST_TRIES):
        live = await _find_service(run, original.name)
        if not original.shares or is_same_traffic(live, traffic):
            return
        try:
            await run.cloud.set_traffic(original.name, traffic, str(live.get("etag") or ""))
        except ChangedResourceError as error:
            await run.pause_for_conflict(error, attempt)
            continue
        run.log.success("Traffic is back: %s", describe_shares(original.shares))
        return


async def _restore_template(run: TargetWork, original: OriginalService) -> None:
    template = _complete_template(await _find_template(run, original), original)
    body = {**original.fields, "template": {**template, "revision": original.revision}}
    traffic = build_traffic(original.shares, original.tags)
    operation = None
    for attempt in range(MOST_TRIES):
        live = await _find_service(run, original.name)
        if is_described(live, body) and is_same_traffic(live, traffic):
            break
        try:
            operation = await run.cloud.replace_service(
                original.name, {**body, "traffic": traffic}, str(live.get("etag") or "")
            )
            run.log.info("The template is that of revision %s again", original.revision)
            break
        except ChangedResourceError as error:
            if error.code == "ALREADY_EXISTS":
                raise _make_half_error(original, error) from error
            await run.pause_for_conflict(error, attempt)
        except GoogleError as error:
            raise _make_half_error(original, error) from error
    used = dict.fromkeys(original.shares, True)
    await wait_service(run, original.name, used or {original.revision: False}, operation)


def _complete_template(template: Body, original: OriginalService) -> Body:
    """Returns the template with what only the service told of it: neither git nor a revision."""
    if original.unkept is None:
        return template
    told = {key: value for key, value in template.items() if key not in SERVICE_TEMPLATE_FIELDS}
    return {**told, **original.unkept}


def _make_half_error(original: OriginalService, error: GoogleError) -> StageFailedError:
    return StageFailedError(
        f"the traffic of {original.name} is back ({describe_shares(original.shares)}), but its"
        f" template is still that of the failed commit: {error.message}",
        hint="the next deployment writes it anew",
    )


async def _find_template(run: TargetWork, original: OriginalService) -> Body:
    """Returns the template that made what ran: as git has it if that is the same, else as it is."""
    revision = await run.cloud.get_revision(original.name, original.revision)
    source = run.ctx.source.running
    manifest = await _load_running(run, source) if source is not None else None
    if manifest is not None and not manifest.is_job and manifest.name == original.name:
        built = run.build(manifest, source.commit_hash, revision=original.revision)  # type: ignore[union-attr]
        template: Body = built["template"]
        if revision is None:
            return template
        if not compare_template(revision, template):
            return {**template, "labels": revision.get("labels") or template["labels"]}
    if revision is None:
        raise StageFailedError(
            f"revision {original.revision} is gone, and git does not have what it was made of",
            hint="the traffic is back; deploy a commit that works",
        )
    return extract_template(revision)


async def _load_running(run: TargetWork, source: Source) -> RunManifest | None:
    """Returns the manifest of the commit that ran; None when it says nothing to us."""
    if not source.commit_hash:
        return None
    try:
        return await run.load(source)
    except (InvalidFileError, OptionFaultsError) as error:
        # It ran all the same: upstream's agent drops fields.
        run.log.info("The manifest of the commit that ran is not used: %s", error)
        return None


async def _find_service(run: TargetWork, name: str) -> Body:
    live = await run.cloud.get_service(name)
    if live is None:
        raise StageFailedError(
            f"service {name} is gone", hint="deploy a commit that works: it is created again"
        )
    return live


async def _undo_without_record(run: TargetWork) -> None:
    """Undoes a job, or a deployment of an older agent, which has kept nothing."""
    try:
        manifest = await run.load(run.ctx.source.target)
    except InvalidFileError as error:
        run.log.info("Nothing to undo: the commit could not be deployed at all (%s)", error)
        return
    commit = run.ctx.source.target.commit_hash
    find = run.cloud.get_job if manifest.is_job else run.cloud.get_service
    live = await find(manifest.name)
    if live is None or (live.get("labels") or {}).get(COMMIT_HASH) != commit.lower():
        run.log.info("Nothing to undo: this deployment has not changed %s", manifest.name)
        return
    source = run.ctx.source.running
    if source is None:
        raise StageFailedError(
            f"there is no earlier commit to bring {manifest.kind.lower()} {manifest.name} back to,"
            " and it is left as it is",
            hint="deploy a commit that works",
        )
    before = await run.load(source)
    if before.is_job != manifest.is_job or before.name != manifest.name:
        raise StageFailedError(f"the commit that ran before deploys another thing: {before.name}")
    if manifest.is_job:
        await deploy_job(run, before, source.commit_hash)
    else:
        await _deploy_running(run, before, source.commit_hash)


async def _deploy_running(run: TargetWork, manifest: RunManifest, commit: str) -> None:
    """Gives all traffic to the revision of the commit that ran, which is made anew if need be."""
    image = next(iter(manifest.list_images()), "")
    revision = make_revision_name(manifest.name, image, commit)
    body = run.build(manifest, commit, revision=revision)
    traffic = build_traffic({revision: 100}, {})
    for attempt in range(MOST_TRIES):
        live = await _find_service(run, manifest.name)
        try:
            operation = await write_service(run, manifest.name, live, body, traffic)
        except ChangedResourceError as error:
            await run.pause_for_conflict(error, attempt)
            continue
        await wait_service(run, manifest.name, {revision: True}, operation)
        return
