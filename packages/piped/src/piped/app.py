# SPDX-License-Identifier: Apache-2.0
"""Builds all components of piped in order, and closes them in the opposite order.

Connection → reports → plugins → files → work: what runs deployments, watches and reports.
"""

import time
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass
from functools import partial
from typing import Final

from pipecd_model.config import PluginConfig
from pipecd_model.ids import new_id
from pipecd_model.known_plugins import find_configured_names
from pipecd_wire.model.deployment_pb2 import Deployment
from pipecd_wire.pipedservice import service_pb2 as pb
from piped.admin import AdminPage, serving_admin
from piped.agent import Agent, Settings
from piped.appconfig import ApplicationFiles, Discovery
from piped.controlplane.client import ControlPlane, connected
from piped.controlplane.lease import Lease
from piped.controlplane.state import ControlPlaneState
from piped.facts import DeploymentCompleted, Facts
from piped.git import Repository, repositories
from piped.health import PipedHealth
from piped.livestate.reader import LiveStateReader
from piped.livestate.reporter import LiveStateReporter
from piped.metrics import CONTENT_TYPE, Numbers, PipedMetrics
from piped.plan.planner import Planner
from piped.plan.providers import add_targets
from piped.plan.scope import DeploymentScope
from piped.plugins import PluginBackend, PluginHost, PluginStateReporter, ToolsFolder
from piped.preview.application import Previewer
from piped.preview.build import PreviewBuilder
from piped.preview.handler import PlanPreviewHandler
from piped.push_commands import PushCommandRunner
from piped.report.agent import Stats
from piped.report.commands import CommandInbox
from piped.report.journal import Journal
from piped.report.logs import SpooledStageLogs
from piped.report.masked import MaskedLogs
from piped.report.metadata import MetadataStores
from piped.report.numbering import LineNumbers
from piped.report.ordered import OrderedClient
from piped.report.outbox import Outbox
from piped.report.statuses import StatusReporter
from piped.schedule.controller import Controller
from piped.schedule.run import DeploymentRun
from piped.schedule.services import RunServices
from piped.schedule.successes import LastSuccessful
from piped.scripts.ending import RunningScripts
from piped.scripts.records import ScriptRecords
from piped.secrets import KnownSecrets, SecretKeys, read_keys
from piped.shutdown import ShutdownRequest
from piped.source import GitIdentity, Preparation, SourceProvider
from piped.trigger import ControlPlaneCalls, Trigger, TriggerServices

LAST_REPORTS_SECONDS: Final = 5.0
"""Seconds in which the last reports and log lines are delivered at shutdown."""


async def run(settings: Settings) -> None:
    """Run piped until a shutdown is requested; raises the error that made it stop, if any."""
    shutdown = ShutdownRequest()
    with shutdown.on_signals():
        async with AsyncExitStack() as opened:
            agent = await build(settings, shutdown, opened)
            await agent.run()
    if shutdown.failure is not None:
        raise shutdown.failure


