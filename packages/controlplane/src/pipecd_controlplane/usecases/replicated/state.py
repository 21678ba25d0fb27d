# SPDX-License-Identifier: Apache-2.0
"""The shared state of control planes over one PostgreSQL, put together."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final

from pipecd_controlplane.store.postgres.config import PostgresServer
from pipecd_controlplane.store.postgres.database import PostgresDatabase, open_postgres
from pipecd_controlplane.store.postgres.notices import Notice, decode_notice
from pipecd_controlplane.store.postgres.session import SessionSubscriber
from pipecd_controlplane.usecases.bus import Bus
from pipecd_controlplane.usecases.git_hints import InProcessGitHints
from pipecd_controlplane.usecases.in_process import InProcessKeyUses
from pipecd_controlplane.usecases.lost_key import refuse_lost_key
from pipecd_controlplane.usecases.questions import InProcessQuestions
from pipecd_controlplane.usecases.replicated.attempts import ReplicatedAttemptLimiter
from pipecd_controlplane.usecases.replicated.bus import ReplicatedBus
from pipecd_controlplane.usecases.replicated.channels import Channels
from pipecd_controlplane.usecases.replicated.echo import Echo
from pipecd_controlplane.usecases.replicated.encryption import check_encryption_keys
from pipecd_controlplane.usecases.replicated.familiar import ReplicatedFamiliarNetworks
from pipecd_controlplane.usecases.replicated.git_hints import ReplicatedGitHints
from pipecd_controlplane.usecases.replicated.heartbeat import Heartbeat
from pipecd_controlplane.usecases.replicated.job_leader import ReplicatedJobLeader
from pipecd_controlplane.usecases.replicated.login_requests import ReplicatedLoginRequests
from pipecd_controlplane.usecases.replicated.measurements import measure_database
from pipecd_controlplane.usecases.replicated.messages import Messages, SealedBox
from pipecd_controlplane.usecases.replicated.notifier import Notifier
from pipecd_controlplane.usecases.replicated.presence import ReplicatedPresence
from pipecd_controlplane.usecases.replicated.questions import ReplicatedQuestions
from pipecd_controlplane.usecases.replicated.sightings import ReplicatedSightings
from pipecd_controlplane.usecases.shared_state import AttemptLimiter, Measurement
from pipecd_controlplane.usecases.vault import read_keys
from pipecd_model.errors import NotFoundError, PipecdError
from pipecd_runtime.logs import logger
from pipecd_runtime.tasks import UnwrappedTaskGroup

log = logger(__name__)

LEAVE_SECONDS: Final = 2.0
"""How long the end of this control plane waits for the database."""


class ReplicatedState:
    """Implements `SharedState`. Created by `open_replicated`."""

    def __init__(
        self,
        server: PostgresServer,
        database: PostgresDatabase,
        bus: Bus,
        folder: Path,
        keys: Sequence[bytes],
    ) -> None:
        self._folder = folder
        self._receiving: set[asyncio.Task[None]] = set()
        self._limiters: dict[str, AttemptLimiter] = {}
        self._tables = database.shared_tables
        self.database = database
        replica_id = database.replica_id
        notifier = Notifier(database)
        box = SealedBox(keys)
        channels = Channels(self._tables, replica_id)
        self.messages = Messages(self._tables, notifier, box)
        self.echo = Echo(notifier)
        self.bus = ReplicatedBus(bus, notifier, self.echo)
        self.heartbeat = Heartbeat(
            database, notifier, channels, self.bus, self.echo, box.public_key
        )
        self.presence = ReplicatedPresence(channels, self.bus)
        self.sightings = ReplicatedSightings(self._tables)
        self.familiar_networks = ReplicatedFamiliarNetworks(self._tables)
        self.login_requests = ReplicatedLoginRequests(self._tables)
        self.questions = ReplicatedQuestions(
            InProcessQuestions(bus), channels, self._tables, self.messages, replica_id
        )
        self.git_hints = ReplicatedGitHints(InProcessGitHints(bus), channels, notifier)
        self.key_uses = InProcessKeyUses()
        self.job_leader = ReplicatedJobLeader(server)

    def limit_attempts(self, name: str, *, burst: int, seconds: float) -> AttemptLimiter:
        new = ReplicatedAttemptLimiter(self._tables, name, burst=burst, seconds=seconds)
        return self._limiters.setdefault(name, new)

    def measure(self) -> list[Measurement]:
        return measure_database(self.database, self.heartbeat)

    async def read_encryption_keys(self, files: Sequence[Path]) -> list[bytes]:
        return read_keys(files, self._folder)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Takes part among the control planes of the database while the block runs."""
        async with UnwrappedTaskGroup() as tasks:
            subscriber = SessionSubscriber(
                hear=lambda payload: self._hear(payload, tasks),
                resync=lambda: self._resync(tasks),
            )
            with self.database.session.subscription(subscriber):
                await self.heartbeat.register()
                loops = [
                    tasks.create_task(self.bus.send_pending(), name="replica.publish"),
                    tasks.create_task(self.heartbeat.run(), name="replica.heartbeat"),
                ]
                try:
                    yield
                finally:
                    for task in (*loops, *self._receiving):
                        task.cancel()
                    await self._leave()

    def _hear(self, payload: str, tasks: asyncio.TaskGroup) -> None:
        notice = decode_notice(payload)
        if notice is None:
            log.warning("replica.notice_unreadable", size=len(payload))
            return
        own = self.database.replica_id
        if notice.to and notice.to != own:
            return
        if notice.ping:
            self.echo.hear(notice)
        elif notice.origin != own:
            if notice.changes:
                self.bus.hear(notice)
            if notice.message_id or notice.git_hint:
                task = tasks.create_task(self._receive(notice), name="replica.receive")
                self._receiving.add(task)
                task.add_done_callback(self._receiving.discard)

    async def _receive(self, notice: Notice) -> None:
        try:
            await self.git_hints.hear(notice)
            if notice.message_id:
                text = await self.messages.take(notice.message_id)
                if text is not None:
                    await self.questions.receive(text)
        except NotFoundError as error:
            log.info("replica.message_late", reason=str(error))
        except PipecdError as error:
            log.warning("replica.message_failed", error=str(error))
        except Exception:  # noqa: BLE001 - a bug in one message must not end the server
            log.bug("replica.message_bug")

    def _resync(self, tasks: asyncio.TaskGroup) -> None:
        """Makes everybody here read again what may have changed unheard."""
        self.bus.resync()

        async def beat() -> None:
            with suppress(PipecdError):  # the next regular one follows
                await self.heartbeat.beat()

        tasks.create_task(beat(), name="replica.beat")

    async def _leave(self) -> None:
        try:
            async with asyncio.timeout(LEAVE_SECONDS):
                await self.heartbeat.leave()
        except (TimeoutError, PipecdError) as error:
            log.warning("replica.not_left", error=str(error))
        await self.job_leader.close()


@asynccontextmanager
async def open_replicated(
    server: PostgresServer, folder: Path, key_files: Sequence[Path]
) -> AsyncIterator[ReplicatedState]:
    """Yields the state and, in it, the database. Raises StateError, ConfigError.

    The keys are those of the files or of the folder, which is the data folder of this process.
    """
    bus = Bus()
    async with open_postgres(server, bus.publish) as database:
        await refuse_lost_key(database, key_files, folder)
        keys = read_keys(key_files, folder)
        await check_encryption_keys(database.shared_tables, keys)
        state = ReplicatedState(server, database, bus, folder, keys)
        async with state.running():
            yield state
