# SPDX-License-Identifier: Apache-2.0
"""Plugins whose answers and errors hold no secret: what they say becomes a status for everybody."""

from collections.abc import Awaitable, Collection, Mapping
from typing import TypeVar

from pipecd_model.errors import PluginError
from pipecd_wire.pipecd.plugin import plugin_pb2
from pipecd_wire.plugin.deploymentapi import api_pb2 as api
from piped.plan.protocols import Plugin, Plugins
from piped.plugins.state import PluginState
from piped.secrets import KnownSecrets

T = TypeVar("T")


class MaskedPlugins:
    """All plugins of a piped."""

    def __init__(self, plugins: Plugins, known: KnownSecrets) -> None:
        self._plugins = plugins
        self._known = known
        self._masked: dict[str, MaskedPlugin] = {}

    @property
    def plugins(self) -> Mapping[str, Plugin]:
        return {name: self._of(plugin) for name, plugin in self._plugins.plugins.items()}

    async def settled(self, limit: float, /) -> None:
        await self._plugins.settled(limit)

    def choose(
        self, stage_name: str, /, *, wanted: str | None, declared: Collection[str]
    ) -> Plugin:
        return self._of(self._plugins.choose(stage_name, wanted=wanted, declared=declared))

    def _of(self, plugin: Plugin) -> "MaskedPlugin":
        known = self._masked.get(plugin.name)
        if known is None or not known.is_of(plugin):
            known = self._masked[plugin.name] = MaskedPlugin(plugin, self._known)
        return known


class MaskedPlugin:
    """One plugin."""

    def __init__(self, plugin: Plugin, known: KnownSecrets) -> None:
        self._plugin = plugin
        self._known = known
        self.name = plugin.name

    @property
    def state(self) -> PluginState:
        return self._plugin.state

    @property
    def was_ready(self) -> bool:
        return self._plugin.was_ready

    @property
    def stages_without_files(self) -> frozenset[str]:
        return self._plugin.stages_without_files

    def is_of(self, plugin: Plugin) -> bool:
        """Is it this one that is behind it?"""
        return self._plugin is plugin

    async def ready(self, limit: float, /) -> None:
        await self._asked("", self._plugin.ready(limit))

    async def determine_versions(
        self, plan: api.PlanPluginInput, /
    ) -> api.DetermineVersionsResponse:
        answer = await self._asked(plan.deployment.id, self._plugin.determine_versions(plan))
        for version in answer.versions:
            version.name = self._known.masked(plan.deployment.id, version.name)
            version.version = self._known.masked(plan.deployment.id, version.version)
            version.url = self._known.masked(plan.deployment.id, version.url)
        return answer

    async def determine_strategy(
        self, plan: api.PlanPluginInput, /
    ) -> api.DetermineStrategyResponse:
        answer = await self._asked(plan.deployment.id, self._plugin.determine_strategy(plan))
        answer.summary = self._known.masked(plan.deployment.id, answer.summary)
        return answer

    async def build_pipeline_sync_stages(
        self, request: api.BuildPipelineSyncStagesRequest, /
    ) -> api.BuildPipelineSyncStagesResponse:
        return await self._asked("", self._plugin.build_pipeline_sync_stages(request))

    async def build_quick_sync_stages(
        self, request: api.BuildQuickSyncStagesRequest, /
    ) -> api.BuildQuickSyncStagesResponse:
        return await self._asked("", self._plugin.build_quick_sync_stages(request))

    async def check_config(
        self, request: plugin_pb2.CheckConfigRequest, /
    ) -> plugin_pb2.CheckConfigResponse | None:
        return await self._asked("", self._plugin.check_config(request))

    async def execute_stage(self, run: api.ExecutePluginInput, /) -> api.ExecuteStageResponse:
        answer = await self._asked(run.deployment.id, self._plugin.execute_stage(run))
        answer.message = self._known.masked(run.deployment.id, answer.message)
        return answer

    async def _asked(self, deployment_id: str, answer: Awaitable[T]) -> T:
        try:
            return await answer
        except PluginError as error:
            # The same error, of the same kind, with another text.
            error.args = tuple(self._shown(deployment_id, str(each)) for each in error.args)
            error.hint = self._shown(deployment_id, error.hint)
            raise

    def _shown(self, deployment_id: str, text: str) -> str:
        if deployment_id:
            return self._known.masked(deployment_id, text)
        return self._known.mask(text)
