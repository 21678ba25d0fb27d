# SPDX-License-Identifier: Apache-2.0
"""Where everything of piped is built, started and stopped, in this order and back.

Connection → reports → plugins → sources → the components that work. At the end the other way round:
take no new work, let stages settle while their plugins stop, send the last reports, disconnect.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from pipecd_model.catalogue import configured_names
from pipecd_model.config import PipedConfig
from pipecd_model.errors import PipecdError
from pipecd_model.ids import new_id
from pipecd_wire.model.command_pb2 import Command
from pipecd_wire.model.deployment_pb2 import Deployment
from pipecd_wire.pipedservice import service_pb2 as pb
from pipecd_wire.rpc import ClientTls
from piped.admin import Page, serving_admin
from piped.appconfig import ApplicationFiles, Discovery
from piped.git import repositories
from piped.health import Health
from piped.livestate.calls import LiveStateCalls
from piped.livestate.look import Looker
from piped.livestate.reporter import LiveStates
from piped.metrics import CONTENT_TYPE, Metrics, Numbers
from piped.mirror.controlplane import ControlPlane, connected
from piped.mirror.epoch import under
from piped.mirror.lease import Lease
from piped.mirror.mirror import Mirror
from piped.mirror.watch import Watch
from piped.oplog import logger
from piped.owncommands import OwnCommands
from piped.plan.masked import MaskedPlugins
from piped.plan.opened import OpenDeployments
from piped.plan.planner import Planner
from piped.plan.providers import with_targets
from piped.plan.sources import CommitSources
from piped.plugins import PluginBackend, PluginHost, Tools
from piped.preview.application import Previewer
from piped.preview.build import PreviewBuilder
from piped.preview.handler import PlanPreviews
from piped.report.agent import PluginStates, Stats, introduce
from piped.report.inorder import InOrder
from piped.report.journal import Journal
from piped.report.logs import StageLogs
from piped.report.masked import MaskedLogs
from piped.report.metadata import MetadataStores
from piped.report.outbox import Outbox
from piped.report.statuses import Statuses
from piped.schedule.controller import Controller
from piped.schedule.needs import Needs
from piped.schedule.run import DeploymentRun
from piped.schedule.successes import LastSuccesses
from piped.scripts import ScriptRecords
from piped.secrets import KnownSecrets, read_keys
from piped.source import Identity, Preparation, Sources
from piped.stopping import Stopping
from piped.trigger import ControlPlaneCalls, Trigger

log = logger(__name__)

LAST_REPORTS: Final = 5.0
"""Seconds that a stopping piped gives its last reports and log lines."""

SETTLE: Final = 10.0
"""Seconds in which deployments let go after their plugins have gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What the command line decides."""

    config: PipedConfig
    key: str
    tls: ClientTls | None
    data_dir: Path
    data_folder_id: str
    tools_dir: Path
    grace: float
    live_state_interval: float
    admin_port: int
    version: str


async def run(settings: Settings) -> None:
    """Run piped until it is told to stop; raises the PipecdError that made it impossible."""
    stopping = Stopping()
    with stopping.on_signals():
        async with AsyncExitStack() as opened:
            piped = await build(settings, stopping, opened)
            await piped.run()
    if stopping.failure is not None:
        raise stopping.failure


async def build(settings: Settings, stopping: Stopping, opened: AsyncExitStack) -> "Piped":
    """Open every part; the stack closes them in the opposite order."""
    config, data_dir = settings.config, settings.data_dir
    lease = Lease(new_id(), data_dir / "lease")
    control = await opened.enter_async_context(
        connected(
            config.api_address,
            project_id=config.project_id,
            piped_id=config.piped_id,
            key=settings.key,
            tls=settings.tls,
            also=lease.metadata,
        )
    )
    opened.push_async_callback(lease.release, control)  # after the last reports
    mirror = Mirror()
    outbox = Outbox(control.deliver, Journal(data_dir / "outbox"), lease.epoch_now)
    await opened.enter_async_context(outbox.open(drain=LAST_REPORTS))
    statuses = Statuses(outbox, control.deliver)
    keys = read_keys(config.secret_management)
    known = KnownSecrets()
    spooled = StageLogs(control, data_dir / "outbox" / "logs")
    logs = MaskedLogs(spooled, known)
    await opened.enter_async_context(logs.open(drain=LAST_REPORTS))
    metadata = MetadataStores(InOrder(control, statuses.heard), statuses.keep)
    host = PluginHost(
        config.plugins,
        data_dir=data_dir,
        backend=PluginBackend(
            logs=logs,
            metadata=metadata,
            commands=mirror,
            control=control,
            tools=Tools(settings.tools_dir),
            secrets=known,
        ),
        grace=settings.grace,
    )
    states = PluginStates(control, host.plugins.values())
    host.on_change = states.changed
    await opened.enter_async_context(host)
    repos = repositories(config, data_dir)
    for repository in repos.values():
        await opened.enter_async_context(repository)
    identity = Identity(name=config.git.username, email=config.git.email)

    def names() -> dict[str, str]:
        """How the well-known plugins are called here, for files of the older kinds."""
        return configured_names({name: each.stages for name, each in host.plugins.items()})

    preparation = Preparation(names=names, keys=keys, known=known)
    trees = await opened.enter_async_context(
        Sources(data_dir, repos, identity=identity, preparation=preparation)
    )
    sources = CommitSources(trees)
    plugins = MaskedPlugins(host, known)
    needs = Needs(
        planner=Planner(plugins, sources, secrets=known.of),
        plugins=plugins,
        sources=sources,
        statuses=statuses,
        commands=mirror,
        metadata=OpenDeployments(metadata, known),
        successes=LastSuccesses(mirror.applications, control),
        permit=lease,
        stored=lambda deployment_id: stored(control, deployment_id),
        clock=time.time,
    )
    records = ScriptRecords(
        data_dir / "scripts",
        kept=statuses.kept,
        stored=needs.stored,
        running=lambda: controller.running,
    )
    health = Health(
        plugins=host.plugins,
        repositories=repos,
        connected=lambda: control.is_connected,
        fault=lambda: outbox.fault or spooled.fault,
        holds_lease=lambda: lease.held,
    )
    metrics = Metrics(
        health=health,
        numbers=Numbers(
            running=lambda: len(controller.running),
            waiting=lambda: sum(map(len, controller.queue.values())),
            reports=lambda: outbox.waiting,
            deployments=lambda: list(mirror.deployments.values()),
        ),
        labels={
            "pipecd_component": "piped",
            "piped": config.piped_id,
            "piped_version": settings.version,
            "project": config.project_id,
        },
    )

    def completed(deployment: Deployment) -> None:
        records.completed(deployment)
        metrics.completed(deployment)
        live_states.look_at(deployment.application_id)

    controller = Controller(
        mirror,
        statuses,
        lambda deployment: DeploymentRun(with_targets(deployment, config.plugins), needs),
        needs.stored,
        lease,
        on_completed=completed,
    )
    files = ApplicationFiles(names=names)
    discovery = Discovery(
        piped_id=config.piped_id,
        repositories=repos,
        mirror=mirror,
        files=files,
        reports=outbox,
        selector=config.app_selector,
    )
    calls = ControlPlaneCalls(control, outbox)
    trigger = Trigger(
        repositories=repos,
        mirror=mirror,
        configs=files,
        calls=calls,
        on_created=controller.on_created,
    )
    live_states = LiveStates(
        mirror=mirror,
        looker=Looker(
            plugins=host.plugins, configs=config.plugins, sources=sources, mask=known.mask
        ),
        successes=needs.successes,
        tell_live_state=LiveStateCalls(control).tell,
        tell_sync_state=calls.sync_state,
        is_deploying=mirror.is_deploying,
        is_in_trouble=trigger.is_in_trouble,
        interval=settings.live_state_interval,
    )
    previews = PlanPreviews(
        piped_id=config.piped_id,
        mirror=mirror,
        builder=PreviewBuilder(
            repositories=repos,
            mirror=mirror,
            configs=files,
            previewer=Previewer(
                planner=needs.planner,
                plugins=host.plugins,
                configs=config.plugins,
                sources=sources,
                mask=known.mask,
                clock=time.time,
            ),
        ),
        outbox=outbox,
    )
    pages = {
        "/healthz": lambda: Page(body="ok"),
        "/readyz": lambda: ready_page(health),
        "/metrics": lambda: Page(body=metrics.text(), content_type=CONTENT_TYPE),
        "/version": lambda: Page(body=f"{settings.version}\n"),
    }
    await opened.enter_async_context(serving_admin(settings.admin_port, pages))
    return Piped(
        settings=settings,
        stopping=stopping,
        public_key=keys.public if keys is not None else "",
        control=control,
        lease=lease,
        mirror=mirror,
        outbox=outbox,
        statuses=statuses,
        host=host,
        controller=controller,
        records=records,
        own=OwnCommands(control, host.restart),
        trigger=trigger,
        discovery=discovery,
        live_states=live_states,
        previews=previews,
        stats=Stats(control, metrics.text),
        states=states,
    )


def ready_page(health: Health) -> Page:
    """The answer to a probe of readiness."""
    ready, body = health.readiness()
    return Page(
        body=body,
        status="200 OK" if ready else "503 Service Unavailable",
        content_type="application/json",
    )


async def stored(control: ControlPlane, deployment_id: str) -> Deployment:
    """A deployment as the control plane has it."""
    request = pb.GetDeploymentRequest(id=deployment_id)
    return (await control.ask(control.service.GetDeployment, request)).deployment


@dataclass(frozen=True, slots=True, kw_only=True)
class Piped:
    """The parts, put together: what runs, and how it ends."""

    settings: Settings
    stopping: Stopping
    control: ControlPlane
    lease: Lease
    mirror: Mirror
    outbox: Outbox
    statuses: Statuses
    host: PluginHost
    controller: Controller
    records: ScriptRecords
    own: OwnCommands
    trigger: Trigger
    discovery: Discovery
    live_states: LiveStates
    previews: PlanPreviews
    stats: Stats
    states: PluginStates
    public_key: str
    """Closes secrets for this piped; empty when it opens none."""

    async def run(self) -> None:
        """Work until it is told to stop, then let everything settle."""
        async with asyncio.TaskGroup() as tasks:

            def start(name: str, run: Callable[[], Awaitable[None]]) -> asyncio.Task[None]:
                """Start what only the instance at work does."""
                held = partial(self.lease.while_held, run)
                return tasks.create_task(guarded(name, held), name=name)

            intake = [
                start("trigger", self.trigger.run),
                start("discovery", self.discovery.run),
                start("live states", self.live_states.run),
                start("previews", self.previews.run),
                start("restart", self._watch_for_restart),
                start("own commands", self.own.run),
            ]
            working = [
                tasks.create_task(self._follow_control_plane(), name="control plane"),
                tasks.create_task(self._schedule(), name="controller"),
                tasks.create_task(guarded("lease", self._keep_lease), name="lease"),
                start("stats", self.stats.run),
                start("plugin states", self._tell_plugin_states),
            ]
            await self.stopping.asked.wait()
            for task in intake:
                task.cancel()
            await self._settle()
            for task in working:
                task.cancel()

    async def _follow_control_plane(self) -> None:
        settings = self.settings
        try:
            with under(0):  # whoever holds the lease, this instance says who it is
                await introduce(
                    self.control,
                    settings.config,
                    version=settings.version,
                    public_key=self.public_key,
                )
        except PipecdError as error:
            self.stopping.fail(error)
            return
        # What an earlier piped could not tell comes first: a stage that has ended is not run again.
        await self.outbox.left_taken()
        watch = Watch(
            self.control,
            self.mirror,
            self.lease,
            data_folder_id=settings.data_folder_id,
            on_own=self.own.take,
        )
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(guarded("script records", self.records.run), name="script records")
            await guarded("watch", watch.run)

    async def _keep_lease(self) -> None:
        await self.lease.keep(self.control)

    async def _tell_plugin_states(self) -> None:
        for plugin in self.host.plugins.values():
            self.states.changed(plugin)  # another instance may have told of its own
        await self.states.run()

    async def _schedule(self) -> None:
        try:
            await self.controller.run()
        except Exception as bug:  # noqa: BLE001 - what it knew of its deployments is not to be trusted
            log.bug("component.failed", component="controller")
            self.stopping.fail(bug)

    async def _watch_for_restart(self) -> None:
        """Stop when a person asks for a restart; whoever watches piped starts it again."""
        async for change in self.mirror.changes():
            for command in change.commands:
                if command.type == Command.RESTART_PIPED and not self.stopping.asked.is_set():
                    self.statuses.handled(command)
                    self.mirror.handled(command.id)
                    self.stopping.ask(f"restart asked for by {command.commander or 'a person'}")

    async def _settle(self) -> None:
        """No new stage; plugins are told to stop, and finish what cannot be left."""
        self.controller.stop()
        async with asyncio.TaskGroup() as tasks:
            hurrying = tasks.create_task(self._hurry())
            await self.host.stop(self.settings.grace)
            try:
                async with asyncio.timeout(SETTLE):
                    await self.controller.settled()
            except TimeoutError:
                log.error("piped.unsettled", deployments=self.controller.running)  # noqa: TRY400
            hurrying.cancel()

    async def _hurry(self) -> None:
        await self.stopping.at_once.wait()
        self.host.kill()


async def guarded(name: str, run: Callable[[], Awaitable[None]]) -> None:
    """Run a component for ever: one that ends by itself has a bug, and is started again."""
    pause = 1.0
    while True:
        try:
            await run()
            log.error("component.ended", component=name)
        except Exception:  # noqa: BLE001 - one of the doors: the others go on
            log.bug("component.failed", component=name)
        await asyncio.sleep(pause)
        pause = min(60.0, pause * 2)
