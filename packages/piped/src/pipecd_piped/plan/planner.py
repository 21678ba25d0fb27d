# SPDX-License-Identifier: Apache-2.0
"""Plans a pending deployment: chooses its plugins, versions, strategy and stages.

The planner reports nothing to the control plane. Every fault is raised as a `PipecdError` whose
message is for the author of the application, and `pipecd_piped.schedule` fails the deployment
with it.
"""

import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from pipecd_model import strategy
from pipecd_model.config import ApplicationConfig, StageConfig
from pipecd_model.errors import ConfigError, NoPluginForStageError, PluginError
from pipecd_model.stage import is_rollback
from pipecd_piped.plan.checks import check
from pipecd_piped.plan.protocols import PLUGIN, CommitSources, PluginCalls, Plugins
from pipecd_piped.plan.retrying import retry_on_plugin_loss, wait_for_stage_lists, wait_ready
from pipecd_piped.plan.sources import open_both, read_config, read_target
from pipecd_piped.plan.stages import Clock, pipeline_stages, quick_sync_stages
from pipecd_piped.plugins.errors import PluginLostError
from pipecd_piped.secrets import OpenedSecrets
from pipecd_runtime.logs import logger
from pipecd_wire.model.application_pb2 import ApplicationDeploymentReference
from pipecd_wire.model.common_pb2 import AUTO, PIPELINE, QUICK_SYNC, ArtifactVersion, SyncStrategy
from pipecd_wire.model.deployment_pb2 import Deployment, PipelineStage
from pipecd_wire.plugin.common.common_pb2 import DeploymentSource
from pipecd_wire.plugin.deploymentapi import api_pb2 as api

log = logger(__name__)

STAGE_LISTS_SECONDS: Final = 30.0
"""How long planning waits for plugins that are not ready when no ready one offers a stage."""

START_SECONDS: Final = 5.0
"""How long planning waits for all plugins to start or fail when piped has just been started."""


NO_VERSIONS: Final = (ArtifactVersion(kind=ArtifactVersion.UNKNOWN, version="unknown"),)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeploymentPlan:
    """The result of planning: how a deployment is run."""

    config: ApplicationConfig
    source: DeploymentSource
    """The target commit, without its files."""
    strategy: SyncStrategy.ValueType
    summary: str
    versions: Sequence[ArtifactVersion]
    stages: Sequence[PipelineStage]


