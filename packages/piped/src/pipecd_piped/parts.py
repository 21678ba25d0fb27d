# SPDX-License-Identifier: Apache-2.0
"""The five parts of piped that everything else is built of, opened in this order.

Connection → reports → plugins → files → what runs deployments. Each knows those before it.
"""

import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from typing import Final

from pipecd_model.config import PluginConfig
from pipecd_model.ids import new_id
from pipecd_model.known_plugins import find_configured_names
from pipecd_piped.agent import Settings
from pipecd_piped.appconfig import ApplicationFiles
from pipecd_piped.controlplane.client import ControlPlane, connected
from pipecd_piped.controlplane.lease import Lease
from pipecd_piped.controlplane.state import ControlPlaneState
from pipecd_piped.facts import Facts, LiveStatesAnnounced
from pipecd_piped.git import Repository, repositories
from pipecd_piped.plan.planner import Planner
from pipecd_piped.plan.providers import add_targets
from pipecd_piped.plan.scope import DeploymentScope
from pipecd_piped.plugins import PluginBackend, PluginHost, PluginStateReporter, ToolsFolder
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
from pipecd_piped.schedule.run import DeploymentRun
from pipecd_piped.schedule.services import RunServices
from pipecd_piped.schedule.successes import LastSuccessful
from pipecd_piped.schedule.turns import StageTurns
from pipecd_piped.scripts.ending import RunningScripts
from pipecd_piped.scripts.records import ScriptRecords
from pipecd_piped.secrets import KnownSecrets, SecretKeys, read_keys
from pipecd_piped.source import GitIdentity, Preparation, SourceProvider
from pipecd_wire.model.deployment_pb2 import Deployment

LAST_REPORTS_SECONDS: Final = 5.0
"""Seconds in which the last reports and log lines are delivered at shutdown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionPart:
    """The connection to the control plane, the lease, and the state that the control plane sent."""

    control: ControlPlane
    lease: Lease
    state: ControlPlaneState


async def _open_connection(settings: Settings, opened: AsyncExitStack) -> ConnectionPart:
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
            lease=lease,
        )
    )
    opened.push_async_callback(lease.release, control)  # after the last reports
    return ConnectionPart(control=control, lease=lease, state=ControlPlaneState())


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportsPart:
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
    settings: Settings, connection: ConnectionPart, opened: AsyncExitStack
) -> ReportsPart:
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
    return ReportsPart(
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
class PluginsPart:
    """The plugin processes, and the reporter of their states."""

    host: PluginHost
    states: PluginStateReporter


async def _open_plugins(
    settings: Settings, connection: ConnectionPart, reports: ReportsPart, opened: AsyncExitStack
) -> PluginsPart:
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
        grace_seconds=settings.grace_seconds,
    )
    states = PluginStateReporter(connection.control, host.plugins.values(), reports.facts)
    host.on_change = states.on_change
    await opened.enter_async_context(host)
    return PluginsPart(host=host, states=states)


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesPart:
    """The git repositories, the worktrees of their commits, and the application files."""

    repositories: dict[str, Repository]
    sources: SourceProvider
    configs: ApplicationFiles


async def _open_files(
    settings: Settings, reports: ReportsPart, plugins: PluginsPart, opened: AsyncExitStack
) -> FilesPart:
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
    return FilesPart(
        repositories=repos,
        sources=await opened.enter_async_context(sources),
        configs=ApplicationFiles(names=names),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningPart:
    """The components that run deployments."""

    services: RunServices
    controller: Controller
    chains: ChainTurns
    records: ScriptRecords


def _build_running(
    settings: Settings,
    connection: ConnectionPart,
    reports: ReportsPart,
    plugins: PluginsPart,
    files: FilesPart,
) -> RunningPart:
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
    return RunningPart(services=services, controller=controller, chains=chains, records=records)


@dataclass(frozen=True, slots=True, kw_only=True)
class PipedParts:
    """All of them, open."""

    connection: ConnectionPart
    reports: ReportsPart
    plugins: PluginsPart
    files: FilesPart
    running: RunningPart


async def open_parts(settings: Settings, opened: AsyncExitStack) -> PipedParts:
    """Build and open every part; the stack closes them in the opposite order."""
    connection = await _open_connection(settings, opened)
    reports = await _open_reports(settings, connection, opened)
    plugins = await _open_plugins(settings, connection, reports, opened)
    files = await _open_files(settings, reports, plugins, opened)
    return PipedParts(
        connection=connection,
        reports=reports,
        plugins=plugins,
        files=files,
        running=_build_running(settings, connection, reports, plugins, files),
    )


def plugin_names(host: PluginHost) -> dict[str, str]:
    """Returns the configured names of the well-known plugins, for files of the older kinds."""
    return find_configured_names({name: each.stages for name, each in host.plugins.items()})


def make_run(
    services: RunServices, plugins: Sequence[PluginConfig], deployment: Deployment
) -> DeploymentRun:
    """Returns the run of a deployment, whose provider is resolved to deploy targets."""
    return DeploymentRun(add_targets(deployment, plugins), services)
