# SPDX-License-Identifier: Apache-2.0
"""The lease: of all instances that run under one piped id, only one may work.

Expiry is measured with a monotonic clock, from when this process saw the last renewal. After a
restart the holder therefore has the whole time again: to expire late is harmless, to expire early
would let two instances work at once.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Final

from google.protobuf.duration_pb2 import Duration

from pipecd_controlplane.store.leases import LeaseRecord, LeaseRecords
from pipecd_controlplane.usecases.ownership import Agent
from pipecd_model.errors import StateError
from pipecd_wire.pipecd.push import push_pb2

Clock = Callable[[], float]
"""Monotonic seconds: they only grow, whatever happens to the system time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseTimes:
    """How long a holder that sends no renewal keeps its rights, in seconds."""

    lease: float = 60.0
    """Until another instance may start new deployments."""
    take_over: float = 600.0
    """Until another instance may continue deployments that the holder has begun."""


DEFAULT_TIMES: Final = LeaseTimes()


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """One process of a piped."""

    agent: Agent
    instance_id: str
    data_folder_id: str


@dataclass(slots=True)
class _SeenLease:
    """What this process knows of one lease beyond its record: times on its own clock."""

    record: LeaseRecord
    at: float
    """When the record was first seen with this epoch and these renewals."""
    settled_at: float
    """From when on the previous holder, if it fell silent, cannot be at work any more."""

    def is_same(self, record: LeaseRecord) -> bool:
        return (self.record.epoch, self.record.renewals) == (record.epoch, record.renewals)

    def is_taken_over(self, record: LeaseRecord) -> bool:
        """Returns whether an instance with another data folder took over from a silent holder."""
        return (
            record.contested
            and record.epoch != self.record.epoch
            and bool(self.record.instance_id)
            and record.data_folder_id != self.record.data_folder_id
        )


