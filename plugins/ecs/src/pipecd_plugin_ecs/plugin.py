# SPDX-License-Identifier: Apache-2.0
"""The plugin `ecs`: stages, live state, drift, preview, details, each done by its own module."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, Final

from pipecd_aws import AwsAccounts, AwsTarget
from pipecd_plugin_ecs import details, drift, livestate, planpreview
from pipecd_plugin_ecs.config import (
    EcsCanaryConfig,
    EcsCleanConfig,
    EcsOptions,
    EcsPrimaryConfig,
    EcsSyncConfig,
    EcsTrafficConfig,
    read_shares,
)
from pipecd_plugin_ecs.definition import Definitions, list_images, read_definitions
from pipecd_plugin_ecs.livestate import Seen
from pipecd_plugin_ecs.observing import EcsObserver
from pipecd_plugin_ecs.provider.ecs import EcsClient
from pipecd_plugin_ecs.stages.rollback import roll_back
from pipecd_plugin_ecs.stages.rollout import clean_canary, roll_out_canary, roll_out_primary
from pipecd_plugin_ecs.stages.run import ServiceRun
from pipecd_plugin_ecs.stages.sync import sync
from pipecd_plugin_ecs.stages.traffic import route_traffic
from pipecd_plugin_ecs.strategy import decide_strategy
from pipecd_sdk import (
    Clock,
    DeployTarget,
    Details,
    DetailsContext,
    InvalidFileError,
    LiveContext,
    LiveSnapshot,
    Preview,
    RequestedStage,
    Resource,
    Source,
    StageContext,
    StageLog,
    Strategy,
    SyncState,
    SyncStatus,
    TargetConfig,
    Version,
    run_on_targets,
    serve,
    stage,
)
from pipecd_sdk.kit.platforms import ManifestPlugin
from pipecd_sdk.kit.rereads import Conclusions, make_room

MOST_KNOWN: Final = 256
"""Revisions of task definitions that are remembered; they never change."""


class Ecs(ManifestPlugin[Definitions]):
    """Deploys services and tasks to Amazon ECS."""

    target_config: ClassVar[type[TargetConfig]] = AwsTarget
    application_config = EcsOptions

    def __init__(self) -> None:
        self.accounts = AwsAccounts()
        self._observer = EcsObserver()
        self._revisions: dict[str, Mapping[str, Any]] = {}
        self._states = Conclusions[tuple[str, str], SyncState]()

    def read_manifest(self, source: Source, target: DeployTarget | None) -> Definitions:
        return read_definitions(source)

    def find_versions(
        self, manifest: Definitions, targets: Sequence[DeployTarget]
    ) -> Sequence[Version]:
        return [
            Version(name=name, version=version, url=text)
            for name, version, text in list_images(manifest.task)
        ]

    def decide_strategy(self, running: Definitions | None, target: Definitions) -> Strategy:
        return decide_strategy(running, target)

    def preview_change(self, running: Definitions | None, target: Definitions) -> Preview:
        return planpreview.preview(running, target)

    def describe_stage(self, requested: RequestedStage) -> str:
        if not isinstance(requested.config, EcsTrafficConfig):
            return ""
        return "Primary: {}%, Canary: {}%".format(*read_shares(requested.config))

    @stage("ECS_SYNC", quick_sync=True, desc="Bring the service to the commit")
    async def sync(self, ctx: StageContext, config: EcsSyncConfig) -> None:
        recreate = config.recreate
        if ctx.quick_sync:
            recreate = ctx.source.target.options.quick_sync.recreate
        await self._run(ctx, partial(sync, recreate=recreate))

    @stage("ECS_PRIMARY_ROLLOUT", desc="Bring the primary to the commit")
    async def roll_out_primary(self, ctx: StageContext, _config: EcsPrimaryConfig) -> None:
        await self._run(ctx, roll_out_primary)

    @stage("ECS_CANARY_ROLLOUT", desc="Add the canary: some of the new beside the primary")
    async def roll_out_canary(self, ctx: StageContext, config: EcsCanaryConfig) -> None:
        await self._run(ctx, lambda run: roll_out_canary(run, float(config.scale)))

    @stage("ECS_CANARY_CLEAN", desc="Remove the canary")
    async def clean_canary(self, ctx: StageContext, _config: EcsCleanConfig) -> None:
        await self._run(ctx, clean_canary)

    @stage("ECS_TRAFFIC_ROUTING", desc="Split the traffic between primary and canary")
    async def route_traffic(self, ctx: StageContext, config: EcsTrafficConfig) -> None:
        await self._run(ctx, lambda run: route_traffic(run, read_shares(config)))

    @stage("ECS_ROLLBACK", rollback=True, desc="Bring the service back")
    async def roll_back(self, ctx: StageContext) -> None:
        failed, _ = await self.try_load(ctx.source.target)
        running, unreadable = await self.try_load(ctx.source.running)
        if unreadable and failed is None:
            raise InvalidFileError(unreadable)
        definitions = running or failed or await self.load(ctx.source.target)
        await self._run_with(
            ctx,
            definitions,
            failed if running is not None else None,
            lambda run: roll_back(run, running, unreadable=unreadable),
        )

    async def live_state(self, ctx: LiveContext, target: DeployTarget) -> LiveSnapshot:
        definitions = await self.load_deployed(ctx, target)
        seen = await self._look(ctx, target, definitions)
        return LiveSnapshot(resources=list(livestate.list_resources(seen)), data=seen)

    async def drift(self, ctx: LiveContext, target: DeployTarget, live: LiveSnapshot) -> SyncState:
        definitions = await self.load_deployed(ctx, target)

        async def compare() -> SyncState:
            return (await self._compare(ctx, target, definitions, live.data))[0]

        return await self._states.draw(
            (ctx.application_id, target.name),
            (definitions, live.data),
            compare,
            is_secret=definitions.hides_values,
        )

    async def open_resource(
        self, ctx: DetailsContext, target: DeployTarget, resource: Resource
    ) -> Details:
        definitions = await self.load(ctx.source)
        seen = await self._look(ctx, target, definitions, is_fresh=True)
        _, difference = await self._compare(ctx, target, definitions, seen)
        return details.describe(
            resource, seen, difference=difference, hides=definitions.hides_values
        )

    async def _run(self, ctx: StageContext, work: Callable[[ServiceRun], Awaitable[None]]) -> None:
        definitions = await self.load(ctx.source.target)
        replaced, _ = await self.try_load(ctx.source.running)
        await self._run_with(ctx, definitions, replaced, work)

    async def _run_with(
        self,
        ctx: StageContext,
        definitions: Definitions,
        replaced: Definitions | None,
        work: Callable[[ServiceRun], Awaitable[None]],
    ) -> None:
        async def run_one(target: DeployTarget, log: StageLog) -> None:
            client = self._open(target, definitions, ctx.clock, log)
            await work(
                ServiceRun(
                    ctx=ctx,
                    target=target,
                    log=log,
                    client=client,
                    definitions=definitions,
                    replaced=replaced,
                )
            )

        try:
            await run_on_targets(ctx, run_one)
        finally:
            self._observer.forget(ctx.deployment.application_id, definitions.service_name)

    def _open(
        self,
        target: DeployTarget,
        definitions: Definitions,
        clock: Clock,
        log: StageLog | None = None,
    ) -> EcsClient:
        account = self.accounts.open(target.config, clock=clock, log=log)
        return EcsClient(account=account, cluster=definitions.cluster)

    async def _look(
        self,
        ctx: LiveContext,
        target: DeployTarget,
        definitions: Definitions,
        *,
        is_fresh: bool = False,
    ) -> Seen:
        client = self._open(target, definitions, ctx.clock)
        return await self._observer.look(
            client, definitions, ctx.application_id, target.name, is_fresh=is_fresh
        )

    async def _compare(
        self, ctx: LiveContext, target: DeployTarget, definitions: Definitions, seen: Seen
    ) -> tuple[SyncState, str | None]:
        """Returns the state, and the difference as a diff; None where nothing can be compared."""
        if definitions.service is None:
            reason = "a task without a service is not compared with git"
            return SyncState(status=SyncStatus.UNKNOWN, short_reason=reason, reason=reason), None
        if seen.service is None:
            return drift.describe_missing(
                f"the service {definitions.service_name} is not there"
            ), None
        if not seen.task_definition:
            return drift.describe_missing("the service has no primary task set"), None
        client = self._open(target, definitions, ctx.clock)
        told = await client.account.read_output_shape("ecs", "DescribeServices")
        nodes = drift.compare(
            service=seen.service,
            primary=seen.primary,
            live_task=await self._read_revision(client, seen.task_definition),
            wanted_service=(await client.fit("CreateService", definitions.service))[0],
            wanted_task=(await client.fit("RegisterTaskDefinition", definitions.task))[0],
            comparable=set(told.members["services"].member.members),
        )
        return drift.describe(
            nodes,
            ignored=definitions.options.ignore_drift,
            hides_values=definitions.hides_values,
        )

    async def _read_revision(self, client: EcsClient, arn: str) -> Mapping[str, Any]:
        found = self._revisions.get(arn)
        if found is None:
            found = await client.describe_task_definition(arn)
            make_room(self._revisions, MOST_KNOWN)
            self._revisions[arn] = found
        return found


def main() -> None:
    """Runs the executable `pipecd-plugin-ecs`."""
    serve(Ecs())


if __name__ == "__main__":
    main()
