# SPDX-License-Identifier: Apache-2.0
"""piped's side of the wire for tests of executables: a real server that records all reports.

With `managed=False` it is a Go agent: no invitation, no plugin management.
"""

import asyncio
import secrets
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, Self

from pipecd_sdk.context import CommandKind
from pipecd_sdk.testing.storage_service import StorageService
from pipecd_wire.headers import PLUGIN_TOKEN_HEADER
from pipecd_wire.model import command_pb2, logblock_pb2
from pipecd_wire.pipecd.plugin import plugin_pb2
from pipecd_wire.pluginservice import service_pb2
from pipecd_wire.rpc import Endpoints, Metadata, Method, StatusError, rpc, serving


@dataclass(slots=True, kw_only=True)
class StoredLog:
    """The log of one stage as a control plane stores it."""

    blocks: dict[int, logblock_pb2.LogBlock] = field(default_factory=dict)
    durable: set[int] = field(default_factory=set)
    """Indexes that came with a checkpoint: all that upstream's control plane keeps for good."""
    sealed: bool = False

    @property
    def lines(self) -> list[str]:
        return [self.blocks[index].log for index in sorted(self.blocks)]

    @property
    def text(self) -> str:
        return "\n".join(self.lines)


class FakePiped:
    """Serves PluginService and plugin management while its block runs.

    Example:
        async with FakePiped() as piped, piped.start([executable], name="wait") as plugin:
            answer = await plugin.execute("WAIT", {"duration": "1s"})
    """

    def __init__(self, *, managed: bool = True, ping_interval_seconds: float = 5.0) -> None:
        self.managed = managed
        self.ping_interval_seconds = ping_interval_seconds
        self.token = secrets.token_hex(8) if managed else ""
        self.piped_token = secrets.token_hex(8) if managed else ""
        """With what it proves itself to its plugins."""
        self.address = ""
        self.logs: dict[str, StoredLog] = {}
        """By stage id."""
        self.stage_metadata: dict[str, dict[str, str]] = {}
        self.deployment_metadata: dict[tuple[str, str], dict[str, str]] = {}
        """By deployment id and plugin name."""
        self.shared_metadata: dict[tuple[str, str], str] = {}
        """What piped itself keeps: by deployment id and key."""
        self.shared_objects: dict[tuple[str, str, str], bytes] = {}
        """By application id, plugin name and key."""
        self.tools: Path | None = None
        """Where programs are installed; without it none can be."""
        self.secrets: dict[str, str] = {}
        """Of every application, by name, open."""
        self.calls: Counter[str] = Counter()
        self.wrong_calls: list[str] = []
        """RPCs that were called with a request which breaks a rule of the wire."""
        self.ready: list[plugin_pb2.ReadyRequest] = []
        self.announced: list[str] = []
        """Ids of applications whose live states a plugin announced, in order."""
        self.changed = asyncio.Condition()
        self._commands: list[command_pb2.Command] = []
        self._refusals: dict[str, list[str]] = {}
        self._lost_answers: Counter[str] = Counter()
        self.largest_report = 0
        """Bytes of the largest message of log lines."""
        self._opened = AsyncExitStack()
        self.breaks = 0
        """How often the watches of commands were broken."""

    async def __aenter__(self) -> Self:
        endpoints = Endpoints(admit=self._admit, observers=[self._observe])
        endpoints.add(
            service_pb2.DESCRIPTOR.services_by_name["PluginService"],
            _PluginService(self),
            StorageService(self),
        )
        if self.managed:
            endpoints.add(
                plugin_pb2.DESCRIPTOR.services_by_name["PluginManagementService"],
                _Management(self),
            )
        port = await self._opened.enter_async_context(
            serving(endpoints, "127.0.0.1:0", grace_seconds=0)
        )
        self.address = f"localhost:{port}"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._opened.aclose()

    async def wait_until(self, condition: Any, *, limit: float = 30) -> None:
        """Waits until `condition()` is true, which is checked after each call to this piped.

        Raises TimeoutError after `limit` seconds.
        """
        async with asyncio.timeout(limit), self.changed:
            await self.changed.wait_for(condition)

    def log(self, stage_id: str) -> StoredLog:
        """Returns the log of a stage, empty when there is none yet."""
        return self.logs.setdefault(stage_id, StoredLog())

    def reopen_log(self, stage_id: str) -> None:
        """Accepts lines again: a stage that is run once more is not over, whatever its log said."""
        self.log(stage_id).sealed = False

    def refuse(self, rpc_name: str, *statuses: str) -> None:
        """Fails the next calls of an RPC with these statuses."""
        self._refusals.setdefault(rpc_name, []).extend(statuses)

    def lose_answers(self, rpc_name: str, times: int = 1) -> None:
        """Accepts the next log lines that come with an RPC, and loses the response."""
        self._lost_answers[rpc_name] += times

    def answer_is_lost(self, rpc_name: str) -> bool:
        """Returns whether the response of this call is to be lost; called once per call."""
        if self._lost_answers[rpc_name] == 0:
            return False
        self._lost_answers[rpc_name] -= 1
        return True

    async def break_watches(self) -> None:
        """Breaks every open watch of commands, as a restart does."""
        async with self.changed:
            self.breaks += 1
            self.changed.notify_all()

    async def send(self, kind: CommandKind, stage_id: str, *, by: str) -> None:
        """Sends a command to a stage, as a person does."""
        async with self.changed:
            self._commands.append(
                command_pb2.Command(
                    id=f"command-{len(self._commands)}",
                    stage_id=stage_id,
                    commander=by,
                    type=command_pb2.Command.Type.ValueType(kind),
                )
            )
            self.changed.notify_all()

    def commands(self, stage_id: str) -> list[command_pb2.Command]:
        return [each for each in self._commands if each.stage_id == stage_id]

    async def _admit(self, method: Method, metadata: Metadata) -> None:
        is_management = method.service == "pipecd.plugin.v1.PluginManagementService"
        if is_management and metadata.get(PLUGIN_TOKEN_HEADER) != self.token:
            raise StatusError("UNAUTHENTICATED", "wrong token")
        self.calls[method.name] += 1
        if refusals := self._refusals.get(method.name):
            raise StatusError(refusals.pop(0), "refused by the test")

    def _observe(self, method: Method, status: str, _seconds: float) -> None:
        if status == "INVALID_ARGUMENT":
            self.wrong_calls.append(method.name)

    async def note(self) -> None:
        """Notifies those who wait that something has changed."""
        async with self.changed:
            self.changed.notify_all()


