# SPDX-License-Identifier: Apache-2.0
"""Where everything of piped is built, in this order, and closed the other way round.

Connection → reports → plugins → sources → the components that work.
"""

import time
from contextlib import AsyncExitStack
from typing import Final

from pipecd_model.ids import new_id
from pipecd_model.known_plugins import configured_names
from pipecd_runtime.logs import logger
from pipecd_wire.model.deployment_pb2 import Deployment
from pipecd_wire.pipedservice import service_pb2 as pb
from piped.admin import AdminPage, serving_admin
from piped.appconfig import ApplicationFiles, Discovery
from piped.controlplane.client import ControlPlane, connected
from piped.controlplane.lease import Lease
from piped.controlplane.state import ControlPlaneState
from piped.git import repositories
from piped.health import PipedHealth
from piped.livestate.reader import LiveStateReader
from piped.livestate.reporter import LiveStateReporter
from piped.metrics import CONTENT_TYPE, Numbers, PipedMetrics
from piped.plan.planner import Planner
from piped.plan.providers import with_targets
from piped.plan.scope import DeploymentScope
from piped.plugins import PluginBackend, PluginHost, PluginStateReporter, Tools
from piped.preview.application import Previewer
from piped.preview.build import PreviewBuilder
from piped.preview.handler import PlanPreviewHandler
from piped.push_commands import PushCommandRunner
from piped.report.agent import Stats
from piped.report.journal import Journal
from piped.report.logs import StageLogs
from piped.report.masked import MaskedLogs
from piped.report.metadata import MetadataStores
from piped.report.numbering import LineNumbers
from piped.report.ordered import OrderedClient
from piped.report.outbox import Outbox
from piped.report.statuses import Statuses
from piped.schedule.controller import Controller
from piped.schedule.needs import Needs
from piped.schedule.run import DeploymentRun
from piped.schedule.successes import LastSuccesses
from piped.scripts.ending import RunningScripts
from piped.scripts.records import ScriptRecords
from piped.secrets import KnownSecrets, read_keys
from piped.source import GitIdentity, Preparation, SourceProvider
from piped.stopping import Stopping
from piped.trigger import ControlPlaneCalls, Trigger, TriggerServices
from piped.working import Piped, Settings

log = logger(__name__)

LAST_REPORTS: Final = 5.0
"""Seconds that a stopping piped gives its last reports and log lines."""


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
    mirror = ControlPlaneState()
    outbox = Outbox(control.deliver, Journal(data_dir / "outbox"), lease.epoch_now)
    await opened.enter_async_context(outbox.open(drain=LAST_REPORTS))
    statuses = Statuses(outbox, control.deliver)
    keys = read_keys(config.secret_management)
    known = KnownSecrets()
    spooled = StageLogs(control, data_dir / "outbox" / "logs")
    logs = MaskedLogs(spooled, known)
    await opened.enter_async_context(logs.open(drain=LAST_REPORTS))
    numbers = LineNumbers(data_dir / "outbox" / "numbers")
    numbers.prune()
    metadata = MetadataStores(OrderedClient(control, statuses.heard), statuses.keep)
    host = PluginHost(
        config.plugins,
        data_dir=data_dir,
        backend=PluginBackend(
            logs=logs,
            metadata=metadata,
            commands=mirror,
            control=control,
            tools=Tools(settings.tools_dir),
            numbers=numbers,
            secrets=known,
        ),
        grace=settings.grace,
    )
    states = PluginStateReporter(control, host.plugins.values())
    host.on_change = states.on_change
    await opened.enter_async_context(host)
    repos = repositories(config, data_dir)
    for repository in repos.values():
        await opened.enter_async_context(repository)
    identity = GitIdentity(name=config.git.username, email=config.git.email)

    def names() -> dict[str, str]:
        """How the well-known plugins are called here, for files of the older kinds."""
        return configured_names({name: each.stages for name, each in host.plugins.items()})

    preparation = Preparation(names=names, keys=keys, known=known)
    sources = await opened.enter_async_context(
        SourceProvider(data_dir, repos, identity=identity, preparation=preparation)
    )
    scripts = RunningScripts(data_dir / "scripts")
    needs = Needs(
        planner=Planner(host, sources, secrets=known.of),
        plugins=host,
        sources=sources,
        statuses=statuses,
        commands=mirror,
        metadata=DeploymentScope(metadata, known),
        successes=LastSuccesses(mirror.applications, control),
        permit=lease,
        scripts=scripts,
        stored=lambda deployment_id: stored(control, deployment_id),
        clock=time.time,
    )
    records = ScriptRecords(
        data_dir / "scripts",
        kept=statuses.kept,
        stored=needs.stored,
        running=lambda: controller.running,
    )
    health = PipedHealth(
        plugins=host.plugins,
        repositories=lambda: {name: each.state for name, each in repos.items()},
        connected=lambda: control.is_connected,
        fault=lambda: outbox.fault or spooled.fault,
        holds_lease=lambda: lease.held,
    )
    metrics = PipedMetrics(
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
        numbers.forget(deployment.id)
        metrics.record_completed(deployment)
        live_states.look_at(deployment.application_id)

    controller = Controller(
        mirror,
        statuses,
        lambda deployment: DeploymentRun(with_targets(deployment, config.plugins), needs),
        needs.stored,
        lease,
        on_completed=completed,
        on_handed_over=scripts.end_all,
    )
    files = ApplicationFiles(names=names)
    discovery = Discovery(
        piped_id=config.piped_id,
        repositories=repos,
        state=mirror,
        files=files,
        reports=outbox,
        selector=config.app_selector,
    )
    calls = ControlPlaneCalls(control, outbox)
    trigger = Trigger(
        repos,
        TriggerServices(state=mirror, configs=files, calls=calls, on_created=controller.on_created),
    )
    reader = LiveStateReader(plugins=host.plugins, configs=config.plugins, sources=sources)
    live_states = LiveStateReporter(
        state=mirror,
        reader=reader,
        lanes=reader.lanes,
        lane_of=reader.lane_of,
        successes=needs.successes,
        report_live_state=control.report_live_state,
        report_sync_state=calls.report_sync_state,
        is_in_trouble=trigger.is_in_trouble,
        interval_seconds=settings.live_state_interval,
    )
    previews = PlanPreviewHandler(
        piped_id=config.piped_id,
        state=mirror,
        builder=PreviewBuilder(
            repositories=repos,
            state=mirror,
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
        "/healthz": lambda: AdminPage(body="ok"),
        "/readyz": lambda: ready_page(health),
        "/metrics": lambda: AdminPage(body=metrics.text(), content_type=CONTENT_TYPE),
        "/version": lambda: AdminPage(body=f"{settings.version}\n"),
    }
    await opened.enter_async_context(serving_admin(settings.admin_host, settings.admin_port, pages))
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
        own=PushCommandRunner(control, host.restart),
        trigger=trigger,
        discovery=discovery,
        live_states=live_states,
        previews=previews,
        stats=Stats(control, metrics.text),
        states=states,
    )


def ready_page(health: PipedHealth) -> AdminPage:
    """The answer to a probe of readiness."""
    ready, body = health.readiness()
    return AdminPage(
        body=body,
        status="200 OK" if ready else "503 Service Unavailable",
        content_type="application/json",
    )


async def stored(control: ControlPlane, deployment_id: str) -> Deployment:
    """A deployment as the control plane has it."""
    request = pb.GetDeploymentRequest(id=deployment_id)
    return (await control.ask(control.service.GetDeployment, request)).deployment
