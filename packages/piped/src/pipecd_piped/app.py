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
from pipecd_model.errors import StateError
from pipecd_model.ids import new_id
from pipecd_model.known_plugins import find_configured_names
from pipecd_piped.admin import AdminPage, serving_admin
from pipecd_piped.agent import Agent, Settings
from pipecd_piped.appconfig import ApplicationFiles, Discovery, Registrar
from pipecd_piped.controlplane.client import ControlPlane, connected
from pipecd_piped.controlplane.lease import Lease
from pipecd_piped.controlplane.state import ControlPlaneState
from pipecd_piped.facts import DeploymentCompleted, Facts, LiveStatesAnnounced
from pipecd_piped.git import Repository, repositories
from pipecd_piped.health import PipedHealth
from pipecd_piped.livestate.details import ResourceOpener
from pipecd_piped.livestate.reader import LiveStateReader
from pipecd_piped.livestate.reporter import LiveStateReporter
from pipecd_piped.metrics import CONTENT_TYPE, Numbers, PipedMetrics
from pipecd_piped.plan.planner import Planner
from pipecd_piped.plan.providers import add_targets
from pipecd_piped.plan.scope import DeploymentScope
from pipecd_piped.plugins import PluginBackend, PluginHost, PluginStateReporter, ToolsFolder
from pipecd_piped.preview.application import Previewer
from pipecd_piped.preview.build import PreviewBuilder
from pipecd_piped.preview.comparison import DeploymentComparer
from pipecd_piped.preview.handler import PlanPreviewHandler
from pipecd_piped.preview.rollback import RollBackPreviewer
from pipecd_piped.push_commands import PushCommandRunner
from pipecd_piped.questions import QuestionRunner
from pipecd_piped.report.agent import PipedMeta, Stats
from pipecd_piped.report.commands import CommandInbox
from pipecd_piped.report.joined import JoinedReports
from pipecd_piped.report.journal import Journal
from pipecd_piped.report.logs import SpooledStageLogs
from pipecd_piped.report.masked import MaskedLogs
from pipecd_piped.report.metadata import MetadataStores
from pipecd_piped.report.numbering import LineNumbers
from pipecd_piped.report.ordered import OrderedClient
from pipecd_piped.report.outbox import Outbox
from pipecd_piped.report.statuses import StatusReporter
from pipecd_piped.schedule.chains import ChainTurns
from pipecd_piped.schedule.controller import Controller
from pipecd_piped.schedule.gate import DeploymentGate
from pipecd_piped.schedule.queue_reporter import QueueReporter
from pipecd_piped.schedule.run import DeploymentRun
from pipecd_piped.schedule.services import RunServices
from pipecd_piped.schedule.successes import LastSuccessful
from pipecd_piped.schedule.turns import StageTurns
from pipecd_piped.scripts.ending import RunningScripts
from pipecd_piped.scripts.records import ScriptRecords
from pipecd_piped.secrets import KnownSecrets, SecretKeys, read_keys
from pipecd_piped.shutdown import ShutdownRequest
from pipecd_piped.source import GitIdentity, Preparation, SourceProvider
from pipecd_piped.trigger import ControlPlaneCalls, Trigger, TriggerServices
from pipecd_wire.model.application_pb2 import ApplicationSyncState
from pipecd_wire.model.deployment_pb2 import Deployment

LAST_REPORTS_SECONDS: Final = 5.0
"""Seconds in which the last reports and log lines are delivered at shutdown."""


async def run(settings: Settings) -> None:
    """Run piped until a shutdown is requested; raises the error that made it stop, if any."""
    shutdown = ShutdownRequest()
    with shutdown.on_signals():
        async with AsyncExitStack() as opened:
            try:
                agent = await build(settings, shutdown, opened)
            except OSError as error:
                raise _refusal(error) from error
            await agent.run()
    if shutdown.failure is not None:
        raise shutdown.failure


