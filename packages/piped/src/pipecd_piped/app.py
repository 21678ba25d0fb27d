# SPDX-License-Identifier: Apache-2.0
"""Builds all components of piped in order, and closes them in the opposite order.

The parts that all others need come from `parts.py`; here they are joined to what triggers, watches,
answers and reports.
"""

import time
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from functools import partial

from pipecd_model.errors import StateError
from pipecd_piped.admin import AdminPage, serving_admin
from pipecd_piped.agent import Agent, Settings
from pipecd_piped.appconfig import Discovery, Registrar
from pipecd_piped.controlplane.client import ControlPlane
from pipecd_piped.facts import DeploymentCompleted, LiveStatesAnnounced
from pipecd_piped.health import PipedHealth
from pipecd_piped.livestate.details import ResourceOpener
from pipecd_piped.livestate.reader import LiveStateReader
from pipecd_piped.livestate.reporter import LiveStateReporter
from pipecd_piped.metrics import CONTENT_TYPE, Numbers, PipedMetrics
from pipecd_piped.parts import PipedParts, open_parts
from pipecd_piped.preview.application import Previewer
from pipecd_piped.preview.build import PreviewBuilder
from pipecd_piped.preview.comparison import DeploymentComparer
from pipecd_piped.preview.handler import PlanPreviewHandler
from pipecd_piped.preview.rollback import RollBackPreviewer
from pipecd_piped.push_commands import PushCommandRunner
from pipecd_piped.questions import QuestionRunner
from pipecd_piped.report.agent import PipedMeta, Stats
from pipecd_piped.schedule.queue_reporter import QueueReporter
from pipecd_piped.shutdown import ShutdownRequest
from pipecd_piped.source import SharedSources
from pipecd_piped.trigger import ControlPlaneCalls, Trigger, TriggerServices
from pipecd_wire.model.application_pb2 import ApplicationSyncState


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
    parts = await open_parts(settings, opened)
    connection, reports, plugins = parts.connection, parts.reports, parts.plugins
    files, running = parts.files, parts.running
    health = _build_health(parts)
    metrics = _build_metrics(settings, parts, health)
    calls = ControlPlaneCalls(connection.control, reports.facts, reports.commands)
    trigger = _build_trigger(parts, calls)
    reader = LiveStateReader(
        plugins=plugins.host.plugins,
        configs=settings.config.plugins,
        sources=SharedSources(files.sources),
    )
    live_states = _build_live_states(settings, parts, reader, trigger, calls)
    _subscribe(parts, metrics, live_states)
    previewer = _build_previewer(settings, parts)
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
        questions=_build_questions(settings, parts, previewer, reader, live_states),
        trigger=trigger,
        discovery=Discovery(
            piped_id=settings.config.piped_id,
            repositories=files.repositories,
            state=connection.state,
            files=files.configs,
            reports=reports.outbox,
            selector=settings.config.app_selector,
            registrar=_build_registrar(settings, connection.control),
        ),
        live_states=live_states,
        previews=_build_previews(settings, parts, previewer),
        stats=Stats(connection.control, metrics.text),
        plugin_states=plugins.states,
        queue=QueueReporter(connection.control, running.controller, running.services.turns),
    )


def _build_health(parts: PipedParts) -> PipedHealth:
    connection, reports, files = parts.connection, parts.reports, parts.files
    return PipedHealth(
        plugins=parts.plugins.host.plugins,
        repositories=lambda: {name: each.state for name, each in files.repositories.items()},
        connected=lambda: connection.control.is_connected,
        trouble=lambda: connection.control.trouble,
        fault=lambda: reports.outbox.fault or reports.spooled.fault,
        holds_lease=lambda: connection.lease.held,
    )


def _build_trigger(parts: PipedParts, calls: ControlPlaneCalls) -> Trigger:
    files, controller = parts.files, parts.running.controller
    trigger = Trigger(
        files.repositories,
        TriggerServices(
            state=parts.connection.state,
            configs=files.configs,
            calls=calls,
            on_created=controller.on_created,
            find_open=controller.find_open,
        ),
    )
    controller.on_closed = trigger.on_closed
    return trigger


def _build_metrics(settings: Settings, parts: PipedParts, health: PipedHealth) -> PipedMetrics:
    controller, state = parts.running.controller, parts.connection.state
    return PipedMetrics(
        health=health,
        numbers=Numbers(
            running=lambda: len(controller.running),
            waiting=lambda: sum(map(len, controller.queue.values())),
            reports=lambda: parts.reports.outbox.waiting,
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
    parts: PipedParts,
    reader: LiveStateReader,
    trigger: Trigger,
    calls: ControlPlaneCalls,
) -> LiveStateReporter:
    def report_sync_state(application_id: str, state: ApplicationSyncState) -> None:
        calls.report_sync_state(application_id, state)
        trigger.take_sync_state(application_id, state)

    return LiveStateReporter(
        state=parts.connection.state,
        reader=reader,
        lanes=reader.lanes,
        lane_of=reader.lane_of,
        has_plugin=reader.has_plugin,
        successes=parts.running.services.successes,
        report_live_state=parts.connection.control.report_live_state,
        report_sync_state=report_sync_state,
        is_in_trouble=trigger.is_in_trouble,
        interval_seconds=settings.live_state_interval_seconds,
    )


def _build_registrar(settings: Settings, control: ControlPlane) -> Registrar | None:
    """Returns what registers applications; None where the config does not ask for it."""
    wanted = settings.config.auto_registration
    if wanted is None:
        return None
    return Registrar(
        wanted, settings.config.plugins, partial(control.call, control.push.RegisterApplications)
    )


def _build_previewer(settings: Settings, parts: PipedParts) -> Previewer:
    return Previewer(
        planner=parts.running.services.planner,
        plugins=parts.plugins.host.plugins,
        configs=settings.config.plugins,
        sources=parts.files.sources,
        mask=parts.reports.secrets.mask,
        clock=time.time,
    )


def _build_questions(
    settings: Settings,
    parts: PipedParts,
    previewer: Previewer,
    reader: LiveStateReader,
    live_states: LiveStateReporter,
) -> QuestionRunner:
    connection, files = parts.connection, parts.files
    successes, mask = parts.running.services.successes, parts.reports.secrets.mask
    opener = ResourceOpener(
        state=connection.state,
        plugins=parts.plugins.host.plugins,
        configs=settings.config.plugins,
        sources=files.sources,
        successes=successes,
        reported=live_states,
        reader=reader,
    )
    roll_backs = RollBackPreviewer(
        repositories=files.repositories,
        state=connection.state,
        configs=files.configs,
        successes=successes,
        previewer=previewer,
        mask=mask,
    )
    comparer = DeploymentComparer(
        repositories=files.repositories,
        configs=files.configs,
        previewer=previewer,
        mask=mask,
    )
    return QuestionRunner(
        connection.control,
        opener.open,
        roll_backs.preview,
        comparer.compare,
        mask,
    )


def _build_previews(
    settings: Settings, parts: PipedParts, previewer: Previewer
) -> PlanPreviewHandler:
    files, state = parts.files, parts.connection.state
    return PlanPreviewHandler(
        piped_id=settings.config.piped_id,
        state=state,
        builder=PreviewBuilder(
            repositories=files.repositories,
            state=state,
            configs=files.configs,
            previewer=previewer,
        ),
        commands=parts.reports.commands,
    )


def _subscribe(parts: PipedParts, metrics: PipedMetrics, live_states: LiveStateReporter) -> None:
    """Subscribe to completed deployments, after the status reporter: its report is queued first."""
    reports, records = parts.reports, parts.running.records
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
