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

from controlplane.api.services import endpoints
from controlplane.auth.door import Door
from controlplane.http.front import FrontTls, serve_front
from controlplane.http.health import health_app
from controlplane.store.sql.sqlite import open_sqlite
from controlplane.store.stores import Stores, stores
from controlplane.usecases import releases
from controlplane.usecases.access import access
from controlplane.usecases.bootstrap import KEY_FILE, ensure_project
from controlplane.usecases.bus import Bus
from controlplane.usecases.leases import DEFAULT_TIMES, Leases, LeaseTimes
from controlplane.usecases.releases import Releases
from controlplane.usecases.vault import Vault, read_keys
from pipecd_model.errors import StateError
from pipecd_wire.rpc import AddressError, Observe


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Everything a control plane is told from outside."""

    data_dir: Path
    host: str = "127.0.0.1"
    port: int = 0
    tls: FrontTls | None = None
    project_id: str | None = None
    """The project a new folder gets; None is the default one."""
    public_url: str = ""
    """Where people reach it, for links; empty is the address it listens on."""
    grace: float = 10.0
    """Seconds for running calls when it stops."""
    lease_times: LeaseTimes = DEFAULT_TIMES
    """How long an agent that fell silent keeps its work to itself."""
    encryption_key_files: tuple[Path, ...] = ()
    """Keys for secrets at rest, the newest first; without any, one in the data folder."""
    releases_url: str = releases.URL
    observers: tuple[Observe, ...] = ()
    """Told of each call once its handler has ended, before it is answered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlPlane:
    """A control plane that serves."""

    address: str
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
            open_sqlite(settings.data_dir, on_commit=bus.publish)
        )
        kept = stores(database, _now)
        await ensure_project(kept, settings.data_dir, settings.project_id, _now)
        leases = Leases(kept.leases, settings.lease_times)
        vault = Vault(read_keys(settings.encryption_key_files, settings.data_dir))
        held = access(kept, vault)
        served = endpoints(
            kept,
            bus,
            leases,
            held,
            Releases(settings.releases_url),
            admit=Door(kept, leases, held.uses, _now).admit,
            now=_now,
            web_base_url=web_base_url,
            observers=settings.observers,
        )
        front = serve_front(
            health_app(),
            served,
            settings.host,
            settings.port,
            tls=settings.tls,
            grace=settings.grace,
            own_folder=settings.data_dir / "run",
        )
        try:
            address = await opened.enter_async_context(front)
        except AddressError as error:
            raise StateError(str(error), hint="choose another with --listen") from error
        opened.callback(bus.stop)
        yield ControlPlane(
            address=address,
            data_dir=settings.data_dir,
            admin_key_file=settings.data_dir / KEY_FILE,
            stores=kept,
            bus=bus,
        )


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
