# SPDX-License-Identifier: Apache-2.0
"""CLOUDRUN_SYNC of a job, and the way back: its definition follows the commit, nothing is run."""

from pipecd_google.errors import ChangedResourceError
from pipecd_plugin_cloudrun.compare import compare_resource
from pipecd_plugin_cloudrun.manifest import RunManifest
from pipecd_plugin_cloudrun.naming import COMMIT_HASH
from pipecd_plugin_cloudrun.stages.run import MOST_TRIES, TargetWork
from pipecd_plugin_cloudrun.stages.waiting import wait_job


async def deploy_job(run: TargetWork, manifest: RunManifest, commit: str) -> None:
    """Brings a job to a commit. Raises StageFailedError."""
    body = run.build(manifest, commit)
    for attempt in range(MOST_TRIES):
        live = await run.cloud.get_job(manifest.name)
        operation = None
        try:
            if live is None:
                run.log.info("Creating job %s", manifest.name)
                operation = await run.cloud.create_job(manifest.name, body)
            elif (live.get("labels") or {}).get(COMMIT_HASH) != commit or compare_resource(
                live, body
            ):
                run.tell_taking_over(live)
                run.log.info("Updating job %s", manifest.name)
                etag = str(live.get("etag") or "")
                operation = await run.cloud.replace_job(manifest.name, body, etag)
            else:
                run.log.info("Job %s is as it should be already", manifest.name)
        except ChangedResourceError as error:
            await run.pause_for_conflict(error, attempt)
            continue
        await wait_job(run, manifest.name, operation)
        return
