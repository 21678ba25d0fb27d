# SPDX-License-Identifier: Apache-2.0
"""Builds the version of a deployment: the function brought to the commit, then published.

A stage that is continued publishes nothing twice: what it has published is noted, and, if it died
before the note, found by its description.
"""

from pipecd_plugin_lambda.provider.functions import URL_OPTIONS, LiveFunction
from pipecd_plugin_lambda.stages.function import bring_function
from pipecd_plugin_lambda.stages.ledger import FunctionNotes, OptionNotes
from pipecd_plugin_lambda.stages.run import FunctionRun
from pipecd_plugin_lambda.stages.waiting import wait_function
from pipecd_plugin_lambda.traffic import Traffic
from pipecd_sdk import StageFailedError


async def build_version(run: FunctionRun) -> str:
    """Returns the published version of the commit. Raises StageFailedError."""
    notes = await run.ledger.read()
    live = await run.api.get()
    version = ""
    if notes is None:
        notes = await _note_before(run, live)
    else:
        version = notes.version or await _find_published(run, notes, live)
    if not version and run.unreadable:
        run.log.info(
            "the manifest of the commit that ran cannot be read, so what only it names stays: %s",
            run.unreadable,
        )
    if not version:
        code_hash = await bring_function(run, run.manifest, previous=run.running, live=live)
        version = await _publish(run, code_hash)
    else:
        run.log.info("version %s is published already", version)
    await run.ledger.note_version(notes, version)
    await wait_function(run, version)
    return version


async def _note_before(run: FunctionRun, live: LiveFunction | None) -> FunctionNotes:
    traffic = await run.api.get_alias(run.alias) if live is not None else None
    notes = FunctionNotes(
        existed=live is not None,
        traffic=traffic,
        earlier=await _read_earlier(run, live),
        options=await _read_options(run, live, has_alias=traffic is not None),
    )
    await run.ledger.note_before(notes)
    return notes


async def _read_earlier(run: FunctionRun, live: LiveFunction | None) -> Traffic | None:
    """Returns the traffic of the alias of the commit that ran, where this commit has another."""
    if live is None or run.running is None or not run.has_other_alias:
        return None
    traffic = await run.api.get_alias(run.running.alias)
    if traffic is not None:
        run.log.info(
            "the alias %s of the commit that ran stays as it is: %s", run.running.alias, traffic
        )
    return traffic


async def _read_options(
    run: FunctionRun, live: LiveFunction | None, *, has_alias: bool
) -> OptionNotes:
    """Returns the options that the commit names: AWS is asked for no others, which need rights."""
    wanted = run.manifest
    url = await run.api.get_url(run.alias) if has_alias and wanted.url is not None else None
    ready = await run.api.get_provisioned(run.alias) if has_alias and wanted.provisioned else None
    return OptionNotes(
        reserved=live.reserved if live is not None and wanted.reserved is not None else None,
        provisioned=int((ready or {}).get("RequestedProvisionedConcurrentExecutions") or 0),
        url={key: url[key] for key in URL_OPTIONS if key in url} if url is not None else None,
    )


async def _find_published(run: FunctionRun, notes: FunctionNotes, live: LiveFunction | None) -> str:
    if live is None:
        return ""
    return await run.api.find_version(run.marker, but=notes.undone) or ""


async def _publish(run: FunctionRun, code_hash: str) -> str:
    version, description = await run.api.publish(run.marker, code_hash)
    if not version:
        raise StageFailedError("AWS's answer about the new version is not understood")
    if description == run.marker:
        run.log.success("published version %s of %s", version, run.api.name)
    else:
        run.log.info("nothing has changed since version %s: it is used", version)
    return version