def _refusal(error: OSError) -> StateError:
    """Returns the error for a file or folder that piped needs and cannot use."""
    return StateError(
        f"cannot use {str(error.filename or 'a file')!r}: {error.strerror or error}",
        hint="see that its disk has free space and that this user may read and write there",
    )


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
        trouble=lambda: connection.control.trouble,
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
            find_open=running.controller.find_open,
        ),
    )
    running.controller.on_closed = trigger.on_closed
    reader = LiveStateReader(
        plugins=plugins.host.plugins, configs=settings.config.plugins, sources=files.sources
    )
    live_states = _build_live_states(settings, connection, reader, running, trigger, calls)
    _subscribe(reports, running.records, metrics, live_states)
    await opened.enter_async_context(_serving_pages(settings, health, metrics))
    return Agent(
        settings=settings,
        shutdown=shutdown,
        meta=PipedMeta(
            connection.control,
            settings.config,
            version=settings.version,
            public_key=reports.keys.public if reports.keys is not None else "",
        ),
        control=connection.control,
        lease=connection.lease,
        state=connection.state,
        outbox=reports.outbox,
        commands=reports.commands,
        host=plugins.host,
        controller=running.controller,
        chains=running.chains,
        records=running.records,
        push_commands=PushCommandRunner(connection.control, plugins.host.restart),
        questions=_build_questions(
            settings, connection, reports, plugins, files, running, reader, live_states
        ),
        trigger=trigger,
        discovery=Discovery(
            piped_id=settings.config.piped_id,
            repositories=files.repositories,
            state=connection.state,
            files=files.configs,
            reports=reports.outbox,
            selector=settings.config.app_selector,
            registrar=_build_registrar(settings, connection),
        ),
        live_states=live_states,
        previews=_build_previews(settings, connection, reports, plugins, files, running),
        stats=Stats(connection.control, metrics.text),
        plugin_states=plugins.states,
        queue=QueueReporter(connection.control, running.controller, running.services.turns),
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
    secrets = KnownSecrets()
    spooled = SpooledStageLogs(control, folder / "logs")
    logs = MaskedLogs(spooled, secrets)
    await opened.enter_async_context(logs.open(drain=LAST_REPORTS_SECONDS))
    outbox = Outbox(
        control.deliver_named,
        Journal(folder),
        connection.lease.epoch_now,
        joined=JoinedReports(control.deliver_named, spooled),
    )
    await opened.enter_async_context(outbox.open(drain=LAST_REPORTS_SECONDS))
    facts = Facts()
    statuses = StatusReporter(outbox, control.deliver_named)
    statuses.subscribe_to(facts)
    keys = read_keys(settings.config.secret_management)
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
            announce_live_states=lambda plugin, ids: reports.facts.publish(
                LiveStatesAnnounced(plugin=plugin, application_ids=tuple(ids))
            ),
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
    chains: ChainTurns
    records: ScriptRecords


def _build_running(
    settings: Settings,
    connection: _Connection,
    reports: _Reports,
    plugins: _Plugins,
    files: _Files,
) -> _Running:
    scripts = RunningScripts(settings.data_dir / "scripts")
    gate, limits = DeploymentGate(connection.state), settings.config.limits
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
        read_deployment=connection.control.read_deployment,
        turns=StageTurns(gate, scripts=limits.scripts),
        clock=time.time,
        state=connection.state,
    )
    controller = Controller(
        connection.state,
        reports.statuses,
        reports.commands,
        partial(make_run, services, settings.config.plugins),
        services.read_deployment,
        connection.lease,
        gate=gate,
        at_once=limits.deployments,
        on_handed_over=scripts.end_all,
    )
    chains = ChainTurns(
        connection.state,
        connection.control.ask_plannable,
        on_turn=controller.wake,
        on_refused=controller.refuse_waiting,
    )
    gate.also.append(chains.find_blocker)
    records = ScriptRecords(
        settings.data_dir / "scripts",
        kept=reports.statuses.wait_durable,
        stored=services.read_deployment,
        running=lambda: controller.running,
    )
    return _Running(services=services, controller=controller, chains=chains, records=records)


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
    reader: LiveStateReader,
    running: _Running,
    trigger: Trigger,
    calls: ControlPlaneCalls,
) -> LiveStateReporter:
    def report_sync_state(application_id: str, state: ApplicationSyncState) -> None:
        calls.report_sync_state(application_id, state)
        trigger.take_sync_state(application_id, state)

    return LiveStateReporter(
        state=connection.state,
        reader=reader,
        lanes=reader.lanes,
        lane_of=reader.lane_of,
        has_plugin=reader.has_plugin,
        successes=running.services.successes,
        report_live_state=connection.control.report_live_state,
        report_sync_state=report_sync_state,
        is_in_trouble=trigger.is_in_trouble,
        interval_seconds=settings.live_state_interval,
    )


def _build_registrar(settings: Settings, connection: _Connection) -> Registrar | None:
    """Returns what registers applications; None where the config does not ask for it."""
    wanted = settings.config.auto_registration
    if wanted is None:
        return None
    control = connection.control
    return Registrar(
        wanted, settings.config.plugins, partial(control.call, control.push.RegisterApplications)
    )


def _build_questions(
    settings: Settings,
    connection: _Connection,
    reports: _Reports,
    plugins: _Plugins,
    files: _Files,
    running: _Running,
    reader: LiveStateReader,
    live_states: LiveStateReporter,
) -> QuestionRunner:
    opener = ResourceOpener(
        state=connection.state,
        plugins=plugins.host.plugins,
        configs=settings.config.plugins,
        sources=files.sources,
        successes=running.services.successes,
        reported=live_states,
        reader=reader,
    )
    previewer = _build_previewer(settings, reports, plugins, files, running)
    roll_backs = RollBackPreviewer(
        repositories=files.repositories,
        state=connection.state,
        configs=files.configs,
        successes=running.services.successes,
        previewer=previewer,
        mask=reports.secrets.mask,
    )
    comparer = DeploymentComparer(
        repositories=files.repositories,
        configs=files.configs,
        previewer=previewer,
        mask=reports.secrets.mask,
    )
    return QuestionRunner(
        connection.control,
        opener.open,
        roll_backs.preview,
        comparer.compare,
        reports.secrets.mask,
    )


def _build_previewer(
    settings: Settings,
    reports: _Reports,
    plugins: _Plugins,
    files: _Files,
    running: _Running,
) -> Previewer:
    return Previewer(
        planner=running.services.planner,
        plugins=plugins.host.plugins,
        configs=settings.config.plugins,
        sources=files.sources,
        mask=reports.secrets.mask,
        clock=time.time,
    )


def _build_previews(
    settings: Settings,
    connection: _Connection,
    reports: _Reports,
    plugins: _Plugins,
    files: _Files,
    running: _Running,
) -> PlanPreviewHandler:
    return PlanPreviewHandler(
        piped_id=settings.config.piped_id,
        state=connection.state,
        builder=PreviewBuilder(
            repositories=files.repositories,
            state=connection.state,
            configs=files.configs,
            previewer=_build_previewer(settings, reports, plugins, files, running),
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
    reports.facts.subscribe(
        LiveStatesAnnounced,
        lambda fact: live_states.take_announced(fact.plugin, fact.application_ids),
    )


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
