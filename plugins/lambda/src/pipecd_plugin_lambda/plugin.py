# SPDX-License-Identifier: Apache-2.0
"""The plugin `lambda`: stages, live state, drift, preview, details, each done by its own module."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import ClassVar, Final, TypeVar

from pipecd_aws import AwsAccounts, AwsRetry
from pipecd_plugin_lambda import details, observing, planning
from pipecd_plugin_lambda.config import (
    FunctionPromoteConfig,
    FunctionRolloutConfig,
    FunctionSyncConfig,
    LambdaOptions,
    LambdaPluginConfig,
    LambdaTarget,
)
from pipecd_plugin_lambda.manifest import FunctionManifest, read_manifest
from pipecd_plugin_lambda.provider.functions import FunctionApi
from pipecd_plugin_lambda.stages.ledger import FunctionLedger
from pipecd_plugin_lambda.stages.rollback import roll_back
from pipecd_plugin_lambda.stages.rollout import promote, roll_out_canary, sync
from pipecd_plugin_lambda.stages.run import FunctionRun
from pipecd_sdk import (
    DeploymentPlugin,
    DeployTarget,
    Details,
    DetailsContext,
    Drift,
    LiveContext,
    LiveSnapshot,
    LiveState,
    PlanContext,
    PlannedStage,
    PlanPreview,
    Preview,
    PreviewContext,
    RequestedStage,
    Resource,
    ResourceDetails,
    Source,
    StageConfig,
    StageContext,
    StageLog,
    Strategy,
    SyncState,
    TargetConfig,
    Version,
    run_on_targets,
    serve,
    stage,
)
from pipecd_sdk.kit.hosts import Hosts

DISPLAY_KEY: Final = "pipecd/stage-display-metadata"
"""Stage metadata that is shown beside a stage."""
PERCENT_KEY: Final = "promote-percentage"

C = TypeVar("C", bound=StageConfig)


class Lambda(DeploymentPlugin, LiveState, Drift, PlanPreview, ResourceDetails):
    """Deploys functions to AWS Lambda."""

    config: LambdaPluginConfig
    target_config: ClassVar[type[TargetConfig]] = LambdaTarget
    application_config = LambdaOptions

    def __init__(self) -> None:
        self.accounts = AwsAccounts()

    async def versions(self, ctx: PlanContext) -> Sequence[Version]:
        manifest = await _read(ctx.source.target)
        region = ctx.targets[0].config.region if ctx.targets else ""
        return [planning.find_version(manifest, region)]

    async def strategy(self, ctx: PlanContext) -> Strategy:
        running = ctx.source.running
        return planning.decide_strategy(
            await _read(running) if running is not None else None, await _read(ctx.source.target)
        )

    def plan(
        self, requested: Sequence[RequestedStage], *, rollback: bool
    ) -> Iterable[PlannedStage]:
        shown = {
            stage.index: stage
            for stage in requested
            if isinstance(stage.config, FunctionPromoteConfig)
        }
        for planned in super().plan(requested, rollback=rollback):
            asked = shown.get(planned.index)
            if asked is None or planned.rollback:
                yield planned
            else:
                text = f"{int(asked.config.percent)}% of the traffic"
                yield asked.to_planned(metadata={DISPLAY_KEY: text})

    @stage("LAMBDA_SYNC", quick_sync=True, desc="Publish a version and give it all the traffic")
    async def sync(self, ctx: StageContext, config: FunctionSyncConfig) -> None:
        await self._run(ctx, config, sync)

    @stage("LAMBDA_CANARY_ROLLOUT", desc="Publish a version without traffic")
    async def roll_out_canary(self, ctx: StageContext, config: FunctionRolloutConfig) -> None:
        await self._run(ctx, config, roll_out_canary)

    @stage("LAMBDA_PROMOTE", desc="Give the published version its share of the traffic")
    async def promote(self, ctx: StageContext, config: FunctionPromoteConfig) -> None:
        await ctx.metadata.put(PERCENT_KEY, str(int(config.percent)))
        await self._run(ctx, config, promote)

    @stage("LAMBDA_ROLLBACK", rollback=True, desc="Bring function and traffic back")
    async def undo(self, ctx: StageContext) -> None:
        noted = [
            await FunctionLedger(ctx.deployment_metadata, each.name).read() is not None
            for each in ctx.targets
        ]
        if not any(noted):  # the manifest may be what was wrong: it is not read
            ctx.log.success("the deployment has changed nothing")
            return
        await self._run_all(ctx, roll_back)

    async def live_state(self, ctx: LiveContext, target: DeployTarget) -> LiveSnapshot:
        return observing.list_resources(await self._look(ctx, target))

    async def drift(self, ctx: LiveContext, target: DeployTarget, live: LiveSnapshot) -> SyncState:
        return await observing.compare_with_git(live.data, ctx.application_id)

    async def open_resource(
        self, ctx: DetailsContext, target: DeployTarget, resource: Resource
    ) -> Details:
        seen = await self._look(ctx, target)
        return await details.open_seen(seen, resource, ctx.application_id)

    async def plan_preview(self, ctx: PreviewContext, target: DeployTarget) -> Preview:
        running = ctx.source.running
        return planning.preview_change(
            await _read(running) if running is not None else None, await _read(ctx.source.target)
        )

    async def _look(self, ctx: LiveContext, target: DeployTarget) -> observing.SeenFunction:
        manifest = await _read(ctx.source)
        account = self.accounts.get(target.config)
        return await observing.look(FunctionApi(account=account, name=manifest.name), manifest)

    async def _run(
        self, ctx: StageContext, config: C, work: Callable[[FunctionRun, C], Awaitable[None]]
    ) -> None:
        await self._run_all(ctx, lambda run: work(run, config))

    async def _run_all(
        self, ctx: StageContext, work: Callable[[FunctionRun], Awaitable[None]]
    ) -> None:
        """Does the work on all deploy targets. Raises StageFailedError."""
        manifest = await _read(ctx.source.target)
        source = ctx.source.running
        running = await _read(source) if source is not None else None
        hosts = Hosts(self.config.allowed_hosts, public=True)

        async def run_one(target: DeployTarget, log: StageLog) -> None:
            account = self.accounts.get(target.config).report_to(
                clock=ctx.clock, on_retry=partial(_report_retry, log)
            )
            await work(
                FunctionRun(
                    ctx=ctx,
                    target=target,
                    log=log,
                    api=FunctionApi(account=account, name=manifest.name),
                    hosts=hosts,
                    ledger=FunctionLedger(ctx.deployment_metadata, target.name),
                    manifest=manifest,
                    running=running,
                )
            )

        await run_on_targets(ctx, run_one)


async def _read(source: Source) -> FunctionManifest:
    return await asyncio.to_thread(read_manifest, source)


def _report_retry(log: StageLog, retry: AwsRetry) -> None:
    log.info("%s: %s; tried again in %.1f seconds", retry.what, retry.reason, retry.pause_seconds)


def main() -> None:
    """Runs the executable `pipecd-plugin-lambda`."""
    serve(Lambda())


if __name__ == "__main__":
    main()
