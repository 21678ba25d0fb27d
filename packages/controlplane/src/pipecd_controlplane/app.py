# SPDX-License-Identifier: Apache-2.0
"""The one place where the control plane is built, and the order in which it ends.

The end is the beginning backwards: watches are ended, running calls finish, then the last writes
reach the disk, then the folder is given up.
"""

import asyncio
import signal
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    asynccontextmanager,
    contextmanager,
    suppress,
)
from dataclasses import dataclass
from pathlib import Path

from pipecd_controlplane.api.services import ServiceParts, endpoints
from pipecd_controlplane.api.v1.telemetry import forwarding
from pipecd_controlplane.auth.call_audit import CallAudit
from pipecd_controlplane.auth.call_authenticator import CallAuthenticator
from pipecd_controlplane.auth.calls import log_call
from pipecd_controlplane.auth.open_calls import OpenCalls
from pipecd_controlplane.auth.password import PasswordSignIn
from pipecd_controlplane.auth.recheck import CredentialRecheck
from pipecd_controlplane.auth.sign_in_audit import SignInAudit
from pipecd_controlplane.auth.sign_in_links import SignInLinks
from pipecd_controlplane.auth.sso.journey import Journeys
from pipecd_controlplane.auth.sso.sign_in import SsoSignIn
from pipecd_controlplane.http.admin import serve_admin
from pipecd_controlplane.http.built_console import find_console
from pipecd_controlplane.http.cookies import CookieWriter
from pipecd_controlplane.http.metrics import Metrics
from pipecd_controlplane.http.middleware import PageMiddleware
from pipecd_controlplane.http.probes import Probes
from pipecd_controlplane.http.routes import RouteServices, admin_app, public_app
from pipecd_controlplane.http.scrape import Scrape
from pipecd_controlplane.http.server import serve_public
from pipecd_controlplane.ops.audit_heads import HEADS_SECONDS, AuditHeads
from pipecd_controlplane.ops.jobs import Job
from pipecd_controlplane.ops.jobs import running as running_jobs
from pipecd_controlplane.ops.objects import list_object_jobs
from pipecd_controlplane.ops.operator import SIGN_IN_LINK, serving_operator
from pipecd_controlplane.ops.retention import list_retention_jobs
from pipecd_controlplane.ops.sign_in_link import answer_with_links
from pipecd_controlplane.settings import ServerSettings
from pipecd_controlplane.store.kept_objects import keeps_objects
from pipecd_controlplane.store.own_blobs import open_own_blobs
from pipecd_controlplane.store.stores import Stores, stores
from pipecd_controlplane.usecases.access import ProjectAccess, build_access
from pipecd_controlplane.usecases.bootstrap import KEY_FILE, ensure_project
from pipecd_controlplane.usecases.configured import build_shared_sso, ensure_projects
from pipecd_controlplane.usecases.gathered_audit import FLUSH_SECONDS, GatheredAudit
from pipecd_controlplane.usecases.hook_deliveries import HookDeliveries
from pipecd_controlplane.usecases.leases import Leases
from pipecd_controlplane.usecases.open_state import open_state
from pipecd_controlplane.usecases.releases import Releases
from pipecd_controlplane.usecases.repository_hints import RepositoryHints
from pipecd_controlplane.usecases.shared_state import ChangeBus, Questions, SharedState
from pipecd_controlplane.usecases.vault import Vault
from pipecd_model.errors import StateError
from pipecd_runtime.logfold import FoldRepeats
from pipecd_runtime.logs import logger
from pipecd_wire.rpc import AddressError, Endpoints

log = logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningServer:
    """A control plane that is running and accepts calls."""

    address: str
    admin_address: str
    """The operator's address, with all metrics; empty when there is none."""
    paths: tuple[str, ...]
    """The URL patterns of all pages."""
    data_dir: Path
    admin_key_file: Path
    stores: Stores
    bus: ChangeBus
    questions: Questions
    gathered_audit: GatheredAudit
    begin_drain: Callable[[], None]
    """Makes it say that it is not ready, while it still serves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Core:
    """The parts that gRPC, the pages and the timed jobs share."""

    settings: ServerSettings
    shared: SharedState
    stores: Stores
    leases: Leases
    access: ProjectAccess
    encryption_keys: list[bytes]
    authenticator: CallAuthenticator
    gathered_audit: GatheredAudit
    call_audit: CallAudit
    audit_heads: AuditHeads
    metrics: Metrics
    links: SignInLinks
    web_base_url: Callable[[], str]


@asynccontextmanager
async def control_plane(settings: ServerSettings) -> AsyncIterator[RunningServer]:
    """Runs a control plane while the block runs. Raises PipecdError when it cannot start."""
    address = ""

    def web_base_url() -> str:
        scheme = "http" if settings.tls is None else "https"
        return settings.public_url or f"{scheme}://{address}"

    async with AsyncExitStack() as opened:
        core = await _open_core(opened, settings, web_base_url)
        served = await _open_endpoints(opened, core)
        services = _make_route_services(core)
        await core.audit_heads.log_moved()
        await opened.enter_async_context(running_jobs(_list_jobs(core), core.shared.job_leader))
        more = {SIGN_IN_LINK: answer_with_links(core.links, lambda: address, settings.tls)}
        await opened.enter_async_context(
            serving_operator(settings.data_dir, settings.database, settings.blob_store, _now, more)
        )
        pages = public_app(services)
        with _refusing_address("--listen"):
            address = await opened.enter_async_context(_serve_public(settings, pages, served))
        with _refusing_address("--admin-port and --admin-host"):
            admin_address = await _open_admin(opened, settings, services)
        opened.callback(core.shared.bus.stop)
        opened.callback(services.probes.stop)
        yield RunningServer(
            address=address,
            admin_address=admin_address,
            paths=tuple(pages.paths()),
            data_dir=settings.data_dir,
            admin_key_file=settings.data_dir / KEY_FILE,
            stores=core.stores,
            bus=core.shared.bus,
            questions=core.shared.questions,
            gathered_audit=core.gathered_audit,
            begin_drain=services.probes.stop,
        )


@contextmanager
def _refusing_address(flags: str) -> Iterator[None]:
    """Raises StateError for an address that cannot be listened on, with the flags to change it."""
    try:
        yield
    except AddressError as error:
        raise StateError(str(error), hint=f"choose another with {flags}") from error


async def _open_core(
    opened: AsyncExitStack, settings: ServerSettings, web_base_url: Callable[[], str]
) -> _Core:
    """Opens the database, and makes the projects that it must have."""
    database, shared = await opened.enter_async_context(
        open_state(settings.database, settings.data_dir, settings.encryption_key_files)
    )
    if not settings.seals:
        # Sealed into this data folder, the other servers of the database would find them missing.
        log.info(
            "objects.not_sealed",
            hint="spec.filestore names no store that all share: logs and large values stay in the"
            " database",
        )
    kept = stores(
        database,
        _now,
        max_stage_log_bytes=settings.retention.stage_log_bytes,
        blobs=await open_own_blobs(settings.blob_store, database),
    )
    if await keeps_objects(database):
        log.warning(
            "objects.kept",
            hint="this database was restored without its objects, so it deletes none, orphans"
            " neither, and seals nothing; once no other server uses them, run"
            " `pipecd take-over-objects`",
        )
    await ensure_project(kept, settings.data_dir, await _first_project(kept, settings), _now)
    await ensure_projects(kept, settings.projects, _now)
    leases = Leases(kept.leases, settings.lease_times)
    keys = await shared.read_encryption_keys(settings.encryption_key_files)
    held = build_access(
        kept,
        Vault(keys),
        _now,
        configured={each.id for each in settings.projects},
        shared=build_shared_sso(settings.shared_sso),
    )
    await held.sso.close_anew()
    gathered = GatheredAudit(kept)
    call_audit = CallAudit(gathered, _now)
    await held.hooks.close_anew()
    return _Core(
        settings=settings,
        shared=shared,
        stores=kept,
        leases=leases,
        access=held,
        encryption_keys=keys,
        authenticator=CallAuthenticator(kept, leases, shared, _now, call_audit.note_refusal),
        gathered_audit=gathered,
        call_audit=call_audit,
        audit_heads=AuditHeads(kept.audit),
        metrics=Metrics(),
        links=SignInLinks(kept, shared),
        web_base_url=web_base_url,
    )


async def _open_endpoints(opened: AsyncExitStack, core: _Core) -> Endpoints:
    """Returns every RPC with what runs around it: authentication, limits, metrics, the log."""
    settings, authenticator, metrics = core.settings, core.authenticator, core.metrics
    recheck = CredentialRecheck(core.stores, core.shared.bus, authenticator.admit_again, _now)
    await opened.enter_async_context(recheck.running())
    open_calls = OpenCalls(settings.limits.max_calls_per_caller)
    admit = open_calls.limit_admission(authenticator.admit)
    telemetry = await opened.enter_async_context(forwarding(settings.otlp_endpoint))
    parts = ServiceParts(
        stores=core.stores,
        shared=core.shared,
        leases=core.leases,
        access=core.access,
        releases=Releases(settings.releases_url),
        telemetry=telemetry,
        now=_now,
        web_base_url=core.web_base_url,
    )
    return endpoints(
        parts,
        admit=metrics.count_admission(admit) if settings.metrics else admit,
        guard_stream=recheck.guard_stream,
        admit_late=authenticator.admit_again,
        run_audited=core.call_audit.run,
        observers=(
            open_calls.observe,
            *settings.observers,
            log_call,
            *((metrics.observe,) if settings.metrics else ()),
        ),
    )


def _make_route_services(core: _Core) -> RouteServices:
    settings = core.settings
    state_keys = [settings.state_key.encode()] if settings.state_key else core.encryption_keys
    journeys = Journeys(Vault(state_keys, purpose="sign-in"), _now)
    failures = SignInAudit(core.gathered_audit, _now)
    return RouteServices(
        stores=core.stores,
        shared=core.shared,
        authenticator=core.authenticator,
        password=PasswordSignIn(core.stores, core.shared, audit=failures),
        sso=SsoSignIn(core.stores, core.access.sso, journeys, core.web_base_url, audit=failures),
        links=core.links,
        cookies=CookieWriter(public_url=settings.public_url, insecure=settings.insecure_cookie),
        probes=Probes(core.stores, settings.data_dir),
        metrics=core.metrics,
        scrape=Scrape(core.metrics, core.stores, core.shared, _now),
        hooks=HookDeliveries(
            core.stores,
            core.access.hooks,
            RepositoryHints(core.stores, core.shared.git_hints),
            core.shared,
            _now,
        ),
        max_hooks_bytes=settings.limits.max_stranger_bytes,
        now=_now,
        static_dir=settings.static_dir,
        console_dir=settings.console_dir or find_console(),
        over_tls=settings.over_tls,
        metrics_enabled=settings.metrics,
    )


def _serve_public(
    settings: ServerSettings, pages: PageMiddleware, served: Endpoints
) -> AbstractAsyncContextManager[str]:
    return serve_public(
        pages,
        served,
        settings.host,
        settings.port,
        tls=settings.tls,
        grace_seconds=settings.grace_seconds,
        limits=settings.limits,
        trusted_proxies=settings.trusted_proxies,
        proxy_protocol=settings.proxy_protocol,
        public_url=settings.public_url,
        own_folder=settings.data_dir / "run",
    )


async def _open_admin(
    opened: AsyncExitStack, settings: ServerSettings, services: RouteServices
) -> str:
    """Returns the address of the admin port; empty when there is none."""
    if settings.admin_port is None:
        return ""
    return await opened.enter_async_context(
        serve_admin(admin_app(services), settings.admin_host, settings.admin_port, settings.limits)
    )


async def _first_project(kept: Stores, settings: ServerSettings) -> str | None:
    """Returns the project that a new folder gets: a configured one rather than the default."""
    if settings.project_id or await kept.projects.ids():
        return settings.project_id
    return next((each.id for each in settings.projects), None)


def _list_jobs(core: _Core) -> list[Job]:
    """Returns all timed jobs, in the order in which they are started."""

    async def forget_sessions() -> None:
        await core.stores.sessions.end_expired(now=_now())

    async def keep_uses() -> None:
        await core.shared.key_uses.flush(core.stores)

    heads = core.audit_heads
    return [
        Job(
            name="audit-refusals",
            every=FLUSH_SECONDS,
            rest=FLUSH_SECONDS,
            run=core.gathered_audit.flush,
            at_end=True,
            in_each_process=True,
        ),
        Job(name="audit-heads", every=HEADS_SECONDS, run=heads.log_moved, at_end=True),
        Job(name="key-uses", every=60, run=keep_uses, at_end=True, in_each_process=True),
        Job(name="expired-sessions", every=3600, run=forget_sessions),
        *list_retention_jobs(core.stores, core.settings.retention, _now),
        *list_object_jobs(core.stores, _now, seals=core.settings.seals),
        *_log_jobs(core.settings.folded),
    ]


def _log_jobs(folded: FoldRepeats | None) -> list[Job]:
    if folded is None:
        return []

    async def flush() -> None:
        folded.flush()

    every = folded.seconds
    return [Job(name="folded-lines", every=every, run=flush, at_end=True, in_each_process=True)]


async def run(settings: ServerSettings, started: Callable[[RunningServer], None]) -> None:
    """Runs a control plane until SIGINT or SIGTERM; calls `started` once it accepts calls.

    A second signal ends the time in which it is drained.
    """
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    async with control_plane(settings) as running:
        # Only now: a signal during the start ends it at once, as nothing runs yet.
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop.set)
        started(running)
        await stop.wait()
        stop.clear()
        running.begin_drain()
        with suppress(TimeoutError):
            async with asyncio.timeout(settings.drain_seconds):
                await stop.wait()


def _now() -> int:
    return int(time.time())