class Planner:
    """Plans deployments by asking the plugins of an application how to deploy a commit."""

    def __init__(
        self,
        plugins: Plugins,
        sources: CommitSources,
        clock: Clock = time.time,
        *,
        secrets: Callable[[str], OpenedSecrets] = lambda _: OpenedSecrets(),
    ) -> None:
        """`secrets` returns the secrets of a deployment's commit, by the deployment's id."""
        self._plugins = plugins
        self._sources = sources
        self._clock = clock
        self._secrets = secrets

    async def plan(
        self, deployment: Deployment, running: ApplicationDeploymentReference | None
    ) -> DeploymentPlan:
        """Returns the plan of a deployment. Raises PipecdError.

        `running` is the last successful deployment, None for a first deployment. When a plugin is
        lost during planning, this waits until it is ready again and repeats all calls.
        """
        return await retry_on_plugin_loss(lambda: self._plan(deployment, running))

    async def _plan(
        self, deployment: Deployment, running: ApplicationDeploymentReference | None
    ) -> DeploymentPlan:
        # Which of two plugins is chosen must not depend on which of them started faster, and a
        # plugin that never starts must not block all deployments. Reading an application file of
        # an older kind needs the list of stages that the plugins offer.
        await self._plugins.wait_settled(START_SECONDS)
        source = await read_target(self._sources, deployment)
        config = read_config(source)
        chosen, plugins = await self._choose_plugins(config, deployment)
        targets = {
            name: each.deploy_targets for name, each in deployment.deploy_targets_by_plugin.items()
        }
        await check(config, source, self._secrets(deployment.id), chosen, plugins, targets)
        rollback = config.planner.auto_rollback
        offered = await quick_sync_stages(plugins, rollback=rollback, clock=self._clock)
        # A plugin without a quick sync has no platform: it knows neither versions nor a strategy.
        platforms = [
            plugin
            for plugin in plugins
            if any(stage.metadata[PLUGIN] == plugin.name for stage in offered)
        ]
        choice = strategy.choose(
            config,
            deployment.trigger,
            first=running is None,
            quick_sync_offered=bool(offered),
        )
        versions: Sequence[ArtifactVersion] = NO_VERSIONS
        if platforms:
            async with self._question(deployment, running) as ask:
                versions = await self._versions(platforms, ask)
                if choice is None and ask.HasField("running_deployment_source"):
                    choice = await self._ask_strategy(platforms, ask)
        choice = choice or strategy.Choice(
            strategy=PIPELINE, summary="Pipeline: what runs now is gone from the repository"
        )
        if choice.strategy == QUICK_SYNC:
            stages = self._require_offered(config, offered)
        else:
            stages = await self._pipeline(config, chosen, rollback)
        return DeploymentPlan(
            config=config,
            source=source,
            strategy=choice.strategy,
            summary=choice.summary,
            versions=versions,
            stages=stages,
        )

    @asynccontextmanager
    async def _question(
        self, deployment: Deployment, running: ApplicationDeploymentReference | None
    ) -> AsyncIterator[api.PlanPluginInput]:
        """Yields the input of planning calls: the files of the target and the running commit."""
        async with open_both(self._sources, deployment, running) as (target, before):
            ask = api.PlanPluginInput(deployment=deployment, target_deployment_source=target)
            if before is not None:
                ask.running_deployment_source.CopyFrom(before)
            yield ask

    async def rollback_stages(
        self, deployment: Deployment, config: ApplicationConfig
    ) -> list[PipelineStage]:
        """Build the rollback stages of a deployment that was planned without any."""
        return await retry_on_plugin_loss(lambda: self._rollback_stages(deployment, config))

    async def _rollback_stages(
        self, deployment: Deployment, config: ApplicationConfig
    ) -> list[PipelineStage]:
        chosen, plugins = await self._choose_plugins(config, deployment)
        if deployment.trigger.sync_strategy == QUICK_SYNC:
            stages = await quick_sync_stages(plugins, rollback=True, clock=self._clock)
        else:
            stages = await pipeline_stages(
                config.pipeline.stages, chosen, rollback=True, clock=self._clock
            )
        return [stage for stage in stages if is_rollback(stage)]

    async def _choose_plugins(
        self, config: ApplicationConfig, deployment: Deployment
    ) -> tuple[dict[int, PluginCalls], list[PluginCalls]]:
        """Returns the plugin of each stage index, and the plugins of the application, each once.

        Waits until each of them is ready. Without a pipeline they are the declared ones.
        """
        await self._plugins.wait_settled(START_SECONDS)
        for name in config.deploy_targets:
            self._get_configured(name)
        declared = [*config.plugins, *deployment.deploy_targets_by_plugin]
        if config.pipeline.stages:
            chosen = {
                stage.index: await self._choose(stage, declared) for stage in config.pipeline.stages
            }
        elif declared:
            chosen = {}
        else:
            raise ConfigError(
                "the application has neither a pipeline nor plugins",
                hint="write spec.pipeline.stages, or name its plugin under spec.plugins",
            )
        by_name = {plugin.name: plugin for plugin in chosen.values()}
        if not chosen:
            by_name = {name: self._get_configured(name) for name in declared}
        for plugin in by_name.values():
            await wait_ready(plugin)
        return chosen, list(by_name.values())

    async def _choose(self, stage: StageConfig, declared: Sequence[str]) -> PluginCalls:
        try:
            return self._plugins.choose(stage.name, wanted=stage.plugin, declared=declared)
        except NoPluginForStageError:
            await wait_for_stage_lists(self._plugins.plugins.values(), STAGE_LISTS_SECONDS)
            return self._plugins.choose(stage.name, wanted=stage.plugin, declared=declared)

    def _get_configured(self, name: str) -> PluginCalls:
        try:
            return self._plugins.plugins[name]
        except KeyError:
            raise PluginError(
                f"the application names the plugin {name!r}, which this piped does not run",
                hint="add it to the piped config, or correct the name",
            ) from None

    async def _versions(
        self, plugins: Sequence[PluginCalls], ask: api.PlanPluginInput
    ) -> Sequence[ArtifactVersion]:
        versions: list[ArtifactVersion] = []
        for plugin in plugins:
            try:
                versions += (await plugin.determine_versions(ask)).versions
            except PluginLostError:
                raise
            except PluginError as error:
                # Versions are only displayed: a failure here must not stop the deployment.
                log.warning("plan.no_versions", plugin=plugin.name, reason=str(error))
        return versions or NO_VERSIONS

    def _require_offered(
        self, config: ApplicationConfig, offered: Sequence[PipelineStage]
    ) -> Sequence[PipelineStage]:
        if not offered:
            way = "deploy it with its" if config.pipeline.stages else "give it a"
            raise ConfigError(
                "no plugin of the application offers a quick sync", hint=f"{way} pipeline"
            )
        return offered

    async def _ask_strategy(
        self, plugins: Sequence[PluginCalls], ask: api.PlanPluginInput
    ) -> strategy.Choice:
        answers: list[strategy.Answer] = []
        for plugin in plugins:
            try:
                said = await plugin.determine_strategy(ask)
            except PluginLostError:
                raise
            except PluginError as error:
                answers.append(strategy.Answer(plugin=plugin.name, error=str(error)))
                continue
            summary = said.summary or f"chosen by the plugin {plugin.name!r}"
            choice = strategy.Choice(strategy=said.sync_strategy, summary=summary)
            known = not said.unsupported and said.sync_strategy != AUTO
            answers.append(strategy.Answer(plugin=plugin.name, choice=choice if known else None))
            if known and said.sync_strategy == PIPELINE:
                break
        try:
            return strategy.choose_by_answers(answers)
        except PluginError as error:
            # Falling back to the pipeline is safe: plugins are only asked when there is one.
            return strategy.Choice(strategy=PIPELINE, summary=f"Pipeline: {error}")

    async def _pipeline(
        self, config: ApplicationConfig, chosen: Mapping[int, PluginCalls], rollback: bool
    ) -> list[PipelineStage]:
        if not config.pipeline.stages:
            raise ConfigError(
                "the application has no pipeline",
                hint="write spec.pipeline.stages, or deploy it with a quick sync",
            )
        stages = await pipeline_stages(
            config.pipeline.stages, chosen, rollback=rollback, clock=self._clock
        )
        if not any(not is_rollback(stage) for stage in stages):
            raise PluginError("the plugins answered no stage for the pipeline")
        return stages
