# SPDX-License-Identifier: Apache-2.0
"""The plugin `cloudrun`: stages, planning, live state, drift, preview, each by its own module."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import ClassVar, Final

from pipecd_google.api import CallPolicy, RepeatedCall
from pipecd_plugin_cloudrun.config import (
    CloudRunOptions,
    CloudRunPromoteConfig,
    CloudRunSyncConfig,
    CloudRunTarget,
)
from pipecd_plugin_cloudrun.details import describe_resource
from pipecd_plugin_cloudrun.drift import detect_drift
from pipecd_plugin_cloudrun.livestate import LiveResources, describe_live, read_live
from pipecd_plugin_cloudrun.manifest import RunManifest, RunManifestError, load_manifest
from pipecd_plugin_cloudrun.planning import decide_strategy, find_versions
from pipecd_plugin_cloudrun.planpreview import preview_change
from pipecd_plugin_cloudrun.provider.clouds import Clouds
from pipecd_plugin_cloudrun.stages.job import deploy_job
from pipecd_plugin_cloudrun.stages.rollback import roll_back
from pipecd_plugin_cloudrun.stages.run import TargetWork
from pipecd_plugin_cloudrun.stages.service import deploy_service
from pipecd_plugin_cloudrun.watching import watch_services
from pipecd_sdk import (
    DeploymentPlugin,
    DeployTarget,
    Details,
    DetailsContext,
    Drift,
    LiveContext,
    LiveSnapshot,
    LiveState,
    LiveWatch,
    PlanContext,
    PlannedStage,
    PlanPreview,
    Preview,
    PreviewContext,
    RequestedStage,
    Resource,
    ResourceDetails,
    Source,
    StageContext,
    StageFailedError,
    StageLog,
    Strategy,
    SyncState,
    SyncStatus,
    TargetConfig,
    TargetError,
    Version,
    WatchContext,
    run_on_targets,
    serve,
    stage,
)

DISPLAY_KEY: Final = "pipecd/stage-display-metadata"
"""Stage metadata that is shown beside a stage."""
PERCENT_KEY: Final = "promote-percentage"


class CloudRunPlugin(DeploymentPlugin, LiveState, LiveWatch, Drift, PlanPreview, ResourceDetails):
    """Deploys services and jobs to Google Cloud Run."""

    target_config: ClassVar[type[TargetConfig]] = CloudRunTarget
    application_config = CloudRunOptions

    def __init__(self, policy: CallPolicy | None = None) -> None:
        self.clouds = Clouds(policy)

    async def versions(self, ctx: PlanContext) -> Sequence[Version]:
        return find_versions(await _load(ctx.source.target))

    async def strategy(self, ctx: PlanContext) -> Strategy:
        running = await _load(ctx.source.running) if ctx.source.running is not None else None
        return decide_strategy(running, await _load(ctx.source.target))

    def plan(
        self, requested: Sequence[RequestedStage], *, rollback: bool
    ) -> Iterable[PlannedStage]:
        shares = {
            each.index: each for each in requested if isinstance(each.config, CloudRunPromoteConfig)
        }
        for planned in super().plan(requested, rollback=rollback):
            found = shares.get(planned.index)
            if found is None or planned.rollback:
                yield planned
            else:
                yield found.to_planned(metadata={DISPLAY_KEY: f"{found.config.percent} %"})

    @stage("CLOUDRUN_SYNC", quick_sync=True, desc="Deploy the commit and give it all traffic")
    async def sync(self, ctx: StageContext, _config: CloudRunSyncConfig) -> None:
        async def work(run: TargetWork) -> None:
            manifest = await run.load(ctx.source.target)
            if manifest.is_job:
                await deploy_job(run, manifest, ctx.source.target.commit_hash)
            else:
                await deploy_service(run, manifest, percent=100)

        await self._run_all(ctx, work)

    @stage("CLOUDRUN_PROMOTE", desc="Give the commit a share of the traffic")
    async def promote(self, ctx: StageContext, config: CloudRunPromoteConfig) -> None:
        await ctx.metadata.put(PERCENT_KEY, str(int(config.percent)))

        async def work(run: TargetWork) -> None:
            manifest = await run.load(ctx.source.target)
            if manifest.is_job:
                raise StageFailedError(
                    f"{manifest.name} is a job, and a job has no traffic",
                    hint="its stage is CLOUDRUN_SYNC",
                )
            await deploy_service(run, manifest, percent=int(config.percent), tag=config.tag)

        await self._run_all(ctx, work)

    @stage("CLOUDRUN_ROLLBACK", rollback=True, desc="Bring traffic and template back")
    async def undo(self, ctx: StageContext) -> None:
        await self._run_all(ctx, roll_back)

    async def live_state(self, ctx: LiveContext, target: DeployTarget) -> LiveSnapshot:
        try:
            manifest = await _load(ctx.source, target)
        except RunManifestError:
            return LiveSnapshot()  # `drift` tells what is wrong with it
        return describe_live(await read_live(self.clouds.get(target), manifest, ctx.application_id))

    async def drift(self, ctx: LiveContext, target: DeployTarget, live: LiveSnapshot) -> SyncState:
        try:
            manifest = await _load(ctx.source, target)
        except RunManifestError as error:
            return SyncState(
                status=SyncStatus.INVALID_CONFIG,
                short_reason=error.reason(),
                reason=error.reason(),
            )
        if not isinstance(live.data, LiveResources):
            raise TargetError("what runs is not known")
        return detect_drift(live.data, manifest)

    async def watch(self, ctx: WatchContext) -> None:
        try:
            async with asyncio.TaskGroup() as tasks:
                for target in ctx.targets:
                    cloud = self.clouds.get(target)
                    tasks.create_task(watch_services(cloud, target.name, ctx.announce))
        finally:
            await self.clouds.close()

    async def plan_preview(self, ctx: PreviewContext, target: DeployTarget) -> Preview:
        running = ctx.source.running
        return preview_change(
            await _load(running, target) if running is not None else None,
            await _load(ctx.source.target, target),
        )

    async def open_resource(
        self, ctx: DetailsContext, target: DeployTarget, resource: Resource
    ) -> Details:
        manifest = await _load(ctx.source, target)
        live = await read_live(self.clouds.get(target), manifest, ctx.application_id)
        return describe_resource(live, resource, manifest)

    async def _run_all(
        self, ctx: StageContext, work: Callable[[TargetWork], Awaitable[None]]
    ) -> None:
        async def run_one(target: DeployTarget, log: StageLog) -> None:
            cloud = self.clouds.get(target).report_to(partial(_report_repeat, log))
            await work(TargetWork(ctx=ctx, target=target, cloud=cloud, log=log))

        await run_on_targets(ctx, run_one)


async def _load(source: Source, target: DeployTarget | None = None) -> RunManifest:
    config = target.config if target is not None else None
    return await asyncio.to_thread(load_manifest, source, config)


def _report_repeat(log: StageLog, call: RepeatedCall) -> None:
    log.info("cannot %s: %s; tried again in %.1f s", call.what, call.reason, call.pause_seconds)


def main() -> None:
    """Runs the executable `pipecd-plugin-cloudrun`."""
    serve(CloudRunPlugin())


if __name__ == "__main__":
    main()
