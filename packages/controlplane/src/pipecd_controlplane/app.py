# SPDX-License-Identifier: Apache-2.0
"""The one place where the control plane is built, and the order in which it ends.

The end is the beginning backwards: watches are ended, running calls finish, then the last writes
reach the disk, then the folder is given up.
"""

import asyncio
import signal
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from pipecd_controlplane.api.services import endpoints
from pipecd_controlplane.api.v1.telemetry import forwarding
from pipecd_controlplane.auth.call_authenticator import CallAuthenticator
from pipecd_controlplane.auth.calls import log_call
from pipecd_controlplane.auth.open_calls import OpenCalls
from pipecd_controlplane.auth.password import PasswordSignIn
from pipecd_controlplane.auth.recheck import CredentialRecheck
from pipecd_controlplane.auth.sso.journey import Journeys
from pipecd_controlplane.auth.sso.sign_in import SsoSignIn
from pipecd_controlplane.http.admin import serve_admin
from pipecd_controlplane.http.cookies import CookieWriter
from pipecd_controlplane.http.metrics import Metrics
from pipecd_controlplane.http.probes import Probes
from pipecd_controlplane.http.routes import RouteServices, admin_app, public_app
from pipecd_controlplane.http.scrape import Scrape
from pipecd_controlplane.http.server import DEFAULT_LIMITS, ServerTls, serve_public
from pipecd_controlplane.ops.jobs import Job
from pipecd_controlplane.ops.jobs import running as running_jobs
from pipecd_controlplane.ops.operator import serving_operator
from pipecd_controlplane.ops.retention import FOR_A_YEAR, Retention, timed_jobs
from pipecd_controlplane.store.open import SqliteFolder, open_database
from pipecd_controlplane.store.stores import Stores, stores
from pipecd_controlplane.usecases import releases
from pipecd_controlplane.usecases.access import ProjectAccess, build_access
from pipecd_controlplane.usecases.bootstrap import KEY_FILE, ensure_project
from pipecd_controlplane.usecases.bus import Bus
from pipecd_controlplane.usecases.configured import build_shared_sso, ensure_projects
from pipecd_controlplane.usecases.leases import DEFAULT_TIMES, Leases, LeaseTimes
from pipecd_controlplane.usecases.releases import Releases
from pipecd_controlplane.usecases.vault import Vault, read_keys
from pipecd_model.config.controlplane import ProjectConfig, SharedSsoConfig
from pipecd_model.config.frontlimits import FrontLimitsConfig
from pipecd_model.errors import StateError
from pipecd_runtime.logfold import FoldRepeats
from pipecd_wire.rpc import AddressError, Observe


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Everything a control plane is told from outside."""

    data_dir: Path
    host: str = "127.0.0.1"
    port: int = 0
    tls: ServerTls | None = None
    project_id: str | None = None
    """The project a new folder gets; None is the default one."""
    public_url: str = ""
    """Where people reach it, for links; empty is the address it listens on."""
    grace: float = 10.0
    """Seconds for running calls when it stops."""
    lease_times: LeaseTimes = DEFAULT_TIMES
    """How long an agent that fell silent keeps its work to itself."""
    projects: tuple[ProjectConfig, ...] = ()
    """Projects that are as the configuration file says."""
    shared_sso: tuple[SharedSsoConfig, ...] = ()
    state_key: str = ""
    """Closes what travels with a sign-in; empty is the encryption key."""
    static_dir: Path | None = None
    insecure_cookie: bool = False
    metrics: bool = True
    admin_host: str = "127.0.0.1"
    admin_port: int | None = None
    otlp_endpoint: str = ""
    """Where traces of pipeds are sent on to; empty drops them."""
    encryption_key_files: tuple[Path, ...] = ()
    """Keys for secrets at rest, the newest first; without any, one in the data folder."""
    retention: Retention = FOR_A_YEAR
    """How long things are kept."""
    limits: FrontLimitsConfig = DEFAULT_LIMITS
    """What callers may cost."""
    trusted_proxies: tuple[str, ...] = ()
    """Networks whose word about the address of a caller is believed."""
    folded: FoldRepeats | None = None
    """What holds back equal lines of the log, and tells of them when it is asked."""
    releases_url: str = releases.URL
    observers: tuple[Observe, ...] = ()
    """Told of each call once its handler has ended, before it is answered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlPlane:
    """A control plane that serves."""

    address: str
    admin_address: str
    """Where metrics are for whoever runs it; empty when there is none."""
    paths: tuple[str, ...]
    """The patterns of all pages."""
    data_dir: Path
    admin_key_file: Path
    stores: Stores
    bus: Bus


