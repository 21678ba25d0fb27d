# SPDX-License-Identifier: Apache-2.0
"""One instance per piped id, on a clock that the test moves."""

import asyncio
from dataclasses import dataclass

import pytest

from pipecd_controlplane.store.changes import Change, ChangeKind
from pipecd_controlplane.store.database import Database
from pipecd_controlplane.store.leases import LeaseRecords
from pipecd_controlplane.usecases.leases import Instance, Leases, LeaseTimes
from pipecd_controlplane.usecases.ownership import Agent
from pipecd_model.errors import StateError
from pipecd_wire.pipecd.push import push_pb2 as pb

AGENT = Agent(project_id="ours", piped_id="piped")
TIMES = LeaseTimes(lease=60, take_over=600)


@dataclass
class Clock:
    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def leases(database: Database, clock: Clock) -> Leases:
    return Leases(LeaseRecords(database), TIMES, clock)


def instance(name: str, folder: str = "", agent: Agent = AGENT) -> Instance:
    return Instance(agent=agent, instance_id=name, data_folder_id=folder or f"folder of {name}")


def begun_after(lease: pb.Lease) -> float:
    return lease.begun_after.ToTimedelta().total_seconds()


async def test_a_free_lease_is_given_at_once_with_both_times(leases: Leases) -> None:
    lease = await leases.acquire(instance("a"))

    assert (lease.held, lease.epoch) == (True, 1)
    assert (lease.time.seconds, lease.take_over_after.seconds) == (60, 600)
    assert begun_after(lease) == 0


async def test_a_held_lease_is_refused_to_another_instance(leases: Leases) -> None:
    await leases.acquire(instance("a"))

    lease = await leases.acquire(instance("b"))

    assert (lease.held, lease.epoch) == (False, 1)


async def test_a_holder_that_connects_again_keeps_its_epoch(leases: Leases) -> None:
    await leases.acquire(instance("a"))

    lease = await leases.acquire(instance("a"))

    assert (lease.held, lease.epoch) == (True, 1)


async def test_the_same_data_folder_gets_it_back_at_once_and_all_that_was_begun(
    leases: Leases,
) -> None:
    await leases.acquire(instance("a", "folder"))

    lease = await leases.acquire(instance("a after a crash", "folder"))

    assert (lease.held, lease.epoch, begun_after(lease)) == (True, 2, 0)


async def test_two_streams_of_one_folder_do_not_take_turns(leases: Leases) -> None:
    """The stream of a process that was killed may be open for a while."""
    await leases.acquire(instance("a", "folder"))
    await leases.acquire(instance("b", "folder"))

    assert not (await leases.acquire_after_wait(instance("a", "folder"))).held


async def test_one_that_lost_it_to_its_own_folder_gets_it_when_that_one_is_silent(
    leases: Leases, clock: Clock
) -> None:
    """Else its stream would ask again and again without a pause."""
    await leases.acquire(instance("a", "folder"))
    await leases.acquire(instance("b", "folder"))
    clock.now += 60
    assert leases.retry_after_seconds(AGENT) == 0

    lease = await leases.acquire_after_wait(instance("a", "folder"))

    assert (lease.held, lease.epoch, begun_after(lease)) == (True, 3, 0)
    assert leases.retry_after_seconds(AGENT) == 60


async def test_one_that_leaves_while_it_takes_over_is_not_forgotten(
    leases: Leases, clock: Clock
) -> None:
    await leases.acquire(instance("a"))
    clock.now += 100
    leaving = asyncio.ensure_future(leases.acquire(instance("b")))
    await asyncio.sleep(0)  # it has handed over its work
    leaving.cancel()

    lease = await leases.acquire(instance("b"))

    assert (lease.held, lease.epoch, begun_after(lease)) == (True, 2, 500)


async def test_a_silent_holder_loses_it_after_the_lease_time(leases: Leases, clock: Clock) -> None:
    await leases.acquire(instance("a"))
    clock.now += 59.9
    assert not (await leases.acquire(instance("b"))).held
    assert leases.retry_after_seconds(AGENT) == pytest.approx(0.1)

    clock.now += 0.1
    lease = await leases.acquire_after_wait(instance("b"))

    assert (lease.held, lease.epoch) == (True, 2)


