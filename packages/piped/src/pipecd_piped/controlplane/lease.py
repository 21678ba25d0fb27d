# SPDX-License-Identifier: Apache-2.0
"""The lease: whether this instance of a piped may start work, and for how long.

The push stream grants it, calls renew it after a third of its time, and a graceful stop releases
it. Its time counts from the moment a call was sent, on a clock that runs while the machine sleeps:
this instance always stops before another one may begin. A control plane without leases sets no
limits; until it is known whether it has leases, nothing starts.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from enum import Enum
from pathlib import Path
from typing import Final

from google.protobuf.duration_pb2 import Duration

from pipecd_model.errors import PipecdError, StateError
from pipecd_piped.controlplane.client import ControlPlane, UnknownRpcError
from pipecd_piped.controlplane.epoch import current_lease_epoch, read_epoch, write_epoch
from pipecd_runtime.logs import logger
from pipecd_runtime.signals import Signal
from pipecd_wire.headers import LEASE_EPOCH_HEADER
from pipecd_wire.pipecd.push import push_pb2 as push

log = logger(__name__)

SHORTEST_PAUSE_SECONDS: Final = 0.2
"""The shortest pause between two renewals."""

RENEWAL_TIMEOUT_SECONDS: Final = 5.0
"""The deadline of a renewal; the next one is due soon anyway."""

RELEASE_TIMEOUT_SECONDS: Final = 2.0
"""How long a stopping piped waits for the release."""


def boot_time() -> float:
    """Returns seconds on a monotonic clock that also runs while the machine sleeps."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class LeaseState(Enum):
    """The state of the lease in the control plane's last response."""

    UNKNOWN = "unknown"
    """There was no response yet."""
    UNLIMITED = "unlimited"
    """The control plane has no leases."""
    HELD = "held"
    ELSEWHERE = "elsewhere"
    """This instance does not hold it: another one does, or none."""


