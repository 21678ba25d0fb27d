# SPDX-License-Identifier: Apache-2.0
"""Runs the components of piped until a shutdown is requested, and then stops them in order.

The shutdown: take no new work, let stages end while their plugins stop, send the last reports,
disconnect.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from pipecd_model.config import PipedConfig
from pipecd_model.errors import PipecdError
from pipecd_piped.appconfig import Discovery
from pipecd_piped.controlplane.client import ControlPlane
from pipecd_piped.controlplane.epoch import lease_epoch
from pipecd_piped.controlplane.lease import Lease
from pipecd_piped.controlplane.state import ControlPlaneState
from pipecd_piped.controlplane.watch import Watch
from pipecd_piped.livestate.reporter import LiveStateReporter
from pipecd_piped.plugins import PluginHost, PluginStateReporter
from pipecd_piped.preview.handler import PlanPreviewHandler
from pipecd_piped.push_commands import PushCommandRunner
from pipecd_piped.questions import QuestionRunner
from pipecd_piped.report.agent import PipedMeta, Stats
from pipecd_piped.report.commands import CommandInbox
from pipecd_piped.report.outbox import Outbox
from pipecd_piped.schedule.chains import ChainTurns
from pipecd_piped.schedule.controller import Controller
from pipecd_piped.schedule.queue_reporter import QueueReporter
from pipecd_piped.scripts.records import ScriptRecords
from pipecd_piped.shutdown import ShutdownRequest
from pipecd_piped.trigger import Trigger
from pipecd_runtime.backoff import Backoff
from pipecd_runtime.logs import logger
from pipecd_wire.model.command_pb2 import Command
from pipecd_wire.rpc import ClientTls

log = logger(__name__)

RECORDS_SECONDS: Final = 2.0
"""Seconds at shutdown in which the script records of completed deployments are removed."""

SETTLE_SECONDS: Final = 10.0
"""Seconds in which the runs of deployments end after their plugins have stopped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of piped from the command line and its configuration file."""

    config: PipedConfig
    key: str
    tls: ClientTls | None
    data_dir: Path
    data_folder_id: str
    tools_dir: Path
    grace_seconds: float
    live_state_interval_seconds: float
    admin_port: int
    admin_host: str
    version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Agent:
    """The components of piped: runs them, and shuts them down."""

    settings: Settings
    shutdown: ShutdownRequest
    control: ControlPlane
    lease: Lease
    state: ControlPlaneState
    outbox: Outbox
    commands: CommandInbox
    host: PluginHost
    controller: Controller
    chains: ChainTurns
    records: ScriptRecords
    push_commands: PushCommandRunner
    questions: QuestionRunner
    trigger: Trigger
    discovery: Discovery
    live_states: LiveStateReporter
    previews: PlanPreviewHandler
    stats: Stats
    plugin_states: PluginStateReporter
    queue: QueueReporter
    meta: PipedMeta

    async def run(self) -> None:
        """Run all components until a shutdown is requested, then shut them down in order."""
        async with asyncio.TaskGroup() as tasks:

            def start(name: str, run: Callable[[], Awaitable[None]]) -> asyncio.Task[None]:
                """Start a component that runs only while this instance holds the lease."""
                held = partial(self.lease.run_while_held, run)
                return tasks.create_task(run_guarded(name, held), name=name)

            intake = [
                start("trigger", self.trigger.run),
                start("chains", self.chains.run),
                start("discovery", self.discovery.run),
                start("live states", self.live_states.run),
                start("previews", self.previews.run),
                start("restart", self._watch_for_restart),
                start("own commands", self.push_commands.run),
                start("questions", self.questions.run),
            ]
            working = [
                tasks.create_task(self._follow_control_plane(), name="control plane"),
                tasks.create_task(self._schedule(), name="controller"),
                tasks.create_task(run_guarded("lease", self._keep_lease), name="lease"),
                start("stats", self.stats.run),
                start("plugin states", self._tell_plugin_states),
                start("queue", self.queue.run),
                start("meta", self.meta.report_as_holder),
            ]
            await self.shutdown.requested.wait()
            for task in intake:
                task.cancel()
            await self._settle()
            for task in working:
                task.cancel()

    async def _follow_control_plane(self) -> None:
        settings = self.settings
        try:
            with lease_epoch(0):  # with or without the lease, this instance introduces itself
                await self.meta.introduce()
        except PipecdError as error:
            self.shutdown.fail(error)
            return
        # Deliver the reports of an earlier piped first: a stage that has ended is not run again.
        await self.outbox.wait_backlog_delivered()
        watch = Watch(
            self.control,
            self.state,
            self.lease,
            data_folder_id=settings.data_folder_id,
            on_own=self.push_commands.take,
            on_question=self.questions.take,
        )
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(
                run_guarded("script records", self.records.run), name="script records"
            )
            await run_guarded("watch", watch.run)

    async def _keep_lease(self) -> None:
        await self.lease.renew_forever(self.control)

    async def _tell_plugin_states(self) -> None:
        for plugin in self.host.plugins.values():
            self.plugin_states.on_change(plugin)  # another instance may have reported its own
        await self.plugin_states.run()

    async def _schedule(self) -> None:
        try:
            await self.controller.run()
        except Exception as bug:  # noqa: BLE001 - its knowledge of the deployments may be wrong
            log.bug("component.failed", component="controller")
            self.shutdown.fail(bug)

    async def _watch_for_restart(self) -> None:
        """Request a shutdown on a restart command; the service manager starts piped again."""
        async for change in self.state.changes():
            for command in change.commands:
                if command.type == Command.RESTART_PIPED and not self.shutdown.requested.is_set():
                    self.commands.finish(command)
                    self.shutdown.request(f"restart asked for by {command.commander or 'a person'}")

    async def _settle(self) -> None:
        """Start no further stage, stop the plugins, and wait until no deployment runs.

        Plugins finish the stages that cannot be interrupted.
        """
        self.controller.stop()
        async with asyncio.TaskGroup() as tasks:
            hurrying = tasks.create_task(self._hurry())
            await self.host.stop(self.settings.grace_seconds)
            try:
                async with asyncio.timeout(SETTLE_SECONDS):
                    await self.controller.wait_settled()
            except TimeoutError:
                log.error("piped.unsettled", deployments=self.controller.running)  # noqa: TRY400
            hurrying.cancel()
        if not self.shutdown.immediate.is_set():
            await self.records.settle(RECORDS_SECONDS)

    async def _hurry(self) -> None:
        await self.shutdown.immediate.wait()
        self.host.kill()


async def run_guarded(name: str, run: Callable[[], Awaitable[None]]) -> None:
    """Run a component for ever: one that ends or fails has a bug, and is restarted with backoff."""
    backoff = Backoff(first_seconds=1, longest_seconds=60, jitter=0)
    while True:
        try:
            await run()
            log.error("component.ended", component=name)
        except Exception:  # noqa: BLE001 - one of the doors: the others continue
            log.bug("component.failed", component=name)
        await asyncio.sleep(backoff.next_pause_seconds())