class _PluginService:
    def __init__(self, piped: FakePiped) -> None:
        self._piped = piped

    @rpc("ReportStageLogs")
    async def report_logs(
        self, _caller: object, request: service_pb2.ReportStageLogsRequest
    ) -> service_pb2.ReportStageLogsResponse:
        self._keep(request)
        await self._answer("ReportStageLogs")
        return service_pb2.ReportStageLogsResponse()

    @rpc("ReportStageLogsFromLastCheckpoint")
    async def report_checkpoint(
        self, _caller: object, request: service_pb2.ReportStageLogsFromLastCheckpointRequest
    ) -> service_pb2.ReportStageLogsFromLastCheckpointResponse:
        kept = self._keep(request)
        kept.durable.update(block.index for block in request.blocks)
        kept.sealed = request.completed
        await self._answer("ReportStageLogsFromLastCheckpoint")
        return service_pb2.ReportStageLogsFromLastCheckpointResponse()

    async def _answer(self, rpc_name: str) -> None:
        await self._piped.note()
        if self._piped.answer_is_lost(rpc_name):
            raise StatusError("UNAVAILABLE", "the answer was lost")

    def _keep(self, request: Any) -> StoredLog:
        self._piped.largest_report = max(self._piped.largest_report, request.ByteSize())
        kept = self._piped.log(request.stage_id)
        if kept.sealed:
            raise StatusError("FAILED_PRECONDITION", "the log is complete")
        for block in request.blocks:
            kept.blocks.setdefault(block.index, block)
        return kept

    @rpc("GetStageMetadata")
    async def get_stage(
        self, _caller: object, request: service_pb2.GetStageMetadataRequest
    ) -> service_pb2.GetStageMetadataResponse:
        values = self._piped.stage_metadata.get(request.stage_id, {})
        return service_pb2.GetStageMetadataResponse(
            value=values.get(request.key, ""), found=request.key in values
        )

    @rpc("PutStageMetadata")
    async def put_stage(
        self, _caller: object, request: service_pb2.PutStageMetadataRequest
    ) -> service_pb2.PutStageMetadataResponse:
        values = self._piped.stage_metadata.setdefault(request.stage_id, {})
        values[request.key] = request.value
        await self._piped.note()
        return service_pb2.PutStageMetadataResponse()

    @rpc("PutStageMetadataMulti")
    async def put_stage_many(
        self, _caller: object, request: service_pb2.PutStageMetadataMultiRequest
    ) -> service_pb2.PutStageMetadataMultiResponse:
        values = self._piped.stage_metadata.setdefault(request.stage_id, {})
        values.update(request.metadata)
        await self._piped.note()
        return service_pb2.PutStageMetadataMultiResponse()

    @rpc("GetDeploymentPluginMetadata")
    async def get_deployment(
        self, _caller: object, request: service_pb2.GetDeploymentPluginMetadataRequest
    ) -> service_pb2.GetDeploymentPluginMetadataResponse:
        key = (request.deployment_id, request.plugin_name)
        values = self._piped.deployment_metadata.get(key, {})
        return service_pb2.GetDeploymentPluginMetadataResponse(
            value=values.get(request.key, ""), found=request.key in values
        )

    @rpc("PutDeploymentPluginMetadata")
    async def put_deployment(
        self, _caller: object, request: service_pb2.PutDeploymentPluginMetadataRequest
    ) -> service_pb2.PutDeploymentPluginMetadataResponse:
        key = (request.deployment_id, request.plugin_name)
        self._piped.deployment_metadata.setdefault(key, {})[request.key] = request.value
        await self._piped.note()
        return service_pb2.PutDeploymentPluginMetadataResponse()

    @rpc("PutDeploymentPluginMetadataMulti")
    async def put_deployment_many(
        self, _caller: object, request: service_pb2.PutDeploymentPluginMetadataMultiRequest
    ) -> service_pb2.PutDeploymentPluginMetadataMultiResponse:
        key = (request.deployment_id, request.plugin_name)
        self._piped.deployment_metadata.setdefault(key, {}).update(request.metadata)
        await self._piped.note()
        return service_pb2.PutDeploymentPluginMetadataMultiResponse()

    @rpc("ListStageCommands")
    async def list_commands(
        self, _caller: object, request: service_pb2.ListStageCommandsRequest
    ) -> service_pb2.ListStageCommandsResponse:
        return service_pb2.ListStageCommandsResponse(
            commands=self._piped.commands(request.stage_id)
        )


