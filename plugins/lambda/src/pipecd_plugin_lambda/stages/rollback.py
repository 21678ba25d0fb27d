# SPDX-License-Identifier: Apache-2.0
"""LAMBDA_ROLLBACK: bring a deploy target back to where it was before the deployment.

The traffic first: callers of the alias get the version that ran, which nothing has changed. Then
the function itself, so that it is what the earlier commit says.
"""

from dataclasses import replace
from typing import NoReturn

from pipecd_plugin_lambda.manifest import FunctionManifest
from pipecd_plugin_lambda.stages.alias import set_alias_options, set_traffic
from pipecd_plugin_lambda.stages.function import restore_function, set_reserved
from pipecd_plugin_lambda.stages.ledger import FunctionNotes
from pipecd_plugin_lambda.stages.run import FunctionRun
from pipecd_plugin_lambda.traffic import Traffic
from pipecd_sdk import StageFailedError


async def roll_back(run: FunctionRun) -> None:
    """Brings one deploy target back. Raises StageFailedError when that is not wholly done."""
    notes = await run.ledger.read()
    if notes is None or not notes.has_begun:
        run.log.success("the deployment has changed nothing here")
        return
    live = await run.api.get()
    ran = notes.traffic
    if live is not None:
        if run.has_other_alias:
            ran = await _restore_earlier_alias(run, notes)
        is_back = await _restore_traffic(run, notes)
        if run.unreadable:
            await _restore_unread(run, notes, is_alias_back=is_back)
    running = run.running
    if running is None and not run.unreadable:
        raise StageFailedError(
            "there is no earlier deployment to go back to",
            hint="the function keeps code and configuration; deploy a commit that works",
        )
    if running is not None and running.name != run.manifest.name:
        run.log.info(
            "the earlier commit has the function %s, which nothing has touched; %s stays",
            running.name,
            run.manifest.name,
        )
    elif live is None or running is None:
        raise StageFailedError(
            f"the function {run.manifest.name} is gone", hint="deploy the earlier commit to make it"
        )
    else:
        await restore_function(run, running, traffic=ran, options=notes.options, live=live)
        await _restore_options(run, running, notes)
    await run.ledger.note_undone(notes)
    run.log.success("back to where it was before the deployment")


async def _restore_unread(
    run: FunctionRun, notes: FunctionNotes, *, is_alias_back: bool
) -> NoReturn:
    """Gives back what was noted beside the traffic. Raises StageFailedError: it is not all."""
    name = run.manifest.name
    why = f"the manifest of the commit that ran cannot be read: {run.unreadable}"
    if not notes.existed:
        raise StageFailedError(
            f"the function {name} was not there before the deployment, and stays; {why}",
            hint="the deployment has changed no other function",
        )
    await set_reserved(run, None, run.manifest, notes.options)
    if notes.traffic is not None:
        await set_alias_options(run, None, run.manifest, notes.options)
    await run.ledger.note_undone(notes)
    alias = f"the alias {run.alias} is as before the deployment, but"
    if not is_alias_back:
        alias = f"the alias {run.alias}, which was not there before the deployment, is left, and"
    raise StageFailedError(
        f"{alias} $LATEST of {name} keeps what the failed commit has changed of its code,"
        f" configuration and tags: {why}",
        hint="deploy a commit that can be read",
    )


async def _restore_earlier_alias(run: FunctionRun, notes: FunctionNotes) -> Traffic | None:
    """Gives the alias of the commit that ran, which is another one, what it had; returns that."""
    earlier = replace(run, manifest=run.running or run.manifest)
    there = await run.api.get_alias(earlier.alias)
    ran = notes.earlier or there
    if ran is None:
        run.log.info("there was no alias %s before the deployment", earlier.alias)
        return None
    await set_traffic(earlier, ran, before=there)
    return ran


async def _restore_traffic(run: FunctionRun, notes: FunctionNotes) -> bool:
    """Gives the alias what it had before the deployment; one that the deployment made goes.

    Returns whether the alias is as it was.
    """
    traffic = await run.api.get_alias(run.alias)
    if notes.traffic is not None:
        await set_traffic(run, notes.traffic, before=traffic)
        return True
    if traffic is None:
        return True
    if notes.existed and (run.running is not None or run.unreadable):
        return await _remove_alias(run, notes, traffic)
    return False


async def _remove_alias(run: FunctionRun, notes: FunctionNotes, traffic: Traffic) -> bool:
    """Removes an alias that the deployment has made; returns whether it has."""
    if notes.version not in traffic.versions:
        run.log.info(
            "the alias %s is left: it leads to %s, which the deployment has not published",
            run.alias,
            traffic,
        )
        return False
    run.log.info("removing the alias %s, which the deployment has made", run.alias)
    await set_alias_options(run, None, run.manifest)
    await run.api.delete_alias(run.alias)
    return True


async def _restore_options(
    run: FunctionRun, running: FunctionManifest, notes: FunctionNotes
) -> None:
    """Gives URL and concurrency back to the alias that the deployment has changed."""
    if notes.traffic is None:
        return
    if run.has_other_alias:  # no commit has it any more
        await set_alias_options(run, None, run.manifest, notes.options)
        return
    earlier = replace(run, manifest=running)
    await set_alias_options(earlier, running, run.manifest, notes.options)
