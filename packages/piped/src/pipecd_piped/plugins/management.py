# SPDX-License-Identifier: Apache-2.0
"""Plugin management: the RPCs that a plugin with a token can call on its private port of piped.

`PluginSession` holds what piped knows of one process from these calls; the supervisor watches it.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any, Final

from google.protobuf.duration_pb2 import Duration

from pipecd_model.errors import ConfigError, DeniedError, StateError, UnauthenticatedError
from pipecd_piped.plugins.backend import PluginBackend
from pipecd_piped.plugins.running import RunningStages
from pipecd_piped.plugins.service import MetadataApi, SharedObjectsApi, StageApi
from pipecd_piped.programs.cancel_group import GroupEndedError
from pipecd_piped.report.numbering import RenumberedLogs
from pipecd_wire.headers import PLUGIN_TOKEN_HEADER, PLUGIN_TOKEN_VARIABLE
from pipecd_wire.pipecd.plugin import plugin_pb2 as pb
from pipecd_wire.pluginservice import service_pb2
from pipecd_wire.rpc import (
    Authenticator,
    Endpoints,
    IncomingCall,
    Metadata,
    Method,
    has_token,
    require_own_user,
    rpc,
)

MANAGEMENT: Final = pb.DESCRIPTOR.services_by_name["PluginManagementService"]
SERVICE: Final = service_pb2.DESCRIPTOR.services_by_name["PluginService"]


class PluginSession:
    """What one plugin process has shown of itself: its Ready, its pings, its token."""

    def __init__(self, *, token: str, piped_token: str = "", port: int) -> None:
        """`token` authenticates the plugin to piped, `piped_token` piped to the plugin.

        `port`: the port on which it has to serve; 0 for a package, which chooses one.
        """
        self.token = token
        self.piped_token = piped_token
        self.port = port
        self.ready: asyncio.Future[pb.ReadyRequest] = asyncio.get_running_loop().create_future()
        self.last_ping = 0.0
        self.given_up = False
        self.proved = False
        """Whether the process has sent its token."""

    @property
    def has_token(self) -> bool:
        """Whether the process is known to use the token; a plugin of upstream's does not."""
        return not self.port or self.ready.done()

    def mark_alive(self) -> None:
        """Record that the process is alive now."""
        self.last_ping = asyncio.get_running_loop().time()


class ManagementApi:
    """The PluginManagementService for one process."""

    def __init__(
        self,
        session: PluginSession,
        *,
        ping_interval_seconds: float,
        running: RunningStages,
        backend: PluginBackend,
        plugin: str = "",
    ) -> None:
        """`plugin`: the name of the plugin, as the configuration has it."""
        self._session = session
        self._interval = Duration(
            nanos=int(ping_interval_seconds % 1 * 1e9), seconds=int(ping_interval_seconds)
        )
        self._running = running
        self._backend = backend
        self._plugin = plugin

    @rpc("Ready")
    async def ready(self, _: Any, request: pb.ReadyRequest) -> pb.ReadyResponse:
        session = self._session
        if session.given_up:
            raise StateError("piped has given up on this process", hint="exit")
        if session.port and request.port != session.port:
            raise ConfigError(
                f"the plugin serves on port {request.port}, not on {session.port}",
                hint="serve on the port that the configuration names",
            )
        session.mark_alive()
        if not session.ready.done():
            session.ready.set_result(request)
        return pb.ReadyResponse(ping_interval=self._interval)

    @rpc("Ping")
    async def ping(self, _: Any, _request: pb.PingRequest) -> pb.PingResponse:
        self._session.mark_alive()
        return pb.PingResponse()

    @rpc("DecryptSecret")
    async def decrypt_secret(
        self, _: Any, request: pb.DecryptSecretRequest
    ) -> pb.DecryptSecretResponse:
        if not self._running.has_deployment(request.deployment_id):
            raise DeniedError(
                f"the plugin runs no stage of the deployment {request.deployment_id!r}"
            )
        value = self._backend.secrets.value(request.deployment_id, request.name)
        return pb.DecryptSecretResponse(value=value)

    @rpc("AnnounceLiveStates")
    async def announce_live_states(
        self, _: Any, request: pb.AnnounceLiveStatesRequest
    ) -> pb.AnnounceLiveStatesResponse:
        self._session.mark_alive()
        self._backend.announce_live_states(self._plugin, request.application_ids)
        return pb.AnnounceLiveStatesResponse()

    @rpc("WatchStageCommands")
    async def watch_stage_commands(
        self, _: Any, request: pb.WatchStageCommandsRequest
    ) -> AsyncIterator[pb.WatchStageCommandsResponse]:
        group = self._running.cancel_group(request.deployment_id, request.stage_id)
        if group is None:
            return
        watching = self._backend.commands.watch_stage_commands(
            request.deployment_id, request.stage_id
        )
        async with aclosing(watching) as commands:
            while True:
                try:
                    async with group.scope():
                        command = await anext(commands)
                except (GroupEndedError, StopAsyncIteration):
                    return
                yield pb.WatchStageCommandsResponse(command=command)


def endpoints_of(
    plugin: str, session: PluginSession, management: ManagementApi, backend: PluginBackend
) -> Endpoints:
    """Returns all that is served on the private port of one process, see `authenticator_of`."""

    async def admit(method: Method, metadata: Metadata) -> None:
        # The authenticator has already verified a token that is present.
        if method.service == MANAGEMENT.full_name and PLUGIN_TOKEN_HEADER not in metadata:
            raise _wrong_token(plugin)
        session.proved = session.proved or PLUGIN_TOKEN_HEADER in metadata

    # A plugin that sends the token numbers its log lines as piped does; others restart at 1.
    logs = RenumberedLogs(backend.logs, backend.numbers, lambda: not session.proved)
    endpoints = Endpoints(admit=admit)
    endpoints.add(
        SERVICE,
        StageApi(plugin, backend, logs),
        MetadataApi(plugin, backend),
        SharedObjectsApi(backend),
    )
    endpoints.add(MANAGEMENT, management)
    return endpoints


def authenticator_of(plugin: str, session: PluginSession) -> Authenticator:
    """Returns the authenticator of the private port of one process: a caller needs its token.

    A plugin of upstream's does not know the token. Until a process has shown that it does, a call
    without a token is accepted from a process of our own user.
    """

    async def authenticate(call: IncomingCall) -> None:
        if PLUGIN_TOKEN_HEADER not in call.metadata and not session.has_token:
            await require_own_user(call)
        elif not has_token(call, PLUGIN_TOKEN_HEADER, session.token):
            raise _wrong_token(plugin)

    return authenticate


def _wrong_token(plugin: str) -> UnauthenticatedError:
    return UnauthenticatedError(
        f"this is not the token of the plugin {plugin!r}",
        hint=f"send what {PLUGIN_TOKEN_VARIABLE} held as {PLUGIN_TOKEN_HEADER}",
    )
