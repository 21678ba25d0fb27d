# SPDX-License-Identifier: Apache-2.0
"""The plugin `cloudrun`: stages, planning, live state, drift, preview, each by its own module."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
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
from pipecd_plugin_cloudrun.livestate import LiveResources, describe_live
from pipecd_plugin_cloudrun.manifest import RunManifest, load_manifest
from pipecd_plugin_cloudrun.observing import RunObserver
from pipecd_plugin_cloudrun.planning import decide_strategy, find_versions
from pipecd_plugin_cloudrun.planpreview import preview_change
from pipecd_plugin_cloudrun.provider.clouds import Clouds
from pipecd_plugin_cloudrun.stages.job import deploy_job
from pipecd_plugin_cloudrun.stages.rollback import roll_back
from pipecd_plugin_cloudrun.stages.run import TargetWork
from pipecd_plugin_cloudrun.stages.service import deploy_service
from pipecd_plugin_cloudrun.watching import watch_services
from pipecd_sdk import (
    DeployTarget,
    Details,
    DetailsContext,
    LiveContext,
    LiveSnapshot,
    LiveWatch,
    Preview,
    RequestedStage,
    Resource,
    Source,
    StageContext,
    StageFailedError,
    StageLog,
    Strategy,
    SyncState,
    TargetConfig,
    TargetError,
    Version,
    WatchContext,
    run_on_targets,
    serve,
    stage,
)
from pipecd_sdk.kit.platforms import ManifestPlugin

PERCENT_KEY: Final = "promote-percentage"


class CloudRunPlugin(ManifestPlugin[RunManifest], LiveWatch):
    """Deploys services and jobs to Google Cloud Run."""

    target_config: ClassVar[type[TargetConfig]] = CloudRunTarget
    application_config = CloudRunOptions

    def __init__(self, policy: CallPolicy | None = None) -> None:
        self.clouds = Clouds(policy)
        self.observer = RunObserver()

    def read_manifest(self, source: Source, target: DeployTarget | None) -> RunManifest:
        return load_manifest(source, target.config if target is not None else None)

    def find_versions(
        self, manifest: RunManifest, targets: Sequence[DeployTarget]
    ) -> Sequence[Version]:
        return find_versions(manifest)

    def decide_strategy(self, running: RunManifest | None, target: RunManifest) -> Strategy:
        return decide_strategy(running, target)

    def preview_change(self, running: RunManifest | None, target: RunManifest) -> Preview:
        return preview_change(running, target)

    def describe_stage(self, requested: RequestedStage) -> str:
        if not isinstance(requested.config, CloudRunPromoteConfig):
            return ""
        return f"{requested.config.percent} %"

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
        manifest = await self.load_deployed(ctx, target)
        cloud = self.clouds.get(target)
        return describe_live(await self.observer.look(cloud, manifest, ctx, target.name))

    async def drift(self, ctx: LiveContext, target: DeployTarget, live: LiveSnapshot) -> SyncState:
        manifest = await self.load_deployed(ctx, target)
        if not isinstance(live.data, LiveResources):
            raise TargetError("what runs is not known")
        return detect_drift(live.data, manifest)

    async def watch(self, ctx: WatchContext) -> None:
        try:
            async with asyncio.TaskGroup() as tasks:
                for target in ctx.targets:
                    tasks.create_task(self._watch_target(target, ctx.announce))
        finally:
            await self.clouds.close()

    async def _watch_target(self, target: DeployTarget, announce: Callable[[str], None]) -> None:
        listed = self.observer.get_listed(target.name)
        await listed.wait_wanted()
        await watch_services(self.clouds.get(target), target.name, announce, note=listed.note)

    async def open_resource(
        self, ctx: DetailsContext, target: DeployTarget, resource: Resource
    ) -> Details:
        manifest = await self.load(ctx.source, target)
        cloud = self.clouds.get(target)
        live = await self.observer.look(cloud, manifest, ctx, target.name, is_fresh=True)
        return describe_resource(live, resource, manifest)

    async def _run_all(
        self, ctx: StageContext, work: Callable[[TargetWork], Awaitable[None]]
    ) -> None:
        async def run_one(target: DeployTarget, log: StageLog) -> None:
            cloud = self.clouds.get(target).report_to(partial(_report_repeat, log))
            await work(TargetWork(ctx=ctx, target=target, cloud=cloud, log=log))

        try:
            await run_on_targets(ctx, run_one)
        finally:
            self.observer.forget(ctx.deployment.application_id)


def _report_repeat(log: StageLog, call: RepeatedCall) -> None:
    log.info("cannot %s: %s; tried again in %.1f s", call.what, call.reason, call.pause_seconds)


def main() -> None:
    """Runs the executable `pipecd-plugin-cloudrun`."""
    serve(CloudRunPlugin())


if __name__ == "__main__":
    main()
