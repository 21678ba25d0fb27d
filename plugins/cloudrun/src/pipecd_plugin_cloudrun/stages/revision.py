# SPDX-License-Identifier: Apache-2.0
"""Which revision a deployment makes: chosen once, kept, and found again after a kill."""

from typing import Final

from pipecd_plugin_cloudrun.compare import compare_template
from pipecd_plugin_cloudrun.manifest import RunManifest
from pipecd_plugin_cloudrun.naming import make_revision_name
from pipecd_plugin_cloudrun.readiness import ReadyVerdict, judge_revision
from pipecd_plugin_cloudrun.stages.run import TargetWork
from pipecd_sdk import StageFailedError

MOST_NAMES: Final = 20


async def choose_revision(run: TargetWork, manifest: RunManifest) -> str:
    """Returns the name of the deployment's revision.

    A revision of an earlier deployment that is the same and did not fail is used again.
    """
    key = f"revision-{run.target.name}"
    kept = await run.ctx.deployment_metadata.get(key)
    if kept and not await _is_retried_failure(run, manifest, kept):
        return kept
    name = await _find_name(run, manifest, beside=kept or "")
    await run.ctx.deployment_metadata.put(key, name)
    return name


async def choose_another(run: TargetWork, manifest: RunManifest, taken: str) -> str:
    """Returns a name for a revision when the platform says that the chosen one is taken."""
    name = await _find_name(run, manifest, beside=taken)
    await run.ctx.deployment_metadata.put(f"revision-{run.target.name}", name)
    return name


async def _is_retried_failure(run: TargetWork, manifest: RunManifest, name: str) -> bool:
    """Returns whether somebody asked to try again what has failed: then it is made anew, once."""
    retried = run.ctx.stage.retried_count
    if not retried:
        return False
    key = f"retried-{retried}-{run.target.name}"
    if await run.ctx.metadata.get(key):
        return False
    found = await run.cloud.get_revision(manifest.name, name)
    has_failed = found is not None and (
        judge_revision(found, is_used=False).verdict is ReadyVerdict.FAILED
    )
    if not has_failed:
        await run.ctx.metadata.put(key, name)
    return has_failed


async def _find_name(run: TargetWork, manifest: RunManifest, *, beside: str) -> str:
    image = next(iter(manifest.list_images()), "")
    commit = run.ctx.source.target.commit_hash or run.ctx.deployment.commit.hash
    for attempt in range(1, MOST_NAMES + 1):
        name = make_revision_name(manifest.name, image, commit, attempt=attempt)
        if name == beside:
            continue
        found = await run.cloud.get_revision(manifest.name, name)
        if found is None:
            return name
        has_failed = judge_revision(found, is_used=False).verdict is ReadyVerdict.FAILED
        if not has_failed and not compare_template(found, manifest.body["template"]):
            run.log.info("Revision %s is there already, and is used", name)
            return name
    raise StageFailedError(
        f"the service has {MOST_NAMES} other revisions of this commit",
        hint="remove those that failed",
    )