class Lease:
    """The lease of this instance: decides what it may start now."""

    def __init__(
        self,
        instance_id: str,
        kept: Path | None = None,
        clock: Callable[[], float] = boot_time,
    ) -> None:
        """`kept`: the file with the epoch of the previous piped, whose backlog we may send."""
        self.instance_id = instance_id
        self.state = LeaseState.UNKNOWN
        self.epoch = read_epoch(kept) if kept is not None else 0
        """The epoch in which this data folder last held the lease; 0 when it never did."""
        self._inherited: int | None = None
        """The epoch of the previous piped, when no other instance held the lease in between."""
        self.on_refused: Callable[[], None] = lambda: None
        """Called when a renewal was refused: the push stream is to be reopened."""
        self._kept = kept
        self._clock = clock
        self._newest = 0
        self._renewed = self._begun_from = 0.0
        self._time = self._take_over = 0.0
        self._changed = Signal()

    @property
    def held(self) -> bool:
        """Whether this instance has the lease, even if expired, or needs none; see `may_start`."""
        return self.state in {LeaseState.HELD, LeaseState.UNLIMITED}

    @property
    def is_known(self) -> bool:
        """Whether the control plane has told this process yet who has the lease."""
        return self.state is not LeaseState.UNKNOWN or self._newest > 0

    async def wait_known(self) -> None:
        """Wait until the control plane has told who has the lease."""
        await self._wait_for(lambda: self.is_known)

    def epoch_now(self) -> int:
        """Returns the epoch of the caller's `lease_epoch` block, or that of the lease."""
        chosen = current_lease_epoch()
        return self.epoch if chosen is None or chosen == self._inherited else chosen

    def metadata(self) -> list[tuple[str, str]]:
        """Returns the metadata of every call; epoch 0 means that no lease was held yet."""
        return [(LEASE_EPOCH_HEADER, str(self.epoch_now()))]

    def now(self) -> float:
        """Returns the time on the lease's clock."""
        return self._clock()

    def apply(self, lease: push.Lease | None, *, asked: float) -> None:
        """Apply the response to a call that was sent at `asked`; None: there are no leases."""
        if lease is None:
            self._apply_none()
        elif lease.epoch >= self._newest:  # else a newer response has overtaken it
            self._newest = lease.epoch
            self._time = _seconds(lease.time)
            self._take_over = _seconds(lease.take_over_after)
            if lease.held:
                self._hold(lease, asked)
            else:
                self._lose()
        self._notify()

    def _apply_none(self) -> None:
        if self.state in {LeaseState.UNKNOWN, LeaseState.UNLIMITED}:
            self.state = LeaseState.UNLIMITED
        else:
            # A gateway may respond so for a control plane that is away: keep the lease's limits.
            log.warning(
                "lease.unknown_now",
                reason="the control plane says that it has no leases, and had one before",
                hint="if it was replaced by one without, restart this piped",
            )

    def _hold(self, lease: push.Lease, asked: float) -> None:
        if self.state is not LeaseState.HELD or self.epoch != lease.epoch:
            log.info("lease.held", epoch=lease.epoch)
        self.state = LeaseState.HELD
        self._begun_from = self._clock() + _seconds(lease.begun_after)
        if self.epoch != lease.epoch:
            first = not self._renewed
            self._inherited = self.epoch if first and lease.epoch == self.epoch + 1 else None
            self.epoch = lease.epoch
            if self._kept is not None:
                write_epoch(self._kept, lease.epoch)
        self._renewed = max(self._renewed, asked)

    def _lose(self) -> None:
        if self.state is not LeaseState.ELSEWHERE:
            log.warning(
                "lease.elsewhere",
                reason="another instance of this piped is at work; this one starts nothing",
                hint="stop one of them, or give it a piped id of its own",
            )
        self.state = LeaseState.ELSEWHERE

    def may_begin(self, *, begun: bool) -> bool:
        """Returns whether a deployment may be run now.

        One that another instance may have `begun` waits until that one must have stopped.
        """
        return self.may_start(rollback=False) and not (begun and self._clock() < self._begun_from)

    def may_start(self, *, rollback: bool) -> bool:
        """Returns whether a stage may start now; a rollback may until another may take over."""
        if self.state is LeaseState.UNLIMITED:
            return True
        lasts = self._take_over if rollback else self._time
        return self.state is LeaseState.HELD and self._clock() < self._renewed + lasts

    async def wait_for_deployment(self, *, begun: bool) -> None:
        """Wait until a deployment may be run; see `may_begin`."""
        await self._wait_for(
            lambda: self.may_begin(begun=begun),
            lambda: self._begun_from if begun and self.may_start(rollback=False) else None,
        )

    async def wait_for_stage(self, *, rollback: bool) -> None:
        """Wait until a stage may start; see `may_start`."""
        if not self.may_start(rollback=rollback):
            log.warning("lease.stage_waits", rollback=rollback, standing=self.state.value)
        await self._wait_for(lambda: self.may_start(rollback=rollback))

    async def wait_until_lost(self) -> None:
        """Wait until the lease is lost and another instance may continue what this one began."""
        await self._wait_for(
            lambda: self._is_elsewhere() and self._clock() >= self._renewed + self._take_over,
            lambda: self._renewed + self._take_over if self._is_elsewhere() else None,
        )

    async def run_while_held(self, work: Callable[[], Awaitable[None]]) -> None:
        """Run `work` while this instance holds the lease, and again each time it gets it back."""
        while True:
            await self._wait_for(lambda: self.held)
            epoch = self.epoch
            async with asyncio.TaskGroup() as tasks:
                working = tasks.create_task(_run(work))
                watching = tasks.create_task(
                    self._wait_for(lambda: not self.held or self.epoch != epoch)  # noqa: B023 - ends with the block
                )
                await asyncio.wait({working, watching}, return_when=asyncio.FIRST_COMPLETED)
                if working.done():
                    watching.cancel()
                working.cancel()
            if not working.cancelled():
                return

    async def renew_forever(self, control: ControlPlane) -> None:
        """Renew the lease whenever it is held, until cancelled."""
        tried = 0.0
        while True:
            if self.state is not LeaseState.HELD:
                tried = 0.0
                await self._wait_for(lambda: self.state is LeaseState.HELD)
            due = max(self._renewed, tried) + max(SHORTEST_PAUSE_SECONDS, self._time / 3)
            if self._clock() < due:
                await self._wait_for_change(due - self._clock())
            else:
                tried = self._clock()
                await self.renew(control)

    async def renew(self, control: ControlPlane) -> None:
        """Renew the lease once; a refusal loses it, a failed call changes nothing."""
        asked, epoch = self._clock(), self.epoch
        request = push.RenewLeaseRequest(instance_id=self.instance_id, epoch=epoch)
        try:
            answer = await control.call(
                control.push.RenewLease, request, deadline=RENEWAL_TIMEOUT_SECONDS
            )
        except StateError:
            if epoch == self.epoch and self.state is LeaseState.HELD:
                self._lose()
                self._notify()
                self.on_refused()
        except UnknownRpcError:
            self.apply(None, asked=asked)
        except PipecdError as error:
            log.debug("lease.not_renewed", reason=str(error))
        else:
            self.apply(answer.lease, asked=asked)

    async def release(self, control: ControlPlane) -> None:
        """Release the lease if it is held, so that another instance need not wait."""
        if self.state is not LeaseState.HELD:
            return
        self.state = LeaseState.UNKNOWN
        request = push.ReleaseLeaseRequest(instance_id=self.instance_id, epoch=self.epoch)
        try:
            async with asyncio.timeout(RELEASE_TIMEOUT_SECONDS):
                await control.call(
                    control.push.ReleaseLease, request, deadline=RELEASE_TIMEOUT_SECONDS
                )
        except (PipecdError, TimeoutError) as error:
            log.info("lease.not_released", reason=str(error))
        else:
            log.info("lease.released", epoch=self.epoch)

    def _is_elsewhere(self) -> bool:
        return self.state is LeaseState.ELSEWHERE

    def _notify(self) -> None:
        self._changed.send()

    async def _wait_for(
        self,
        holds: Callable[[], bool],
        due: Callable[[], float | None] = lambda: None,
    ) -> None:
        """Wait until a condition holds; `due` returns when it may hold without any change."""
        while not holds():
            at = due()
            await self._wait_for_change(None if at is None else at - self._clock())

    async def _wait_for_change(self, limit: float | None) -> None:
        """Wait for a change of the lease, not longer than the limit."""
        try:
            async with asyncio.timeout(limit):
                await self._changed.wait()
        except TimeoutError:
            return


async def _run(work: Callable[[], Awaitable[None]]) -> None:
    await work()


def _seconds(duration: Duration) -> float:
    return duration.ToTimedelta().total_seconds()
