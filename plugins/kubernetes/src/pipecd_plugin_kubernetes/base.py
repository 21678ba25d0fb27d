# SPDX-License-Identifier: Apache-2.0
"""What both plugins do: a single cluster is the case of one deploy target.

The plugins themselves only name the stages; each stage is a function over one deploy target.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import Any, ClassVar, TypeVar

from pipecd_plugin_kubernetes.client import RetryNotice
from pipecd_plugin_kubernetes.clusters import Clusters
from pipecd_plugin_kubernetes.config import (
    KubernetesOptions,
    KubernetesPluginConfig,
    KubernetesTarget,
)
from pipecd_plugin_kubernetes.images import find_versions
from pipecd_plugin_kubernetes.manifest import Manifest, ResourceKey
from pipecd_plugin_kubernetes.observing import Observing
from pipecd_plugin_kubernetes.renderer import Renderer, load_for
from pipecd_plugin_kubernetes.stage_config import SyncConfig, TargetChoice, TrafficConfig
from pipecd_plugin_kubernetes.stages.rollback import roll_back
from pipecd_plugin_kubernetes.stages.run import TargetRun
from pipecd_plugin_kubernetes.stages.traffic.shares import shares_of
from pipecd_plugin_kubernetes.strategy import decide_strategy
from pipecd_plugin_kubernetes.targets import (
    ChosenTarget,
    choose_targets,
    find_unknown,
    resolve_targets,
)
from pipecd_sdk import (
    DeploymentPlugin,
    DeployTarget,
    PlanContext,
    RequestedStage,
    Source,
    StageContext,
    StageFailedError,
    StageLog,
    Strategy,
    SyncStrategy,
    TargetConfig,
    Version,
    run_on_targets,
)

C = TypeVar("C", bound=TargetChoice)


class KubernetesBase(DeploymentPlugin, Observing):
    """Versions, strategy, planning, and the way from a stage to its deploy targets."""

    config: KubernetesPluginConfig
    target_config: ClassVar[type[TargetConfig]] = KubernetesTarget
    application_config = KubernetesOptions

    def __init__(self) -> None:
        self.clusters = Clusters()
        self.start_observing()

    async def versions(self, ctx: PlanContext) -> Sequence[Version]:
        renderer = Renderer(
            self.config, ctx.tools, application_name=ctx.deployment.application_name
        )
        found: dict[ResourceKey, Manifest] = {}
        for chosen in resolve_targets(ctx.source.target.options, ctx.targets):
            for manifest in await renderer.load(ctx.source.target, chosen.options):
                found.setdefault(manifest.key.normalize(), manifest)
        return find_versions(found.values())

    async def strategy(self, ctx: PlanContext) -> Strategy:
        running = ctx.source.running
        if running is None:
            return Strategy(
                sync=SyncStrategy.QUICK_SYNC, summary="Quick sync, it is the first deployment"
            )
        renderer = Renderer(
            self.config, ctx.tools, application_name=ctx.deployment.application_name
        )
        before = _index_options(resolve_targets(running.options, ctx.targets))
        decided = []
        for chosen in resolve_targets(ctx.source.target.options, ctx.targets):
            options = before.get(chosen.target.name)
            decided.append(
                decide_strategy(
                    await renderer.load(running, options) if options is not None else [],
                    await renderer.load(ctx.source.target, chosen.options),
                    running_workloads=options.workloads if options is not None else (),
                    target_workloads=chosen.options.workloads,
                )
            )
        return _merge(decided)

    def describe_stage(self, requested: RequestedStage) -> str:
        is_traffic = isinstance(requested.config, TrafficConfig)
        return _describe_traffic(requested.config) if is_traffic else ""

    async def run_sync(
        self,
        ctx: StageContext,
        config: SyncConfig,
        work: Callable[[TargetRun, SyncConfig], Awaitable[None]],
    ) -> None:
        """Runs a sync; one without a pipeline has the options of the application."""
        if ctx.quick_sync:
            given = ctx.source.target.options.quick_sync
            config = SyncConfig(
                add_variant_label_to_selector=given.add_variant_label_to_selector,
                prune=given.prune,
                multi_targets=given.multi_targets,
            )
        await self.run_stage(ctx, config, work)

    async def run_stage(
        self, ctx: StageContext, config: C, work: Callable[[TargetRun, C], Awaitable[None]]
    ) -> None:
        """Runs a stage on the deploy targets that it is meant for. Raises StageFailedError."""
        options: KubernetesOptions = ctx.source.target.options
        all_chosen = resolve_targets(options, ctx.targets)
        for name in find_unknown(options, ctx.targets):
            ctx.log.info("input.multiTargets: this deployment has no deploy target %r", name)
        if not all_chosen:
            raise StageFailedError(
                "input.multiTargets names no deploy target of this deployment",
                hint=f"it has {', '.join(each.name for each in ctx.targets)}",
            )
        chosen = choose_targets(all_chosen, config)
        if len(chosen) < len(ctx.targets):
            names = ", ".join(each.target.name for each in chosen)
            ctx.log.info("%d of %d deploy targets: %s", len(chosen), len(ctx.targets), names)
        await self._run_all(ctx, chosen, lambda run: work(run, config))

    async def undo(self, ctx: StageContext) -> None:
        """Brings all deploy targets back that the deployment, or the earlier commit, has."""
        found = _index_options(resolve_targets(ctx.source.target.options, ctx.targets))
        running = ctx.source.running
        if running is not None:
            found = _index_options(resolve_targets(running.options, ctx.targets)) | found
        chosen = [
            ChosenTarget(target=target, options=found[target.name])
            for target in ctx.targets
            if target.name in found
        ]
        await self._run_all(ctx, chosen, roll_back)

    async def _run_all(
        self,
        ctx: StageContext,
        chosen: Sequence[ChosenTarget],
        work: Callable[[TargetRun], Awaitable[None]],
    ) -> None:
        renderer = Renderer(
            self.config, ctx.tools, application_name=ctx.deployment.application_name
        )
        running = _read_running(ctx)
        options = {each.target.name: each.options for each in chosen}

        async def run_one(target: DeployTarget, log: StageLog) -> None:
            cluster = await self.clusters.get(target)

            async def load(source: Source, given: KubernetesOptions) -> Sequence[Manifest]:
                return await load_for(renderer, source, given, cluster, target.name)

            await work(
                TargetRun(
                    ctx=ctx,
                    target=target,
                    cluster=cluster.report_to(on_retry=partial(_report_retry, log)),
                    applying=cluster.report_to(
                        on_retry=partial(_report_retry, log),
                        on_warning=lambda text: log.info("the server warns: %s", text),
                    ),
                    log=log,
                    options=options[target.name],
                    running_options=running.get(target.name),
                    load=load,
                )
            )

        await run_on_targets(ctx, run_one, targets=[each.target for each in chosen])


def _report_retry(log: StageLog, notice: RetryNotice) -> None:
    log.info(
        "%s: %s; tried again in %.1f seconds", notice.what, notice.reason, notice.pause_seconds
    )


def _read_running(ctx: StageContext) -> dict[str, KubernetesOptions]:
    """Returns the options of the commit that ran before, by deploy target."""
    source: Source | None = ctx.source.running
    return {} if source is None else _index_options(resolve_targets(source.options, ctx.targets))


def _index_options(chosen: Iterable[ChosenTarget]) -> dict[str, KubernetesOptions]:
    return {each.target.name: each.options for each in chosen}


def _merge(decided: Sequence[Strategy]) -> Strategy:
    """Returns the strategy of all deploy targets: the pipeline, when one of them needs it."""
    for each in decided:
        if each.sync is SyncStrategy.PIPELINE:
            return each
    if not decided:
        return Strategy(sync=SyncStrategy.PIPELINE, summary="Pipeline sync, no target is chosen")
    summaries = {each.summary for each in decided}
    if len(summaries) == 1:
        return decided[0]
    return Strategy(
        sync=SyncStrategy.QUICK_SYNC, summary="Quick sync, no deploy target needs the pipeline"
    )


def _describe_traffic(config: Any) -> str:
    shares = shares_of(config)
    return f"Primary: {shares.primary}%, Canary: {shares.canary}%, Baseline: {shares.baseline}%"
