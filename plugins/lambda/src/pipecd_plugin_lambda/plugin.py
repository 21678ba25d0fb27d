# SPDX-License-Identifier: Apache-2.0
"""The plugin `lambda`: stages, live state, drift, preview, details, each done by its own module."""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import ClassVar, Final, TypeVar

from pipecd_aws import AwsAccounts
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
    DeployTarget,
    Details,
    DetailsContext,
    LiveContext,
    LiveSnapshot,
    Preview,
    RequestedStage,
    Resource,
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
from pipecd_sdk.kit.platforms import ManifestPlugin
from pipecd_sdk.kit.rereads import Conclusions

PERCENT_KEY: Final = "promote-percentage"

C = TypeVar("C", bound=StageConfig)


class Lambda(ManifestPlugin[FunctionManifest]):
    """Deploys functions to AWS Lambda."""

    config: LambdaPluginConfig
    target_config: ClassVar[type[TargetConfig]] = LambdaTarget
    application_config = LambdaOptions

    def __init__(self) -> None:
        self.accounts = AwsAccounts()
        self._observer = observing.FunctionObserver()
        self._states = Conclusions[tuple[str, str], SyncState]()

    def read_manifest(self, source: Source, target: DeployTarget | None) -> FunctionManifest:
        return read_manifest(source)

    def find_versions(
        self, manifest: FunctionManifest, targets: Sequence[DeployTarget]
    ) -> Sequence[Version]:
        return [planning.find_version(manifest, targets[0].config.region if targets else "")]

    def decide_strategy(
        self, running: FunctionManifest | None, target: FunctionManifest
    ) -> Strategy:
        return planning.decide_strategy(running, target)

    def preview_change(self, running: FunctionManifest | None, target: FunctionManifest) -> Preview:
        return planning.preview_change(running, target)

    def describe_stage(self, requested: RequestedStage) -> str:
        if not isinstance(requested.config, FunctionPromoteConfig):
            return ""
        return f"{int(requested.config.percent)}% of the traffic"

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
        notes = [
            await FunctionLedger(ctx.deployment_metadata, each.name).read() for each in ctx.targets
        ]
        if not any(
            each is not None and each.has_begun for each in notes
        ):  # the manifest may be what was wrong: it is not read
            ctx.log.success("the deployment has changed nothing")
            return
        await self._run_all(ctx, roll_back)

    async def live_state(self, ctx: LiveContext, target: DeployTarget) -> LiveSnapshot:
        return observing.list_resources(await self._look(ctx, target))

    async def drift(self, ctx: LiveContext, target: DeployTarget, live: LiveSnapshot) -> SyncState:
        return await self._states.draw(
            (ctx.application_id, target.name),
            (live.data,),
            partial(observing.compare_with_git, live.data, ctx.application_id),
            is_secret=live.data.manifest.hides_values,
        )

    async def open_resource(
        self, ctx: DetailsContext, target: DeployTarget, resource: Resource
    ) -> Details:
        seen = await self._look(ctx, target, is_fresh=True)
        return await details.open_seen(seen, resource, ctx.application_id)

    async def _look(
        self, ctx: LiveContext, target: DeployTarget, *, is_fresh: bool = False
    ) -> observing.SeenFunction:
        manifest = await self.load_deployed(ctx, target)
        account = self.accounts.open(target.config, clock=ctx.clock)
        api = FunctionApi(account=account, name=manifest.name)
        return await self._observer.look(api, manifest, ctx, target.name, is_fresh=is_fresh)

    async def _run(
        self, ctx: StageContext, config: C, work: Callable[[FunctionRun, C], Awaitable[None]]
    ) -> None:
        await self._run_all(ctx, lambda run: work(run, config))

    async def _run_all(
        self, ctx: StageContext, work: Callable[[FunctionRun], Awaitable[None]]
    ) -> None:
        """Does the work on all deploy targets. Raises StageFailedError."""
        manifest = await self.load(ctx.source.target)
        running, unreadable = await self.try_load(ctx.source.running)
        hosts = Hosts(self.config.allowed_hosts, public=True)

        async def run_one(target: DeployTarget, log: StageLog) -> None:
            account = self.accounts.open(target.config, clock=ctx.clock, log=log)
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
                    unreadable=unreadable,
                )
            )

        try:
            await run_on_targets(ctx, run_one)
        finally:
            self._observer.forget(ctx.deployment.application_id)


def main() -> None:
    """Runs the executable `pipecd-plugin-lambda`."""
    serve(Lambda())


if __name__ == "__main__":
    main()
