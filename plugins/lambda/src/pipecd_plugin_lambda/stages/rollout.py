# SPDX-License-Identifier: Apache-2.0
"""LAMBDA_SYNC, LAMBDA_CANARY_ROLLOUT and LAMBDA_PROMOTE: publish a version, and shift to it."""

from pipecd_plugin_lambda.config import (
    FunctionPromoteConfig,
    FunctionRolloutConfig,
    FunctionSyncConfig,
)
from pipecd_plugin_lambda.stages.alias import route, set_alias_options
from pipecd_plugin_lambda.stages.build import build_version
from pipecd_plugin_lambda.stages.run import FunctionRun
from pipecd_sdk import StageFailedError


async def sync(run: FunctionRun, _config: FunctionSyncConfig) -> None:
    """Publishes the commit and gives it all the traffic."""
    version = await build_version(run)
    await route(run, version, 100)
    await _bring_alias_options(run)


async def roll_out_canary(run: FunctionRun, _config: FunctionRolloutConfig) -> None:
    """Publishes the commit; the traffic stays as it is."""
    version = await build_version(run)
    run.log.info("version %s gets no traffic of %s yet", version, run.alias)


async def promote(run: FunctionRun, config: FunctionPromoteConfig) -> None:
    """Gives the published version its share of the traffic."""
    notes = await run.ledger.read()
    if notes is None or not notes.version:
        raise StageFailedError(
            "no version was published that could be promoted",
            hint="put LAMBDA_CANARY_ROLLOUT before LAMBDA_PROMOTE",
        )
    await route(run, notes.version, int(config.percent))
    if config.percent == 100:
        await _bring_alias_options(run)


async def _bring_alias_options(run: FunctionRun) -> None:
    """Brings the alias to the commit; what only the commit before has, it has at its own alias."""
    previous = None if run.has_other_alias else run.running
    await set_alias_options(run, run.manifest, previous)