@asynccontextmanager
async def control_plane(settings: Settings) -> AsyncIterator[ControlPlane]:
    """Serve while the block runs. Raises PipecdError when it cannot."""
    bus = Bus()
    address = ""

    def web_base_url() -> str:
        scheme = "http" if settings.tls is None else "https"
        return settings.public_url or f"{scheme}://{address}"

    async with AsyncExitStack() as opened:
        database = await opened.enter_async_context(
            open_database(SqliteFolder(folder=settings.data_dir), on_commit=bus.publish)
        )
        kept = stores(database, _now, max_stage_log_bytes=settings.retention.stage_log_bytes)
        await ensure_project(kept, settings.data_dir, await _first_project(kept, settings), _now)
        await ensure_projects(kept, settings.projects, _now)
        leases = Leases(kept.leases, settings.lease_times)
        keys = read_keys(settings.encryption_key_files, settings.data_dir)
        held = build_access(
            kept,
            Vault(keys),
            configured={each.id for each in settings.projects},
            shared=build_shared_sso(settings.shared_sso),
        )
        await held.sso.close_anew()
        authenticator = CallAuthenticator(kept, leases, held.uses, _now)
        recheck = CredentialRecheck(kept, bus, authenticator.admit_again, _now)
        await opened.enter_async_context(recheck.running())
        metrics = Metrics()
        open_calls = OpenCalls(settings.limits.max_calls_per_caller)
        admit = open_calls.admitting(authenticator.admit)
        telemetry = await opened.enter_async_context(forwarding(settings.otlp_endpoint))
        served = endpoints(
            kept,
            bus,
            leases,
            held,
            Releases(settings.releases_url),
            telemetry,
            admit=metrics.admitting(admit) if settings.metrics else admit,
            now=_now,
            web_base_url=web_base_url,
            guard_stream=recheck.guard_stream,
            admit_late=authenticator.admit_again,
            observers=(
                open_calls.observe,
                *settings.observers,
                log_call,
                *((metrics.observe,) if settings.metrics else ()),
            ),
        )
        state_keys = [settings.state_key.encode()] if settings.state_key else keys
        journeys = Journeys(Vault(state_keys, purpose="sign-in"), _now)
        probes = Probes(kept, settings.data_dir)
        parts = RouteServices(
            stores=kept,
            authenticator=authenticator,
            password=PasswordSignIn(kept),
            sso=SsoSignIn(kept, held.sso, journeys, web_base_url),
            jar=CookieWriter(public_url=settings.public_url, insecure=settings.insecure_cookie),
            probes=probes,
            metrics=metrics,
            scrape=Scrape(metrics, kept, _now),
            now=_now,
            static_dir=settings.static_dir,
            over_tls=settings.tls is not None or settings.public_url.startswith("https://"),
            metrics_enabled=settings.metrics,
        )
        await opened.enter_async_context(
            running_jobs(
                [
                    *_jobs(kept, held),
                    *timed_jobs(kept, settings.retention, _now),
                    *_log_jobs(settings.folded),
                ]
            )
        )
        pages = public_app(parts)
        await opened.enter_async_context(serving_operator(settings.data_dir, _now))
        serving = serve_public(
            pages,
            served,
            settings.host,
            settings.port,
            tls=settings.tls,
            grace=settings.grace,
            limits=settings.limits,
            trusted_proxies=settings.trusted_proxies,
            public_url=settings.public_url,
            own_folder=settings.data_dir / "run",
        )
        try:
            address = await opened.enter_async_context(serving)
            admin_address = ""
            if settings.admin_port is not None:
                admin_address = await opened.enter_async_context(
                    serve_admin(
                        admin_app(parts), settings.admin_host, settings.admin_port, settings.limits
                    )
                )
        except AddressError as error:
            raise StateError(str(error), hint="choose another with --listen") from error
        opened.callback(bus.stop)
        opened.callback(probes.stop)
        yield ControlPlane(
            address=address,
            admin_address=admin_address,
            paths=tuple(pages.paths()),
            data_dir=settings.data_dir,
            admin_key_file=settings.data_dir / KEY_FILE,
            stores=kept,
            bus=bus,
        )


async def _first_project(kept: Stores, settings: Settings) -> str | None:
    """The project that a new folder gets; a configured one rather than the default."""
    if settings.project_id or await kept.projects.ids():
        return settings.project_id
    return next((each.id for each in settings.projects), None)


def _jobs(kept: Stores, held: ProjectAccess) -> list[Job]:
    async def forget_sessions() -> None:
        await kept.sessions.end_expired(now=_now())

    async def keep_uses() -> None:
        await held.uses.flush(kept)

    return [
        Job(name="key-uses", every=60, run=keep_uses, at_end=True),
        Job(name="expired-sessions", every=3600, run=forget_sessions),
    ]


def _log_jobs(folded: FoldRepeats | None) -> list[Job]:
    if folded is None:
        return []

    async def tell() -> None:
        folded.flush()

    return [Job(name="folded-lines", every=folded.seconds, run=tell, at_end=True)]


async def run(settings: Settings, started: Callable[[ControlPlane], None]) -> None:
    """Serve until SIGINT or SIGTERM."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    async with control_plane(settings) as running:
        # Only now: a signal during the start ends it at once, as nothing runs yet.
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop.set)
        started(running)
        await stop.wait()


def _now() -> int:
    return int(time.time())
