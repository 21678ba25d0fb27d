# SPDX-License-Identifier: Apache-2.0
"""A plugin's process: everything is built here, and ends here in the right order."""

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Coroutine, Iterator, Sequence
from typing import Final

from pipecd_runtime.peer import has_ipv6
from pipecd_sdk._glue import flags as command_line
from pipecd_sdk._glue.entry import Setup, read_entry, set_up
from pipecd_sdk._glue.execute import ExecuteApi, WaitApi
from pipecd_sdk._glue.flags import Flags
from pipecd_sdk._glue.logging_setup import set_up_logging
from pipecd_sdk._glue.management import (
    Invitation,
    RefusedError,
    announce,
    authenticator_of,
    keep_pinging,
    take_invitation,
)
from pipecd_sdk._glue.parent import OrphanedError, die_with_parent
from pipecd_sdk._glue.piped import PipedClient
from pipecd_sdk._glue.plan import ConfigApi, PlanApi
from pipecd_sdk._glue.running import StageRuns
from pipecd_sdk.clock import Clock
from pipecd_sdk.config import OptionFaultsError
from pipecd_sdk.plugin import StagePlugin
from pipecd_wire.headers import PLUGIN_TOKEN_HEADER
from pipecd_wire.pipecd.plugin import plugin_pb2
from pipecd_wire.plugin.deploymentapi import api_pb2
from pipecd_wire.rpc import AddressError, Endpoints, Server, ServerTls, admit_all, connect

log = logging.getLogger(__name__)

FAILED: Final = 1
MISCONFIGURED: Final = 2
LAST_ANSWERS_SECONDS: Final = 1.0
"""Seconds to send the responses that are already made."""


def main(plugin: StagePlugin, *, version: str, args: Sequence[str]) -> int:
    """Runs a plugin's process until it is stopped; returns its exit code."""
    invitation = take_invitation()
    flags = command_line.parse(args, name=os.path.basename(sys.argv[0]), version=version)  # noqa: PTH119
    set_up_logging(flags.log_level, flags.log_encoding)
    try:
        die_with_parent()
        setup = set_up(plugin, read_entry(flags))
    except OptionFaultsError as error:
        log.error("%s", error)  # noqa: TRY400 - the author's mistake, not ours: no traceback
        return MISCONFIGURED
    except (OrphanedError, OSError) as error:
        log.error("%s", error)  # noqa: TRY400
        return FAILED
    return asyncio.run(_Process(plugin, version, flags, setup, invitation).run())


class _Process:
    def __init__(
        self,
        plugin: StagePlugin,
        version: str,
        flags: Flags,
        setup: Setup,
        invitation: Invitation,
    ) -> None:
        self._plugin = plugin
        self._version = version
        self._flags = flags
        self._setup = setup
        self._invitation = invitation
        self._asked = asyncio.Event()
        self._insisted = asyncio.Event()
        self._exit_code = 0

    async def run(self) -> int:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_signal)
        token = self._invitation.token
        metadata = [(PLUGIN_TOKEN_HEADER, token)] if token else []
        try:
            async with connect(self._flags.piped, metadata=lambda: metadata) as channel:
                piped = PipedClient(channel, plugin=self._setup.name, managed=bool(token))
                async with asyncio.TaskGroup() as tasks:
                    await self._serve(piped, tasks)
        except* (RefusedError, AddressError) as failures:
            for error in failures.exceptions:
                log.error("%s", error)  # noqa: TRY400 - a sentence for the operator
            self._exit_code = FAILED
        return self._exit_code

    async def _serve(self, piped: PipedClient, tasks: asyncio.TaskGroup) -> None:
        running = StageRuns(tasks)
        endpoints = Endpoints(admit=admit_all)
        endpoints.add(
            api_pb2.DESCRIPTOR.services_by_name["DeploymentService"],
            PlanApi(self._plugin, self._setup, piped),
            ExecuteApi(self._plugin, self._setup, piped, running, Clock()),
        )
        if any(f"pipecd_sdk.{module}" in sys.modules for module in ("livestate", "preview")):
            # A plugin that has an interface has loaded its module; no other plugin pays for it.
            from pipecd_sdk._glue.observe import add_observation  # noqa: PLC0415

            add_observation(endpoints, self._plugin, self._setup, piped, Clock())
        if "pipecd_sdk.details" in sys.modules:
            from pipecd_sdk._glue.details import add_details  # noqa: PLC0415

            add_details(endpoints, self._plugin, self._setup, piped, Clock())
        services = plugin_pb2.DESCRIPTOR.services_by_name
        endpoints.add(services["PluginConfigService"], ConfigApi(self._plugin))
        endpoints.add(services["PluginStageService"], WaitApi(running))
        server = Server(
            endpoints,
            max_message=self._plugin.largest_message,
            authenticator=authenticator_of(self._invitation),
        )
        port = self._listen(server)
        await server.start()
        log.info("plugin.serving", extra={"fields": {"plugin": self._setup.name, "port": port}})
        background = [
            tasks.create_task(each, name=name) for name, each in self._background(piped, port)
        ]
        try:
            await self._asked.wait()
            grace_seconds = self._flags.grace_period.total_seconds()
            if not await running.stop(grace_seconds=grace_seconds, insisted=self._insisted):
                # A handler that does not end must not keep the process beyond its grace period.
                log.error("plugin.stuck", extra={"fields": {"plugin": self._setup.name}})
                os._exit(FAILED)
        finally:
            await server.stop(LAST_ANSWERS_SECONDS)
        for task in background:
            task.cancel()

    def _background(
        self, piped: PipedClient, port: int
    ) -> Iterator[tuple[str, Coroutine[None, None, None]]]:
        """Yields what runs beside the calls of piped, until the process ends."""
        yield "management", self._manage(piped, port)
        if "pipecd_sdk.livestate" in sys.modules:
            from pipecd_sdk._glue.announce import keep_watching  # noqa: PLC0415
            from pipecd_sdk.livestate import LiveWatch  # noqa: PLC0415

            plugin: object = self._plugin
            if isinstance(plugin, LiveWatch):
                yield "watch", keep_watching(plugin, self._setup, piped)

    def _listen(self, server: Server) -> int:
        """Binds the port that piped chose, or a free one that Ready reports; returns the port."""
        tls = None
        if self._flags.tls and self._flags.cert_file and self._flags.key_file:
            tls = ServerTls(
                certificate=self._flags.cert_file.read_bytes(),
                key=self._flags.key_file.read_bytes(),
            )
        if self._flags.config_fd is not None or not self._setup.port:
            return server.listen("127.0.0.1:0", tls)
        # Every agent is on this machine and dials `localhost`, which may be either family. Both are
        # taken, or none: a process that has the other would get the agent's calls.
        port = server.listen(f"127.0.0.1:{self._setup.port}", tls)
        if has_ipv6():
            server.listen(f"[::1]:{port}", tls)
        return port

    async def _manage(self, piped: PipedClient, port: int) -> None:
        if not piped.managed:
            return
        interval = await announce(
            piped,
            version=self._version,
            port=port,
            stages_without_files=[
                each.name for each in self._plugin.stages.values() if not each.needs_files
            ],
        )
        if interval is None:
            piped.managed = False
        else:
            await keep_pinging(piped, interval)

    def _on_signal(self) -> None:
        if self._asked.is_set():
            self._insisted.set()
        self._asked.set()
