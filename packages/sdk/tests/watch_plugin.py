# SPDX-License-Identifier: Apache-2.0
"""A plugin for the SDK's own tests, run as a program: it has every interface there is."""

import asyncio
from collections.abc import Sequence

from pipecd_sdk import (
    ApplicationConfig,
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
    LiveWatch,
    PlanContext,
    PlanPreview,
    Preview,
    PreviewContext,
    Resource,
    ResourceDetails,
    ResourceEvent,
    ResourceGoneError,
    StageContext,
    StageLog,
    SyncState,
    SyncStatus,
    TargetConfig,
    TargetError,
    Tool,
    Version,
    WatchContext,
    run_on_targets,
    serve,
    stage,
)


class WatchTarget(TargetConfig):
    health: str = "HEALTHY"
    sync: str = "SYNCED"
    trouble: str = ""
    resources: int = 1
    announced: tuple[str, ...] = ()
    watch_failures: int = 0


class WatchOptions(ApplicationConfig):
    wanted: int = 1
    size: int = 0


class Watch(DeploymentPlugin, LiveState, LiveWatch, Drift, PlanPreview, ResourceDetails):
    target_config = WatchTarget
    application_config = WatchOptions
    failures = 0

    async def watch(self, ctx: WatchContext) -> None:
        if self.failures < sum(target.config.watch_failures for target in ctx.targets):
            self.failures += 1
            raise ZeroDivisionError
        for target in ctx.targets:
            for application_id in target.config.announced:
                ctx.announce(application_id)
        await asyncio.Event().wait()

    @stage("WATCH_SYNC", quick_sync=True)
    async def sync(self, ctx: StageContext) -> None:
        ctx.log.info("wanted: %d", ctx.source.target.options.wanted)
        ctx.log.info("before: %s", await ctx.shared.get("seen"))
        await ctx.shared.put("seen", b"\x00\xff")
        ctx.log.info("after: %s", await ctx.shared.get("seen"))
        ctx.log.info("notification: %s", await ctx.deployment_shared("DeploymentNotification"))

        async def one(target: DeployTarget, log: StageLog) -> None:
            log.info("at work")
            if target.config.trouble:
                raise TargetError(target.config.trouble)

        await run_on_targets(ctx, one)

    @stage("WATCH_TOOL")
    async def tool(self, ctx: StageContext) -> None:
        script = "printf '#!/bin/sh\\necho %s' {{ .Version }} > {{ .OutPath }}"
        ctx.log.info(
            "%s", await ctx.tools.install(Tool(name="greet", version="1.2", script=script))
        )

    async def versions(self, ctx: PlanContext) -> Sequence[Version]:
        return [Version(name="wanted", version=str(ctx.source.target.options.wanted))]

    async def live_state(self, ctx: LiveContext, target: DeployTarget) -> LiveSnapshot:
        if target.config.trouble == "bug":
            raise ZeroDivisionError
        if target.config.trouble:
            raise TargetError(target.config.trouble, hint="look there")
        return LiveSnapshot(
            resources=[
                Resource(
                    id=f"{target.name}/{number}",
                    name=f"thing \udcff{number}",
                    kind="Thing",
                    parents=["root"],
                    health=Health[target.config.health],
                    description="as told",
                    metadata={"number": str(number), "filler": "x" * ctx.source.options.size},
                )
                for number in range(target.config.resources)
            ],
            data=target.config.resources,
        )

    async def drift(self, ctx: LiveContext, target: DeployTarget, live: LiveSnapshot) -> SyncState:
        return SyncState(
            status=SyncStatus[target.config.sync],
            short_reason=f"{live.data} of {ctx.source.options.wanted}",
            reason=f"there are {live.data}",
        )

    async def open_resource(
        self, ctx: DetailsContext, target: DeployTarget, resource: Resource
    ) -> Details:
        if target.config.trouble:
            raise TargetError(target.config.trouble, hint="look there")
        if not resource.id.startswith(target.name):
            raise ResourceGoneError("there is no such thing", hint="look again")
        size = ctx.source.options.size
        lines = [f"line \udcff{number}\n" for number in range(size)][-ctx.log_lines :]
        return Details(
            manifest=f"{resource.kind} {resource.metadata['number']}: {resource.health.name}\n"
            + "x" * 1000 * size,
            language="text",
            events=[
                ResourceEvent(at=resource.created_at, kind="Normal", reason="Made", message="m"),
                *(ResourceEvent(message="again", count=2**40) for _ in range(size)),
            ],
            difference=None if ctx.source.options.wanted > 1 else "-a\n" + "+b\n" * 300 * size,
            logs=[
                ContainerLog(container=ctx.container or "main", text="".join(lines)),
                ContainerLog(container="main", text="before\n" * 100 * size, previous=True),
            ],
            notes=["not all is known"],
        )

    async def plan_preview(self, ctx: PreviewContext, target: DeployTarget) -> Preview:
        if target.config.trouble:
            raise TargetError(target.config.trouble)
        wanted = ctx.source.target.options.wanted
        return Preview(
            summary=f"{wanted} wanted",
            no_change=wanted == target.config.resources,
            details="+ a line\n" * ctx.source.target.options.size,
        )


if __name__ == "__main__":
    serve(Watch(), version="1.0.0")
