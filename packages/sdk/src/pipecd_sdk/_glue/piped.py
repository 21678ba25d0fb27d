# SPDX-License-Identifier: Apache-2.0
"""The plugin's client of piped: metadata, stage commands, tools, shared objects.

Our agent and the Go agent serve the same calls. Ours, which has sent an invitation (`managed`),
also streams the commands; those of a Go agent are polled.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping
from contextlib import aclosing
from pathlib import Path
from typing import Any, Final

from pipecd_sdk._glue import messages
from pipecd_sdk.context import StageCommand
from pipecd_sdk.metadata import Metadata
from pipecd_sdk.results import PipedError, StageFailedError
from pipecd_sdk.secrets import refuse
from pipecd_sdk.shared import SharedObjects
from pipecd_sdk.tools import Tool, ToolError, Tools
from pipecd_wire.model import command_pb2
from pipecd_wire.pipecd.plugin import plugin_pb2, plugin_pb2_grpc
from pipecd_wire.pluginservice import service_pb2, service_pb2_grpc
from pipecd_wire.rpc import CallError, Channel, Retry, call, stream

log = logging.getLogger(__name__)

POLL_INTERVAL_SECONDS: Final = 5.0
"""Seconds between two looks at the commands, as upstream's SDK."""
REOPEN_PAUSE_SECONDS: Final = 0.5


class _Patient(Retry):
    """Retries without limit while piped is unavailable; only the stage's timeout ends it.

    What must not be lost, or done twice, depends on it: a script that begins while the control
    plane is unavailable waits, and does not fail.
    """

    def again(self, error: CallError, attempt: int) -> bool:
        is_away = error.status in {"UNAVAILABLE", "DEADLINE_EXCEEDED"}
        return is_away or Retry.again(self, error, attempt)


# A save that its control plane refused for now is UNKNOWN.
RETRY: Final = _Patient(attempts=6, base_seconds=0.2, cap_seconds=1, also=frozenset({"UNKNOWN"}))


class PipedClient:
    """A client of the agent that started this plugin."""

    def __init__(
        self,
        channel: Channel,
        *,
        plugin: str,
        managed: bool,
        poll_interval_seconds: float = POLL_INTERVAL_SECONDS,
    ) -> None:
        self.service = service_pb2_grpc.PluginServiceStub(channel)
        self.management = plugin_pb2_grpc.PluginManagementServiceStub(channel)
        self.plugin = plugin
        self.managed = managed
        self.poll_interval_seconds = poll_interval_seconds


async def ask(method: Any, request: Any) -> Any:
    """Calls piped and returns the response. Raises PipedError."""
    try:
        return await call(method, request, retry=RETRY)
    except CallError as error:
        raise PipedError(str(error)) from error


class StageMetadata(Metadata):
    """The metadata of one stage."""

    def __init__(self, piped: PipedClient, deployment_id: str, stage_id: str) -> None:
        self._service = piped.service
        self._ids = {"deployment_id": deployment_id, "stage_id": stage_id}

    async def get(self, key: str) -> str | None:
        request = service_pb2.GetStageMetadataRequest(**self._ids, key=key)
        answer = await ask(self._service.GetStageMetadata, request)
        return answer.value if answer.found else None

    async def put(self, key: str, value: str) -> None:
        request = service_pb2.PutStageMetadataRequest(**self._ids, key=key, value=value)
        await ask(self._service.PutStageMetadata, request)

    async def put_many(self, values: Mapping[str, str]) -> None:
        request = service_pb2.PutStageMetadataMultiRequest(**self._ids, metadata=values)
        await ask(self._service.PutStageMetadataMulti, request)


class DeploymentMetadata(Metadata):
    """The metadata of this plugin in one deployment."""

    def __init__(
        self, piped: PipedClient, deployment_id: str, current: Mapping[str, str] | None = None
    ) -> None:
        """`current`: all values, where piped has sent them; what is stored later is asked for."""
        self._current = dict(current) if current is not None else None
        self._stored: set[str] = set()
        self._service = piped.service
        self._ids = {"deployment_id": deployment_id, "plugin_name": piped.plugin}

    async def get(self, key: str) -> str | None:
        if self._current is not None and key not in self._stored:
            return self._current.get(key)
        request = service_pb2.GetDeploymentPluginMetadataRequest(**self._ids, key=key)
        answer = await ask(self._service.GetDeploymentPluginMetadata, request)
        return answer.value if answer.found else None

    async def put(self, key: str, value: str) -> None:
        self._stored.add(key)
        request = service_pb2.PutDeploymentPluginMetadataRequest(**self._ids, key=key, value=value)
        await ask(self._service.PutDeploymentPluginMetadata, request)

    async def put_many(self, values: Mapping[str, str]) -> None:
        self._stored.update(values)
        request = service_pb2.PutDeploymentPluginMetadataMultiRequest(**self._ids, metadata=values)
        await ask(self._service.PutDeploymentPluginMetadataMulti, request)


