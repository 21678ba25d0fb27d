# SPDX-License-Identifier: Apache-2.0
"""Stage logs that one stream follows beside everything else: their new lines, while it may."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

from pipecd_controlplane.store.changes import Change, ChangeKind
from pipecd_controlplane.store.log_lines import RANGE_BYTES
from pipecd_controlplane.store.stage_logs import LogKey
from pipecd_controlplane.store.stores import Stores
from pipecd_controlplane.usecases import stage_logs
from pipecd_controlplane.usecases.roles import Grant
from pipecd_model.errors import NotFoundError, PipecdError, UnavailableError
from pipecd_runtime.backoff import Backoff
from pipecd_runtime.tasks import UnwrappedTaskGroup
from pipecd_wire.pipecd.api import api_pb2 as pb

MOST_LINES: Final = 5000
"""Of one log in one response."""

RIGHTS: Final = frozenset({ChangeKind.PROJECT, ChangeKind.SESSION, ChangeKind.LABELS})
"""After which a log may be refused that was shown before."""

FIRST_RETRY_SECONDS: Final = 1.0
LONGEST_RETRY_SECONDS: Final = 30.0
"""How long a log rests that cannot be read now: a silent bucket is not asked all the time."""

READ_SECONDS: Final = 5.0
"""How long all else of a stream waits for its logs: those who watch it hear nothing meanwhile."""

FindGrant = Callable[[], Awaitable[Grant | None]]
"""Returns the permission of the caller, as it is now, to see deployments."""


class FollowedLog:
    """One log of a stream."""

    def __init__(self, place: int, wanted: pb.FollowedLog) -> None:
        self.place = place
        self.key = LogKey(
            deployment_id=wanted.deployment_id,
            stage_id=wanted.stage_id,
            retried_count=wanted.retried_count,
        )
        self.next_line = wanted.first_line
        """0 until the log was read: the next one to come."""
        self.is_stale = True
        """Whether there may be something that was not read."""
        self.is_told = False
        """Whether something was said of it in this stream: at first also that nothing is new."""
        self.is_done = False
        self.ends_at: float | None = None
        """When it counts as complete, though nobody has sealed it: its stage is over."""
        self.retry_at: float | None = None
        """When it is read again, after it could not be."""
        self._backoff = Backoff(
            first_seconds=FIRST_RETRY_SECONDS, longest_seconds=LONGEST_RETRY_SECONDS
        )

    def find_next_read(self, now: float) -> float | None:
        """Returns when it is to be read, `now` or later; None when only a change leads to that."""
        if self.is_done:
            return None
        if self.retry_at is not None:
            return max(self.retry_at, now)
        if self.is_stale:
            return now
        return None if self.ends_at is None else max(self.ends_at, now)

    def retry_later(self, now: float) -> None:
        """Notes that it could not be read now: what it has is still to be read."""
        self.is_stale = True
        self.retry_at = now + self._backoff.next_pause_seconds()

    def note_read(self) -> None:
        self.retry_at = None
        self._backoff.reset()

    def is_about(self, change: Change) -> bool:
        if change.kind is ChangeKind.STAGE_LOG:
            return change.id == str(self.key)
        if change.kind is ChangeKind.DEPLOYMENT:
            return change.id == self.key.deployment_id
        return change.kind in RIGHTS


class FollowedLogs:
    """The logs of one stream."""

    def __init__(
        self,
        stores: Stores,
        project_id: str,
        wanted: Iterable[pb.FollowedLog],
        find_grant: FindGrant,
        clock: Callable[[], float] = time.monotonic,
        *,
        seal_wait_seconds: float = stage_logs.SEAL_WAIT_SECONDS,
        read_seconds: float = READ_SECONDS,
    ) -> None:
        self._stores = stores
        self._project_id = project_id
        self._find_grant = find_grant
        self._clock = clock
        self._seal_wait_seconds = seal_wait_seconds
        self._read_seconds = read_seconds
        self._logs = [FollowedLog(place, each) for place, each in enumerate(wanted)]

    def notice(self, changes: Iterable[Change]) -> None:
        """Takes changes into account: the logs that they are about are read again."""
        for change in changes:
            for log in self._logs:
                log.is_stale = log.is_stale or log.is_about(change)

    def has_more(self) -> bool:
        """Returns whether something can be read now."""
        return self.find_seconds_left() == 0

    def find_seconds_left(self) -> float | None:
        """Returns in how many seconds a log is to be read by itself; None when none is."""
        now = self._clock()
        reads = [log.find_next_read(now) for log in self._logs]
        return min((each - now for each in reads if each is not None), default=None)

    async def read_new(self) -> list[pb.NewLines]:
        """Returns what is new; of a long log only a part, and then there is more.

        A log that cannot be read now, or not in time, is read again later, and nothing is said of
        it until then. All that are due are read at once, so that one that is silent delays no
        other.
        """
        now = self._clock()
        due = [log for log in self._logs if log.find_next_read(now) == now]
        async with UnwrappedTaskGroup() as tasks:
            reads = [tasks.create_task(self._try_to_read(log)) for log in due]
        found = [each.result() for each in reads]
        return [each for each in found if each is not None]

    async def _try_to_read(self, log: FollowedLog) -> pb.NewLines | None:
        try:
            async with asyncio.timeout(self._read_seconds):
                new = await self._read(log)
        except (UnavailableError, TimeoutError):
            log.retry_later(self._clock())
            return None
        except PipecdError as error:
            log.is_done = True
            new = pb.NewLines(place=log.place, refusal=str(error))
        log.note_read()
        return new

    async def _read(self, log: FollowedLog) -> pb.NewLines | None:
        """Returns the next lines of a log; None when there are none.

        Raises NotFoundError; UnavailableError when it can be read later.
        """
        grant = await self._find_grant()
        deployment = await self._stores.deployments.find(self._project_id, log.key.deployment_id)
        if grant is None or deployment is None or not grant.covers(deployment.labels):
            raise NotFoundError(f"there is no deployment {log.key.deployment_id!r}")
        is_over = stage_logs.is_over(deployment, log.key)
        log.is_stale = False  # before it is read: what comes meanwhile makes it stale again
        is_from_end = log.next_line == 0
        found = await self._stores.log_lines.read_range(
            self._project_id,
            log.key,
            first_line=log.next_line or 2**62,
            count=MOST_LINES,
            max_bytes=RANGE_BYTES,
        )
        log.next_line = (
            found.state.total_lines + 1 if is_from_end else log.next_line + len(found.blocks)
        )
        log.is_stale = log.is_stale or log.next_line <= found.state.total_lines
        if not is_over:
            log.ends_at = None
        log.is_done = is_over and not log.is_stale and self._has_ended(log, found.state.completed)
        if not (found.blocks or log.is_done) and log.is_told:
            return None
        log.is_told = True
        return pb.NewLines(
            place=log.place,
            blocks=found.blocks,
            first_line=log.next_line - len(found.blocks),
            total_lines=found.state.total_lines,
            completed=log.is_done,
        )

    def _has_ended(self, log: FollowedLog, sealed: bool) -> bool:
        """Returns whether nothing will follow: a log that nobody seals ends a moment later."""
        now = self._clock()
        if log.ends_at is None:
            log.ends_at = now + self._seal_wait_seconds
        return sealed or now >= log.ends_at
