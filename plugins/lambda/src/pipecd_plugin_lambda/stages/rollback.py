# SPDX-License-Identifier: Apache-2.0
"""LAMBDA_ROLLBACK: bring a deploy target back to where it was before the deployment.

The traffic first: callers of the alias get the version that ran, which nothing has changed. Then
the function itself, so that it is what the earlier commit says.
"""

from dataclasses import replace

from pipecd_plugin_lambda.stages.alias import set_alias_options, set_traffic
from pipecd_plugin_lambda.stages.function import restore_function
from pipecd_plugin_lambda.stages.ledger import FunctionNotes
from pipecd_plugin_lambda.stages.run import FunctionRun
from pipecd_sdk import StageFailedError


async def roll_back(run: FunctionRun) -> None:
    """Brings one deploy target back. Raises StageFailedError when that is not wholly done."""
    notes = await run.ledger.read()
    if notes is None:
        run.log.success("the deployment has changed nothing here")
        return
    live = await run.api.get()
    if live is not None:
        await _restore_traffic(run, notes)
    running = run.running
    if running is None:
        raise StageFailedError(
            "there is no earlier deployment to go back to",
            hint="the function keeps code and configuration; deploy a commit that works",
        )
    if running.name != run.manifest.name:
        run.log.info(
            "the earlier commit has the function %s, which nothing has touched; %s stays",
            running.name,
            run.manifest.name,
        )
    elif live is None:
        raise StageFailedError(
            f"the function {run.manifest.name} is gone", hint="deploy the earlier commit to make it"
        )
    else:
        await restore_function(run, running, notes=notes, live=live)
        if notes.traffic is not None:
            await set_alias_options(
                replace(run, manifest=running), running, run.manifest, notes.options
            )
    await run.ledger.note_undone(notes)
    run.log.success("back to where it was before the deployment")


async def _restore_traffic(run: FunctionRun, notes: FunctionNotes) -> None:
    traffic = await run.api.get_alias(run.alias)
    if notes.traffic is not None:
        await set_traffic(run, notes.traffic, before=traffic)
    elif traffic is not None and notes.existed and run.running is not None:
        run.log.info("removing the alias %s, which the deployment has made", run.alias)
        await run.api.delete_alias(run.alias)
