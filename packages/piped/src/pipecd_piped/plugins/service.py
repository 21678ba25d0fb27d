# SPDX-License-Identifier: Apache-2.0
"""The RPCs that plugins call on piped: upstream's PluginService, one instance per plugin.

Each plugin has a private port, so the caller is known even when it does not send its name.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from pipecd_piped.plugins.backend import PluginBackend
from pipecd_piped.report.logs import StageKey
from pipecd_piped.report.masked import Logs
from pipecd_wire.model.logblock_pb2 import LogBlock
from pipecd_wire.pipedservice import service_pb2 as controlplane_pb
from pipecd_wire.pluginservice import service_pb2 as pb
from pipecd_wire.rpc import rpc

StagePutRequest = pb.PutStageMetadataRequest | pb.PutStageMetadataMultiRequest
PluginPutRequest = (
    pb.PutDeploymentPluginMetadataRequest | pb.PutDeploymentPluginMetadataMultiRequest
)
LogRequest = pb.ReportStageLogsRequest | pb.ReportStageLogsFromLastCheckpointRequest


def fill_empty_lines(request: LogRequest) -> None:
    """Fill in empty log lines, which the contract forbids but a Go plugin may send.

    It would retry a refused batch for ever, and none of the lines in it would be shown.
    """
    for block in request.blocks:
        if not block.log:
            block.log = " "


class StageApi:
    """Stage logs, stage commands and tools."""

    def __init__(self, plugin: str, backend: PluginBackend, logs: Logs | None = None) -> None:
        """`logs`: used for one process instead of the backend's."""
        self._plugin = plugin
        self._backend = backend
        self._logs = logs or backend.logs

    @rpc("InstallTool")
    async def install_tool(self, _: Any, request: pb.InstallToolRequest) -> pb.InstallToolResponse:
        path = await self._backend.tools.install(
            request.name, request.version, request.install_script
        )
        return pb.InstallToolResponse(installed_path=str(path))

    @rpc("ReportStageLogs", prepare=fill_empty_lines)
    async def report_stage_logs(
        self, _: Any, request: pb.ReportStageLogsRequest
    ) -> pb.ReportStageLogsResponse:
        self._check(request)
        await self._logs.report(_key(request), _blocks(request))
        return pb.ReportStageLogsResponse()

    @rpc("ReportStageLogsFromLastCheckpoint", prepare=fill_empty_lines)
    async def report_from_last_checkpoint(
        self, _: Any, request: pb.ReportStageLogsFromLastCheckpointRequest
    ) -> pb.ReportStageLogsFromLastCheckpointResponse:
        self._check(request)
        await self._logs.checkpoint(_key(request), _blocks(request), completed=request.completed)
        return pb.ReportStageLogsFromLastCheckpointResponse()

    def _check(self, request: LogRequest) -> None:
        """Refuse log lines of a plugin other than the one that runs the stage."""
        store = self._backend.metadata.find(request.deployment_id)
        if store is not None:
            store.check_plugin(request.stage_id, self._plugin)

    @rpc("ListStageCommands")
    async def list_stage_commands(
        self, _: Any, request: pb.ListStageCommandsRequest
    ) -> pb.ListStageCommandsResponse:
        commands = self._backend.commands.stage_commands(request.deployment_id, request.stage_id)
        return pb.ListStageCommandsResponse(commands=commands)


def _key(request: LogRequest) -> StageKey:
    return StageKey(request.deployment_id, request.stage_id, request.retried_count)


def _blocks(request: LogRequest) -> Iterable[LogBlock]:
    return request.blocks