class ApplicationObjects(SharedObjects):
    """The objects of this plugin with one application."""

    def __init__(self, piped: PipedClient, application_id: str) -> None:
        self._service = piped.service
        self._ids = {"application_id": application_id, "plugin_name": piped.plugin}

    async def get(self, key: str) -> bytes | None:
        request = service_pb2.GetApplicationSharedObjectRequest(**self._ids, key=key)
        try:
            answer = await call(self._service.GetApplicationSharedObject, request, retry=RETRY)
        except CallError as error:
            if error.status == "NOT_FOUND":
                return None
            raise PipedError(str(error)) from error
        value: bytes = answer.object
        return value

    async def put(self, key: str, value: bytes) -> None:
        request = service_pb2.PutApplicationSharedObjectRequest(**self._ids, key=key, object=value)
        await ask(self._service.PutApplicationSharedObject, request)


async def get_shared_metadata(piped: PipedClient, deployment_id: str, key: str) -> str | None:
    """Returns a value that piped itself stores with a deployment, None when there is none."""
    request = service_pb2.GetDeploymentSharedMetadataRequest(deployment_id=deployment_id, key=key)
    answer = await ask(piped.service.GetDeploymentSharedMetadata, request)
    return answer.value if answer.found else None


class PipedTools(Tools):
    """Programs that piped installs."""

    def __init__(self, piped: PipedClient) -> None:
        super().__init__()
        self._service = piped.service

    async def get(self, tool: Tool) -> Path:
        request = service_pb2.InstallToolRequest(
            name=tool.name, version=tool.version, install_script=tool.script
        )
        try:
            # No deadline: a download takes its time, and the stage has a limit of its own.
            answer = await call(self._service.InstallTool, request, deadline=None)
        except CallError as error:
            raise ToolError(
                f"{tool.name} {tool.version} could not be installed: {error.message}"
            ) from error
        return Path(answer.installed_path)


class StageSecrets:
    """The secrets of one deployment, while a stage of it runs here."""

    def __init__(self, piped: PipedClient, deployment_id: str) -> None:
        self._piped = piped
        self._deployment_id = deployment_id

    async def open(self, name: str) -> str:
        """Returns the value of a secret. Raises StageFailedError."""
        if not self._piped.managed:
            return await refuse(name)
        request = plugin_pb2.DecryptSecretRequest(deployment_id=self._deployment_id, name=name)
        try:
            answer = await call(self._piped.management.DecryptSecret, request, retry=RETRY)
        except CallError as error:
            raise StageFailedError(f"the secret {name!r} is not to be had: {error}") from None
        return answer.value


class StageCommandStream:
    """Yields the commands of a stage as they come, each once. Its creator closes it."""

    def __init__(self, piped: PipedClient, deployment_id: str, stage_id: str) -> None:
        self._piped = piped
        self._ids = {"deployment_id": deployment_id, "stage_id": stage_id}
        self._seen: set[str] = set()
        self._reading = self._read()

    def __aiter__(self) -> AsyncIterator[StageCommand]:
        return self

    async def __anext__(self) -> StageCommand:
        return await anext(self._reading)

    async def aclose(self) -> None:
        await self._reading.aclose()

    async def _read(self) -> AsyncGenerator[StageCommand, None]:
        while self._piped.managed:
            try:
                async with aclosing(self._watch()) as watched:
                    async for message in watched:
                        if command := self._new(message):
                            yield command
            except CallError as error:
                if error.status == "UNIMPLEMENTED":
                    break
                log.debug("commands.broken", extra={"fields": {"error": str(error)}})
            await asyncio.sleep(REOPEN_PAUSE_SECONDS)
        while True:
            for message in await self._list():
                if command := self._new(message):
                    yield command
            await asyncio.sleep(self._piped.poll_interval_seconds)

    async def _watch(self) -> AsyncGenerator[command_pb2.Command, None]:
        request = plugin_pb2.WatchStageCommandsRequest(**self._ids)
        answers = stream(self._piped.management.WatchStageCommands, request)
        async with aclosing(answers):
            async for answer in answers:
                yield answer.command

    async def _list(self) -> Iterable[command_pb2.Command]:
        request = service_pb2.ListStageCommandsRequest(**self._ids)
        try:
            answer = await call(self._piped.service.ListStageCommands, request)
        except CallError as error:
            log.warning("commands.unread", extra={"fields": {"error": str(error)}})
            return ()
        return answer.commands

    def _new(self, message: command_pb2.Command) -> StageCommand | None:
        if message.id in self._seen:
            return None
        self._seen.add(message.id)
        return messages.command_of(message)