async def test_a_renewal_gives_the_whole_time_again(leases: Leases, clock: Clock) -> None:
    await leases.acquire(instance("a"))
    for _ in range(5):
        clock.now += 50
        renewed = await leases.renew(AGENT, "a", 1)
        assert (renewed.held, renewed.epoch) == (True, 1)
        assert not (await leases.acquire_after_wait(instance("b"))).held

    clock.now += 60
    assert (await leases.acquire_after_wait(instance("b"))).held


async def test_a_late_renewal_keeps_what_nobody_has_taken(leases: Leases, clock: Clock) -> None:
    await leases.acquire(instance("a"))
    clock.now += 500

    assert (await leases.renew(AGENT, "a", 1)).held
    assert not (await leases.acquire(instance("b"))).held


async def test_what_a_silent_holder_has_begun_is_left_alone_until_it_cannot_be_at_work(
    leases: Leases, clock: Clock
) -> None:
    await leases.acquire(instance("a"))
    clock.now += 20
    await leases.renew(AGENT, "a", 1)  # the last that is heard of it
    clock.now += 100

    lease = await leases.acquire(instance("b"))
    assert (lease.held, begun_after(lease)) == (True, 500)

    clock.now += 499
    assert begun_after(await leases.renew(AGENT, "b", 2)) == 1
    clock.now += 1
    assert begun_after(await leases.renew(AGENT, "b", 2)) == 0


async def test_who_follows_the_one_that_took_over_waits_for_the_silent_one_too(
    leases: Leases, clock: Clock
) -> None:
    await leases.acquire(instance("a"))
    clock.now += 100
    await leases.acquire(instance("b"))
    await leases.release(AGENT, "b", 2)

    lease = await leases.acquire(instance("c"))

    assert (lease.held, lease.epoch, begun_after(lease)) == (True, 3, 500)


async def test_a_release_frees_it_with_all_that_was_begun(leases: Leases, clock: Clock) -> None:
    await leases.acquire(instance("a"))
    clock.now += 30
    await leases.release(AGENT, "a", 1)
    await leases.release(AGENT, "a", 1)

    lease = await leases.acquire_after_wait(instance("b"))

    assert (lease.held, lease.epoch, begun_after(lease)) == (True, 2, 0)


async def test_releasing_what_another_holds_changes_nothing(leases: Leases) -> None:
    await leases.acquire(instance("a", "folder"))
    await leases.acquire(instance("b", "folder"))

    await leases.release(AGENT, "a", 1)
    await leases.release(AGENT, "b", 1)

    assert (await leases.renew(AGENT, "b", 2)).held


async def test_renewing_what_another_holds_is_refused(leases: Leases, clock: Clock) -> None:
    await leases.acquire(instance("a"))
    clock.now += 60
    await leases.acquire(instance("b"))

    with pytest.raises(StateError, match="this instance does not hold the lease"):
        await leases.renew(AGENT, "a", 1)
    with pytest.raises(StateError, match="does not hold"):
        await leases.renew(AGENT, "b", 1)


async def test_renewing_what_was_given_up_is_refused(leases: Leases) -> None:
    await leases.acquire(instance("a"))
    await leases.release(AGENT, "a", 1)

    with pytest.raises(StateError, match="was given up"):
        await leases.renew(AGENT, "a", 1)


async def test_a_restarted_control_plane_keeps_holder_and_epoch_and_gives_the_whole_time(
    database: Database, leases: Leases, clock: Clock
) -> None:
    """Its clock begins anew, and the holder may have renewed a moment before the end."""
    await leases.acquire(instance("a"))
    again = Leases(LeaseRecords(database), TIMES, Clock(now=5.0))

    assert not (await again.acquire(instance("b"))).held
    assert again.retry_after_seconds(AGENT) == 60
    assert (await again.renew(AGENT, "a", 1)).held


async def test_after_a_restart_a_contested_lease_is_contested_for_the_whole_time(
    database: Database, leases: Leases, clock: Clock
) -> None:
    await leases.acquire(instance("a"))
    clock.now += 60
    await leases.acquire(instance("b"))
    later = Clock(now=5.0)
    again = Leases(LeaseRecords(database), TIMES, later)

    assert begun_after(await again.acquire(instance("b"))) == 600
    later.now += 600
    await again.renew(AGENT, "b", 2)

    # Settled, and that is kept: the next restart does not begin again.
    third = Leases(LeaseRecords(database), TIMES, Clock(now=5.0))
    assert begun_after(await third.acquire(instance("b"))) == 0


