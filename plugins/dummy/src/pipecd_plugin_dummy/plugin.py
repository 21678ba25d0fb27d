# SPDX-License-Identifier: Apache-2.0
"""A platform that does nothing, on command: it sleeps, fails, crashes, hangs, floods and babbles.

For tests of everything around a platform plugin. Its rollback stage gets the options of the stage
whose place it has, as every rollback stage does; what the rollback itself should do is in their
`rollback`. It also writes down its calls.
"""

import asyncio
import os
from collections.abc import Sequence
from typing import ClassVar

from pipecd_plugin_dummy import misbehave
from pipecd_plugin_dummy.config import Behaviour, DummyConfig, DummyOptions
from pipecd_sdk import (
    ContainerLog,
    DeploymentPlugin,
    DeployTarget,
    Details,
    DetailsContext,
    Drift,
    Health,
    LiveContext,
    LiveSnapshot,
    LiveState,
    PlanContext,
    PlanPreview,
    Preview,
    PreviewContext,
    Resource,
    ResourceDetails,
    ResourceEvent,
    ResourceGoneError,
    StageContext,
    StageFailedError,
    Strategy,
    SyncState,
    SyncStatus,
    SyncStrategy,
    TargetError,
    Version,
    serve,
    stage,
)


class Dummy(DeploymentPlugin, LiveState, Drift, PlanPreview, ResourceDetails):
    """Needs nothing, changes nothing."""

    needs_targets: ClassVar[bool] = False
    application_config = DummyOptions
    largest_message = 2**31 - 1  # so that what others refuse can be tried

    async def versions(self, ctx: PlanContext) -> Sequence[Version]:
        planning = ctx.source.target.options.planning
        await asyncio.sleep(planning.sleep.total_seconds())
        if planning.fail:
            raise StageFailedError(planning.fail)
        return [Version(name="dummy", version=ctx.deployment.commit.hash[:7])]

    async def strategy(self, ctx: PlanContext) -> Strategy:
        wanted = ctx.source.target.options.planning.strategy
        return Strategy(sync=SyncStrategy[wanted], summary="as told") if wanted else Strategy()

    @stage("DUMMY_SYNC", quick_sync=True, desc="Do nothing at once", needs_files=False)
    async def sync(self, ctx: StageContext, config: DummyConfig) -> None:
        await _behave(ctx, config.record, config)

    @stage("DUMMY_CANARY_ROLLOUT", needs_files=False)
    async def roll_out_canary(self, ctx: StageContext, config: DummyConfig) -> None:
        await _behave(ctx, config.record, config)

    @stage("DUMMY_PRIMARY_ROLLOUT", needs_files=False)
    async def roll_out_primary(self, ctx: StageContext, config: DummyConfig) -> None:
        await _behave(ctx, config.record, config)

    @stage("DUMMY_CANARY_CLEAN", needs_files=False)
    async def clean_canary(self, ctx: StageContext, config: DummyConfig) -> None:
        await _behave(ctx, config.record, config)

    @stage("DUMMY_ROLLBACK", rollback=True, desc="Undo nothing", needs_files=False)
    async def roll_back(self, ctx: StageContext, config: DummyConfig) -> None:
        await _behave(ctx, config.record, config.rollback)

    async def live_state(self, ctx: LiveContext, target: DeployTarget) -> LiveSnapshot:
        live = ctx.source.options.live
        await ctx.clock.sleep(live.sleep)
        if live.fail:
            raise TargetError(live.fail)
        return LiveSnapshot(
            resources=[
                Resource(
                    id=f"{target.name}/nothing-{number}",
                    name=f"nothing-{number}",
                    kind="Nothing",
                    health=Health[live.health],
                    metadata={"commit": ctx.source.commit_hash},
                )
                for number in range(live.resources)
            ]
        )

    async def drift(self, ctx: LiveContext, target: DeployTarget, live: LiveSnapshot) -> SyncState:
        told = ctx.source.options.live
        return SyncState(
            status=SyncStatus[told.sync],
            short_reason=told.reason.partition("\n")[0],
            reason=told.reason,
        )

    async def open_resource(
        self, ctx: DetailsContext, target: DeployTarget, resource: Resource
    ) -> Details:
        told = ctx.source.options.details
        await ctx.clock.sleep(told.sleep)
        there = [f"{target.name}/nothing-{n}" for n in range(ctx.source.options.live.resources)]
        if told.gone or resource.id not in there:
            raise ResourceGoneError(f"{resource.name} is gone, as told")
        if told.fail:
            raise TargetError(told.fail)
        lines = told.log.splitlines(keepends=True)[-max(1, ctx.log_lines) :]
        wanted = [each for each in told.containers if ctx.container in ("", each)]
        return Details(
            manifest=told.manifest,
            difference=told.difference,
            events=[ResourceEvent(message=each, kind="Normal") for each in told.events],
            logs=[
                ContainerLog(container=each, text="".join(lines), previous=previous)
                for each in wanted
                for previous in (False, True)
            ],
        )

    async def plan_preview(self, ctx: PreviewContext, target: DeployTarget) -> Preview:
        preview = ctx.source.target.options.preview
        await ctx.clock.sleep(preview.sleep)
        if preview.fail:
            raise TargetError(preview.fail)
        return Preview(
            summary=preview.summary, no_change=preview.no_change, details=preview.details
        )


async def _behave(ctx: StageContext, record: str, behaviour: Behaviour) -> None:
    if record:
        _add_line(record, f"{ctx.stage.name} {ctx.deployment.commit.hash}\n")
    for line in behaviour.log:
        ctx.log.info("%s", line)
    await misbehave.flood(behaviour.flood, ctx.log)
    try:
        await ctx.clock.sleep(behaviour.sleep)
    except asyncio.CancelledError:
        ctx.log.info("Cancelled; going on for %s", behaviour.ignore_cancel)
        await ctx.clock.sleep(behaviour.ignore_cancel)
        raise
    misbehave.hang(behaviour.hang.total_seconds())
    if behaviour.garbage:
        misbehave.send_garbage(behaviour.garbage)
    await misbehave.end_process(behaviour, ctx.metadata)
    if behaviour.flood.answer:
        raise StageFailedError("x" * behaviour.flood.answer)
    if behaviour.fail:
        raise StageFailedError(behaviour.fail)
    ctx.log.success("Nothing was done, as told")


def _add_line(file: str, line: str) -> None:
    """Add a line in one write: several stages, even of several processes, may share the file."""
    number = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(number, line.encode())
    finally:
        os.close(number)


def main() -> None:
    """Runs the executable `pipecd-plugin-dummy`."""
    serve(Dummy())


if __name__ == "__main__":
    main()