class Leases:
    """Grants, renews and revokes leases."""

    def __init__(
        self,
        records: LeaseRecords,
        times: LeaseTimes = DEFAULT_TIMES,
        clock: Clock = time.monotonic,
    ) -> None:
        self._records = records
        self._times = times
        self._clock = clock
        self._seen: dict[str, _SeenLease] = {}

    async def acquire(self, instance: Instance) -> push_pb2.Lease:
        """Requests the lease for an instance that has just connected.

        An instance with the holder's data folder gets it at once: a process locks its folder while
        it lives, so the previous holder is dead.
        """
        return await self._acquire(instance, same_folder=True)

    async def acquire_after_wait(self, instance: Instance) -> push_pb2.Lease:
        """Requests the lease for an instance that waits for it, once it is free or has expired.

        The same data folder gives no precedence here: otherwise two streams of one folder would
        take the lease from each other for ever.
        """
        return await self._acquire(instance, same_folder=False)

    async def _acquire(self, instance: Instance, *, same_folder: bool) -> push_pb2.Lease:
        agent = instance.agent
        seen = self._observe(agent, await self._records.get(agent.project_id, agent.piped_id))
        # Judged by what was seen: a renewal that comes in between makes another record of it.
        before = seen.record
        silent = (before.epoch, before.renewals) if self._time_left(seen) <= 0 else None
        settled = self._clock() >= seen.settled_at

        def edit(record: LeaseRecord) -> LeaseRecord:
            if record.instance_id == instance.instance_id:
                return replace(record, renewals=record.renewals + 1)
            is_silent = (record.epoch, record.renewals) == silent
            same = record.data_folder_id == instance.data_folder_id
            if record.instance_id and not is_silent and not (same and same_folder):
                return record
            taken_over = bool(record.instance_id) and not same
            return LeaseRecord(
                epoch=record.epoch + 1,
                instance_id=instance.instance_id,
                data_folder_id=instance.data_folder_id,
                contested=taken_over or (record.contested and not settled),
            )

        record = await self._records.change(agent.project_id, agent.piped_id, edit)
        return self._lease(instance.instance_id, record, self._observe(agent, record))

    async def current(self, instance: Instance) -> push_pb2.Lease:
        """Returns the lease as it is now. Neither acquires nor renews it."""
        agent = instance.agent
        record = await self._records.get(agent.project_id, agent.piped_id)
        return self._lease(instance.instance_id, record, self._observe(agent, record))

    async def renew(self, agent: Agent, instance_id: str, epoch: int) -> push_pb2.Lease:
        """Renews the lease. Raises StateError when this instance does not hold it."""
        known = self._observe(agent, await self._records.get(agent.project_id, agent.piped_id))
        settled, known_epoch = self._clock() >= known.settled_at, known.record.epoch

        def edit(record: LeaseRecord) -> LeaseRecord:
            if (record.instance_id, record.epoch) != (instance_id, epoch):
                raise StateError(
                    f"this instance does not hold the lease of the piped {agent.piped_id!r}"
                    if record.instance_id
                    else f"the lease of the piped {agent.piped_id!r} was given up",
                    hint="start no work, and watch again",
                )
            contested = record.contested and not (settled and known_epoch == record.epoch)
            return replace(record, renewals=record.renewals + 1, contested=contested)

        record = await self._records.change(agent.project_id, agent.piped_id, edit)
        return self._lease(instance_id, record, self._observe(agent, record))

    async def release(self, agent: Agent, instance_id: str, epoch: int) -> bool:
        """Releases the lease, so that a waiting instance can acquire it.

        Does nothing when another instance holds it. Returns whether nobody holds it now.
        """

        def edit(record: LeaseRecord) -> LeaseRecord:
            if (record.instance_id, record.epoch) != (instance_id, epoch):
                return record
            return replace(record, instance_id="", data_folder_id="")

        record = await self._records.change(agent.project_id, agent.piped_id, edit)
        self._observe(agent, record)
        return not record.instance_id

    async def check_epoch(self, agent: Agent) -> None:
        """Raises StateError for a caller whose lease has since gone to another instance.

        A caller without an epoch passes: an agent without lease support, or an instance that waits
        for the lease and only introduces itself.
        """
        if not agent.lease_epoch:
            return
        record = await self._records.get(agent.project_id, agent.piped_id)
        if agent.lease_epoch < record.epoch:
            raise StateError(
                f"the lease of the piped {agent.piped_id!r} has gone to another instance"
                f" (epoch {record.epoch}, yours is {agent.lease_epoch})",
                hint="stop this instance, or give it a piped id of its own",
            )

    def retry_after_seconds(self, agent: Agent) -> float:
        """Returns the seconds after which to retry, unless a change of the lease comes before."""
        seen = self._seen.get(agent.piped_id)
        return max(0.0, self._time_left(seen)) if seen is not None else self._times.lease

    def _time_left(self, seen: _SeenLease) -> float:
        """Returns the seconds until the lease expires if its holder does not renew it."""
        return seen.at + self._times.lease - self._clock()

    def _observe(self, agent: Agent, record: LeaseRecord) -> _SeenLease:
        now = self._clock()
        seen = self._seen.get(agent.piped_id)
        if seen is None:
            # How long the previous holder has been silent is unknown: as if it renewed just now.
            seen = _SeenLease(record, now, now + self._times.take_over)
            self._seen[agent.piped_id] = seen
        elif not seen.is_same(record):
            # By the first call that sees it: the one that acquired it may have ended meanwhile.
            if seen.is_taken_over(record):
                seen.settled_at = max(seen.settled_at, seen.at + self._times.take_over)
            seen.at = now
        seen.record = record
        return seen

    def _lease(self, instance_id: str, record: LeaseRecord, seen: _SeenLease) -> push_pb2.Lease:
        held = record.instance_id == instance_id
        begun_after = max(0.0, seen.settled_at - self._clock()) if held and record.contested else 0
        return push_pb2.Lease(
            epoch=record.epoch,
            held=held,
            time=_duration(self._times.lease),
            take_over_after=_duration(self._times.take_over),
            begun_after=_duration(begun_after),
        )


def _duration(seconds: float) -> Duration:
    duration = Duration()
    duration.FromTimedelta(timedelta(seconds=seconds))
    return duration