class MetadataApi:
    """The metadata that stages and plugins store with a deployment."""

    def __init__(self, plugin: str, backend: PluginBackend) -> None:
        self._plugin = plugin
        self._stores = backend.metadata
        self._secrets = backend.secrets

    @rpc("GetStageMetadata")
    async def get_stage_metadata(
        self, _: Any, request: pb.GetStageMetadataRequest
    ) -> pb.GetStageMetadataResponse:
        store = self._stores.get(request.deployment_id)
        value = store.get_stage(request.stage_id, request.key)
        return pb.GetStageMetadataResponse(value=value or "", found=value is not None)

    @rpc("PutStageMetadata")
    async def put_stage_metadata(
        self, _: Any, request: pb.PutStageMetadataRequest
    ) -> pb.PutStageMetadataResponse:
        await self._put_stage(request, {request.key: request.value})
        return pb.PutStageMetadataResponse()

    @rpc("PutStageMetadataMulti")
    async def put_stage_metadata_multi(
        self, _: Any, request: pb.PutStageMetadataMultiRequest
    ) -> pb.PutStageMetadataMultiResponse:
        await self._put_stage(request, request.metadata)
        return pb.PutStageMetadataMultiResponse()

    async def _put_stage(self, request: StagePutRequest, values: Mapping[str, str]) -> None:
        store = self._stores.get(request.deployment_id)
        store.check_plugin(request.stage_id, self._plugin)
        await store.put_stage(request.stage_id, self._mask(request.deployment_id, values))

    @rpc("GetDeploymentPluginMetadata")
    async def get_deployment_plugin_metadata(
        self, _: Any, request: pb.GetDeploymentPluginMetadataRequest
    ) -> pb.GetDeploymentPluginMetadataResponse:
        store = self._stores.get(request.deployment_id)
        value = store.get_plugin(request.plugin_name or self._plugin, request.key)
        return pb.GetDeploymentPluginMetadataResponse(value=value or "", found=value is not None)

    @rpc("PutDeploymentPluginMetadata")
    async def put_deployment_plugin_metadata(
        self, _: Any, request: pb.PutDeploymentPluginMetadataRequest
    ) -> pb.PutDeploymentPluginMetadataResponse:
        await self._put_plugin(request, {request.key: request.value})
        return pb.PutDeploymentPluginMetadataResponse()

    @rpc("PutDeploymentPluginMetadataMulti")
    async def put_deployment_plugin_metadata_multi(
        self, _: Any, request: pb.PutDeploymentPluginMetadataMultiRequest
    ) -> pb.PutDeploymentPluginMetadataMultiResponse:
        await self._put_plugin(request, request.metadata)
        return pb.PutDeploymentPluginMetadataMultiResponse()

    async def _put_plugin(self, request: PluginPutRequest, values: Mapping[str, str]) -> None:
        store = self._stores.get(request.deployment_id)
        await store.put_plugin(request.plugin_name, self._mask(request.deployment_id, values))

    @rpc("GetDeploymentSharedMetadata")
    async def get_deployment_shared_metadata(
        self, _: Any, request: pb.GetDeploymentSharedMetadataRequest
    ) -> pb.GetDeploymentSharedMetadataResponse:
        value = self._stores.get(request.deployment_id).get_shared(request.key)
        return pb.GetDeploymentSharedMetadataResponse(value=value or "", found=value is not None)

    def _mask(self, deployment_id: str, values: Mapping[str, str]) -> dict[str, str]:
        """Returns metadata with secrets masked, because users can read metadata."""
        masker = self._secrets.masker(deployment_id)
        return {key: masker.line(value) for key, value in values.items()}


class SharedObjectsApi:
    """The objects that a plugin stores with an application, across deployments."""

    def __init__(self, backend: PluginBackend) -> None:
        self._control = backend.control

    @rpc("GetApplicationSharedObject")
    async def get_application_shared_object(
        self, _: Any, request: pb.GetApplicationSharedObjectRequest
    ) -> pb.GetApplicationSharedObjectResponse:
        answer = await self._control.call(
            self._control.service.GetApplicationSharedObject,
            controlplane_pb.GetApplicationSharedObjectRequest(
                application_id=request.application_id,
                plugin_name=request.plugin_name,
                key=request.key,
            ),
        )
        return pb.GetApplicationSharedObjectResponse(object=answer.object)

    @rpc("PutApplicationSharedObject")
    async def put_application_shared_object(
        self, _: Any, request: pb.PutApplicationSharedObjectRequest
    ) -> pb.PutApplicationSharedObjectResponse:
        await self._control.call(
            self._control.service.PutApplicationSharedObject,
            controlplane_pb.PutApplicationSharedObjectRequest(
                application_id=request.application_id,
                plugin_name=request.plugin_name,
                key=request.key,
                object=request.object,
            ),
        )
        return pb.PutApplicationSharedObjectResponse()