async def build(settings: Settings, shutdown: ShutdownRequest, opened: AsyncExitStack) -> Agent:
    """Build and open every component; the stack closes them in the opposite order."""
    connection = await _open_connection(settings, opened)
    reports = await _open_reports(settings, connection, opened)
    plugins = await _open_plugins(settings, connection, reports, opened)
    files = await _open_files(settings, reports, plugins, opened)
    running = _build_running(settings, connection, reports, plugins, files)
    health = PipedHealth(
        plugins=plugins.host.plugins,
        repositories=lambda: {name: each.state for name, each in files.repositories.items()},
        connected=lambda: connection.control.is_connected,
        fault=lambda: reports.outbox.fault or reports.spooled.fault,
        holds_lease=lambda: connection.lease.held,
    )
    metrics = _build_metrics(settings, connection, reports, running, health)
    calls = ControlPlaneCalls(connection.control, reports.facts, reports.commands)
    trigger = Trigger(
        files.repositories,
        TriggerServices(
            state=connection.state,
            configs=files.configs,
            calls=calls,
            on_created=running.controller.on_created,
        ),
    )
    live_states = _build_live_states(
        settings, connection, reports, plugins, files, running, trigger, calls
    )
    _subscribe(reports, running.records, metrics, live_states)
    await opened.enter_async_context(_serving_pages(settings, health, metrics))
    return Agent(
        settings=settings,
        shutdown=shutdown,
        public_key=reports.keys.public if reports.keys is not None else "",
        control=connection.control,
        lease=connection.lease,
        state=connection.state,
        outbox=reports.outbox,
        commands=reports.commands,
        host=plugins.host,
        controller=running.controller,
        records=running.records,
        push_commands=PushCommandRunner(connection.control, plugins.host.restart),
        trigger=trigger,
        discovery=Discovery(
            piped_id=settings.config.piped_id,
            repositories=files.repositories,
            state=connection.state,
            files=files.configs,
            reports=reports.outbox,
            selector=settings.config.app_selector,
        ),
        live_states=live_states,
        previews=_build_previews(settings, connection, reports, plugins, files, running),
        stats=Stats(connection.control, metrics.text),
        plugin_states=plugins.states,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Connection:
    """The connection to the control plane, the lease, and the state that the control plane sent."""

    control: ControlPlane
    lease: Lease
    state: ControlPlaneState


async def _open_connection(settings: Settings, opened: AsyncExitStack) -> _Connection:
    config = settings.config
    lease = Lease(new_id(), settings.data_dir / "lease")
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
    return _Connection(control=control, lease=lease, state=ControlPlaneState())


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reports:
    """Everything that reports to the control plane, and the secrets that are masked in reports."""

    facts: Facts
    outbox: Outbox
    statuses: StatusReporter
    commands: CommandInbox
    keys: SecretKeys | None
    secrets: KnownSecrets
    spooled: SpooledStageLogs
    logs: MaskedLogs
    numbers: LineNumbers
    metadata: MetadataStores


async def _open_reports(
    settings: Settings, connection: _Connection, opened: AsyncExitStack
) -> _Reports:
    control, folder = connection.control, settings.data_dir / "outbox"
    outbox = Outbox(control.deliver_named, Journal(folder), connection.lease.epoch_now)
    await opened.enter_async_context(outbox.open(drain=LAST_REPORTS_SECONDS))
    facts = Facts()
    statuses = StatusReporter(outbox, control.deliver_named)
    statuses.subscribe_to(facts)
    keys = read_keys(settings.config.secret_management)
    secrets = KnownSecrets()
    spooled = SpooledStageLogs(control, folder / "logs")
    logs = MaskedLogs(spooled, secrets)
    await opened.enter_async_context(logs.open(drain=LAST_REPORTS_SECONDS))
    numbers = LineNumbers(folder / "numbers")
    numbers.prune()
    ordered = OrderedClient(control, statuses.wait_delivered)
    return _Reports(
        facts=facts,
        outbox=outbox,
        statuses=statuses,
        commands=CommandInbox(connection.state, outbox),
        keys=keys,
        secrets=secrets,
        spooled=spooled,
        logs=logs,
        numbers=numbers,
        metadata=MetadataStores(ordered, statuses.put_durably),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plugins:
    """The plugin processes, and the reporter of their states."""

    host: PluginHost
    states: PluginStateReporter


async def _open_plugins(
    settings: Settings, connection: _Connection, reports: _Reports, opened: AsyncExitStack
) -> _Plugins:
    host = PluginHost(
        settings.config.plugins,
        data_dir=settings.data_dir,
        backend=PluginBackend(
            logs=reports.logs,
            metadata=reports.metadata,
            commands=connection.state,
            control=connection.control,
            tools=ToolsFolder(settings.tools_dir),
            numbers=reports.numbers,
            secrets=reports.secrets,
        ),
        grace_seconds=settings.grace,
    )
    states = PluginStateReporter(connection.control, host.plugins.values(), reports.facts)
    host.on_change = states.on_change
    await opened.enter_async_context(host)
    return _Plugins(host=host, states=states)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Files:
    """The git repositories, the worktrees of their commits, and the application files."""

    repositories: dict[str, Repository]
    sources: SourceProvider
    configs: ApplicationFiles


async def _open_files(
    settings: Settings, reports: _Reports, plugins: _Plugins, opened: AsyncExitStack
) -> _Files:
    config = settings.config
    repos = repositories(config, settings.data_dir)
    for repository in repos.values():
        await opened.enter_async_context(repository)
    names = partial(plugin_names, plugins.host)
    sources = SourceProvider(
        settings.data_dir,
        repos,
        identity=GitIdentity(name=config.git.username, email=config.git.email),
        preparation=Preparation(names=names, keys=reports.keys, known=reports.secrets),
    )
    return _Files(
        repositories=repos,
        sources=await opened.enter_async_context(sources),
        configs=ApplicationFiles(names=names),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Running:
    """The components that run deployments."""

    services: RunServices
    controller: Controller
    records: ScriptRecords


def _build_running(
    settings: Settings,
    connection: _Connection,
    reports: _Reports,
    plugins: _Plugins,
    files: _Files,
) -> _Running:
    scripts = RunningScripts(settings.data_dir / "scripts")
    services = RunServices(
        planner=Planner(plugins.host, files.sources, secrets=reports.secrets.find_secrets),
        plugins=plugins.host,
        sources=files.sources,
        facts=reports.facts,
        reports=reports.statuses,
        commands=reports.commands,
        scope=DeploymentScope(reports.metadata, reports.secrets),
        successes=LastSuccessful(connection.state.applications, connection.control),
        permit=connection.lease,
        scripts=scripts,
        read_deployment=partial(read_deployment, connection.control),
        clock=time.time,
    )
    controller = Controller(
        connection.state,
        reports.statuses,
        reports.commands,
        partial(make_run, services, settings.config.plugins),
        services.read_deployment,
        connection.lease,
        on_handed_over=scripts.end_all,
    )
    records = ScriptRecords(
        settings.data_dir / "scripts",
        kept=reports.statuses.wait_durable,
        stored=services.read_deployment,
        running=lambda: controller.running,
    )
    return _Running(services=services, controller=controller, records=records)


def _build_metrics(
    settings: Settings,
    connection: _Connection,
    reports: _Reports,
    running: _Running,
    health: PipedHealth,
) -> PipedMetrics:
    controller, state = running.controller, connection.state
    return PipedMetrics(
        health=health,
        numbers=Numbers(
            running=lambda: len(controller.running),
            waiting=lambda: sum(map(len, controller.queue.values())),
            reports=lambda: reports.outbox.waiting,
            deployments=lambda: list(state.deployments.values()),
        ),
        labels={
            "pipecd_component": "piped",
            "piped": settings.config.piped_id,
            "piped_version": settings.version,
            "project": settings.config.project_id,
        },
    )


def _build_live_states(
    settings: Settings,
    connection: _Connection,
    reports: _Reports,
    plugins: _Plugins,
    files: _Files,
    running: _Running,
    trigger: Trigger,
    calls: ControlPlaneCalls,
) -> LiveStateReporter:
    reader = LiveStateReader(
        plugins=plugins.host.plugins,
        configs=settings.config.plugins,
        sources=files.sources,
    )
    return LiveStateReporter(
        state=connection.state,
        reader=reader,
        lanes=reader.lanes,
        lane_of=reader.lane_of,
        successes=running.services.successes,
        report_live_state=connection.control.report_live_state,
        report_sync_state=calls.report_sync_state,
        is_in_trouble=trigger.is_in_trouble,
        interval_seconds=settings.live_state_interval,
    )


def _build_previews(
    settings: Settings,
    connection: _Connection,
    reports: _Reports,
    plugins: _Plugins,
    files: _Files,
    running: _Running,
) -> PlanPreviewHandler:
    previewer = Previewer(
        planner=running.services.planner,
        plugins=plugins.host.plugins,
        configs=settings.config.plugins,
        sources=files.sources,
        mask=reports.secrets.mask,
        clock=time.time,
    )
    return PlanPreviewHandler(
        piped_id=settings.config.piped_id,
        state=connection.state,
        builder=PreviewBuilder(
            repositories=files.repositories,
            state=connection.state,
            configs=files.configs,
            previewer=previewer,
        ),
        commands=reports.commands,
    )


def _subscribe(
    reports: _Reports, records: ScriptRecords, metrics: PipedMetrics, live_states: LiveStateReporter
) -> None:
    """Subscribe to completed deployments, after the status reporter: its report is queued first."""
    subscribe = partial(reports.facts.subscribe, DeploymentCompleted)
    subscribe(lambda fact: records.on_completed(fact.deployment))
    subscribe(lambda fact: reports.numbers.forget(fact.deployment.id))
    subscribe(lambda fact: metrics.record_completed(fact.deployment))
    subscribe(lambda fact: live_states.look_at(fact.deployment.application_id))


def _serving_pages(
    settings: Settings, health: PipedHealth, metrics: PipedMetrics
) -> AbstractAsyncContextManager[object]:
    pages = {
        "/healthz": lambda: AdminPage(body="ok"),
        "/readyz": lambda: ready_page(health),
        "/metrics": lambda: AdminPage(body=metrics.text(), content_type=CONTENT_TYPE),
        "/version": lambda: AdminPage(body=f"{settings.version}\n"),
    }
    return serving_admin(settings.admin_host, settings.admin_port, pages)


def ready_page(health: PipedHealth) -> AdminPage:
    """Returns the response to a readiness probe: 200 or 503, with the details as JSON."""
    ready, body = health.readiness()
    return AdminPage(
        body=body,
        status="200 OK" if ready else "503 Service Unavailable",
        content_type="application/json",
    )


def plugin_names(host: PluginHost) -> dict[str, str]:
    """Returns the configured names of the well-known plugins, for files of the older kinds."""
    return find_configured_names({name: each.stages for name, each in host.plugins.items()})


def make_run(
    services: RunServices, plugins: Sequence[PluginConfig], deployment: Deployment
) -> DeploymentRun:
    """Returns the run of a deployment, whose provider is resolved to deploy targets."""
    return DeploymentRun(add_targets(deployment, plugins), services)


async def read_deployment(control: ControlPlane, deployment_id: str) -> Deployment:
    """Returns a deployment as the control plane has it."""
    request = pb.GetDeploymentRequest(id=deployment_id)
    return (await control.call(control.service.GetDeployment, request)).deployment
