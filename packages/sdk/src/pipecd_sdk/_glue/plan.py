# SPDX-License-Identifier: Apache-2.0
"""The RPCs that plan: which stages there are, versions, strategy, stage lists, checks, schemas."""

import json
from typing import Any

from pipecd_sdk import _planning
from pipecd_sdk._glue import messages
from pipecd_sdk._glue.entry import Setup
from pipecd_sdk._glue.execute import targets_of
from pipecd_sdk._glue.piped import PipedClient, PipedTools
from pipecd_sdk._planning import StageRequest
from pipecd_sdk._schema import schemas_of
from pipecd_sdk.context import PlanContext
from pipecd_sdk.plugin import DeploymentPlugin, StagePlugin, SyncStrategy
from pipecd_wire.model import common_pb2
from pipecd_wire.pipecd.plugin import plugin_pb2
from pipecd_wire.plugin.deploymentapi import api_pb2
from pipecd_wire.rpc import rpc


class PlanApi:
    """All of DeploymentService but ExecuteStage."""

    def __init__(self, plugin: StagePlugin, setup: Setup, piped: PipedClient) -> None:
        self._plugin = plugin
        self._setup = setup
        self._piped = piped
        self._tools = PipedTools(piped)
        self._reader = messages.Reader(plugin, setup.name)

    @rpc("FetchDefinedStages")
    async def fetch_defined_stages(
        self, _caller: object, request: api_pb2.FetchDefinedStagesRequest
    ) -> api_pb2.FetchDefinedStagesResponse:
        return api_pb2.FetchDefinedStagesResponse(stages=self._plugin.stages)

    @rpc("DetermineVersions")
    async def determine_versions(
        self, _caller: object, request: api_pb2.DetermineVersionsRequest
    ) -> api_pb2.DetermineVersionsResponse:
        if not isinstance(self._plugin, DeploymentPlugin):
            return api_pb2.DetermineVersionsResponse()
        versions = await self._plugin.versions(self._context(request.input))
        return api_pb2.DetermineVersionsResponse(
            versions=[messages.to_version(version) for version in versions]
        )

    @rpc("DetermineStrategy")
    async def determine_strategy(
        self, _caller: object, request: api_pb2.DetermineStrategyRequest
    ) -> api_pb2.DetermineStrategyResponse:
        if not isinstance(self._plugin, DeploymentPlugin):
            return api_pb2.DetermineStrategyResponse(unsupported=True)
        strategy = await self._plugin.strategy(self._context(request.input))
        return api_pb2.DetermineStrategyResponse(
            sync_strategy=common_pb2.SyncStrategy.ValueType(strategy.sync),
            summary=strategy.summary or self._default_summary(strategy.sync),
        )

    @rpc("BuildPipelineSyncStages")
    async def build_pipeline_sync_stages(
        self, _caller: object, request: api_pb2.BuildPipelineSyncStagesRequest
    ) -> api_pb2.BuildPipelineSyncStagesResponse:
        wanted = [
            StageRequest(name=each.name, index=each.index, desc=each.desc, config=each.config)
            for each in request.stages
        ]
        planned = _planning.plan_pipeline(
            self._plugin,
            wanted,
            rollback=request.rollback,
            opens_secrets=self._piped.managed,
        )
        return api_pb2.BuildPipelineSyncStagesResponse(
            stages=[messages.to_stage(each) for each in planned]
        )

    @rpc("BuildQuickSyncStages")
    async def build_quick_sync_stages(
        self, _caller: object, request: api_pb2.BuildQuickSyncStagesRequest
    ) -> api_pb2.BuildQuickSyncStagesResponse:
        if not isinstance(self._plugin, DeploymentPlugin):
            return api_pb2.BuildQuickSyncStagesResponse()
        planned = self._plugin.quick_sync(rollback=request.rollback)
        return api_pb2.BuildQuickSyncStagesResponse(
            stages=[messages.to_stage(each) for each in planned]
        )

    def _default_summary(self, chosen: SyncStrategy) -> str:
        """Returns the summary for a plugin that gives none: a Go agent shows it to people."""
        name = "Quick sync" if chosen is SyncStrategy.QUICK_SYNC else "Pipeline"
        return f"{name}: chosen by the plugin {self._setup.name!r}"

    def _context(self, given: api_pb2.PlanPluginInput) -> PlanContext:
        return PlanContext(
            deployment=messages.deployment_of(given.deployment),
            source=self._reader.sources(given),
            targets=targets_of(self._plugin, self._setup, given.deployment),
            tools=self._tools,
        )


class ConfigApi:
    """The RPCs that return the schemas of this plugin's options and check options."""

    def __init__(self, plugin: StagePlugin) -> None:
        self._plugin = plugin

    @rpc("GetSchemas")
    async def get_schemas(
        self, _caller: object, request: plugin_pb2.GetSchemasRequest
    ) -> plugin_pb2.GetSchemasResponse:
        found = schemas_of(self._plugin)
        return plugin_pb2.GetSchemasResponse(
            plugin_config=_text(found.plugin_config),
            deploy_target_config=_text(found.deploy_target_config),
            application_config=_text(found.application_config),
            stages={name: _text(each) for name, each in found.stages.items()},
        )

    @rpc("CheckConfig")
    async def check_config(
        self, _caller: object, request: plugin_pb2.CheckConfigRequest
    ) -> plugin_pb2.CheckConfigResponse:
        faults = _planning.faults_of(
            self._plugin,
            [
                StageRequest(name=each.name, index=each.index, config=each.config)
                for each in request.stages
            ],
        )
        faults += _planning.target_faults(self._plugin, request.deploy_targets)
        if self._plugin.has_application_config():
            faults += _planning.section_faults(self._plugin, request.application_config)
        return plugin_pb2.CheckConfigResponse(
            faults=[
                plugin_pb2.Fault(path=fault.path, message=fault.message, hint=fault.hint)
                for fault in faults
            ]
        )


def _text(schema: dict[str, Any] | None) -> str:
    return "" if schema is None else json.dumps(schema)