async def test_each_piped_has_a_lease_of_its_own(leases: Leases) -> None:
    other = Agent(project_id="ours", piped_id="another")
    await leases.acquire(instance("a"))

    assert (await leases.acquire(instance("b", agent=other))).held


async def test_agents_hear_of_another_holder_and_not_of_renewals(
    leases: Leases, told: list[Change]
) -> None:
    change = Change(kind=ChangeKind.LEASE, id="piped", project_id="ours", piped_id="piped")
    await leases.acquire(instance("a"))
    assert told == [change]
    await leases.renew(AGENT, "a", 1)
    await leases.current(instance("b"))
    assert told == [change]
    await leases.release(AGENT, "a", 1)
    assert told == [change, change]


@pytest.mark.parametrize(("epoch", "passes"), [(None, True), (1, False), (2, True), (3, True)])
async def test_only_older_epochs_are_fenced_off(
    leases: Leases, epoch: int | None, passes: bool
) -> None:
    await leases.acquire(instance("a", "folder"))
    await leases.acquire(instance("b", "folder"))
    caller = Agent(project_id="ours", piped_id="piped", lease_epoch=epoch)

    if passes:
        await leases.check_epoch(caller)
    else:
        with pytest.raises(StateError, match=r"gone to another instance \(epoch 2, yours is 1\)"):
            await leases.check_epoch(caller)


def test_a_lease_that_nobody_has_asked_for_is_asked_for_again_after_its_time(
    leases: Leases,
) -> None:
    assert leases.retry_after_seconds(AGENT) == 60


async def test_only_the_holder_is_told_to_leave_begun_work_alone(
    leases: Leases, clock: Clock
) -> None:
    await leases.acquire(instance("a"))
    clock.now += 100
    assert begun_after(await leases.acquire(instance("b"))) == 500

    lease = await leases.acquire(instance("c"))

    assert (lease.held, begun_after(lease)) == (False, 0)


async def test_looking_at_the_lease_neither_takes_nor_renews_it(
    leases: Leases, clock: Clock
) -> None:
    assert not (await leases.current(instance("a"))).held
    await leases.acquire(instance("a"))
    clock.now += 60

    seen = [await leases.current(instance(name)) for name in ("a", "b")]

    assert [(each.held, each.epoch) for each in seen] == [(True, 1), (False, 1)]
    assert (await leases.acquire(instance("b"))).held, "it has run out all the same"


async def test_who_gives_it_up_is_told_whether_it_is_free(leases: Leases) -> None:
    assert await leases.release(AGENT, "nobody", 1)
    await leases.acquire(instance("a"))

    assert not await leases.release(AGENT, "b", 1)
    assert not await leases.release(AGENT, "a", 2)
    assert await leases.release(AGENT, "a", 1)
    assert await leases.release(AGENT, "a", 1), "again, because the answer was lost"


def restarted(database: Database, clock: Clock) -> Leases:
    """The leases of a control plane that has just started: it knows the records alone."""
    return Leases(LeaseRecords(database), TIMES, clock)


async def test_what_is_settled_stays_settled_after_a_restart(
    leases: Leases, database: Database, clock: Clock
) -> None:
    await leases.acquire(instance("a"))
    clock.now += 100
    assert begun_after(await leases.acquire(instance("b", "folder"))) == 500
    clock.now += 500
    await leases.acquire(instance("b after a crash", "folder"))

    lease = await restarted(database, clock).renew(AGENT, "b after a crash", 3)

    assert begun_after(lease) == 0


async def test_who_follows_one_that_said_goodbye_waits_for_nobody_after_a_restart(
    leases: Leases, database: Database, clock: Clock
) -> None:
    await leases.acquire(instance("a"))
    await leases.release(AGENT, "a", 1)
    await leases.acquire(instance("b"))

    lease = await restarted(database, clock).renew(AGENT, "b", 2)

    assert (lease.held, begun_after(lease)) == (True, 0)


async def test_who_comes_back_to_its_folder_waits_for_nobody_after_a_restart(
    leases: Leases, database: Database, clock: Clock
) -> None:
    await leases.acquire(instance("a", "folder"))
    await leases.acquire(instance("a after a crash", "folder"))

    lease = await restarted(database, clock).renew(AGENT, "a after a crash", 2)

    assert (lease.held, begun_after(lease)) == (True, 0)