class _Management:
    def __init__(self, piped: FakePiped) -> None:
        self._piped = piped

    @rpc("Ready")
    async def ready(
        self, _caller: object, request: plugin_pb2.ReadyRequest
    ) -> plugin_pb2.ReadyResponse:
        self._piped.ready.append(request)
        await self._piped.note()
        answer = plugin_pb2.ReadyResponse()
        answer.ping_interval.FromTimedelta(timedelta(seconds=self._piped.ping_interval_seconds))
        return answer

    @rpc("Ping")
    async def ping(
        self, _caller: object, request: plugin_pb2.PingRequest
    ) -> plugin_pb2.PingResponse:
        await self._piped.note()
        return plugin_pb2.PingResponse()

    @rpc("DecryptSecret")
    async def decrypt_secret(
        self, _caller: object, request: plugin_pb2.DecryptSecretRequest
    ) -> plugin_pb2.DecryptSecretResponse:
        if request.name not in self._piped.secrets:
            raise StatusError("INVALID_ARGUMENT", f"there is no secret {request.name!r}")
        return plugin_pb2.DecryptSecretResponse(value=self._piped.secrets[request.name])

    @rpc("AnnounceLiveStates")
    async def announce_live_states(
        self, _caller: object, request: plugin_pb2.AnnounceLiveStatesRequest
    ) -> plugin_pb2.AnnounceLiveStatesResponse:
        self._piped.announced += request.application_ids
        await self._piped.note()
        return plugin_pb2.AnnounceLiveStatesResponse()

    @rpc("WatchStageCommands")
    async def watch_commands(
        self, _caller: object, request: plugin_pb2.WatchStageCommandsRequest
    ) -> AsyncIterator[plugin_pb2.WatchStageCommandsResponse]:
        given, breaks = 0, self._piped.breaks
        while True:
            commands = self._piped.commands(request.stage_id)
            for command in commands[given:]:
                yield plugin_pb2.WatchStageCommandsResponse(command=command)
            given = len(commands)
            async with self._piped.changed:
                await self._piped.changed.wait_for(
                    lambda: (
                        self._piped.breaks > breaks
                        or len(self._piped.commands(request.stage_id)) > given  # noqa: B023
                    )
                )
            if self._piped.breaks > breaks:
                raise StatusError("UNAVAILABLE", "broken by the test")
