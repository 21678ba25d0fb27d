# SPDX-License-Identifier: Apache-2.0
"""The lease says what may start: as long as it lasts, on a clock of its own."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import pytest
from google.protobuf.duration_pb2 import Duration

from pipecd_model.errors import ConfigError, StateError, UnavailableError
from pipecd_piped.controlplane.client import ControlPlane, connected
from pipecd_piped.controlplane.epoch import lease_epoch
from pipecd_piped.controlplane.lease import Lease, LeaseState
from pipecd_wire.headers import LEASE_EPOCH_HEADER
from pipecd_wire.pipecd.push import push_pb2 as push
from pipecd_wire.rpc import Endpoints, Metadata, Method, rpc, serving

LIMIT = 20
PUSH_SERVICE = push.DESCRIPTOR.services_by_name["PushService"]


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def seconds(number: float) -> Duration:
    made = Duration()
    made.FromTimedelta(timedelta(seconds=number))
    return made


def granted(epoch: int = 1, *, held: bool = True, begun_after: float = 0) -> push.Lease:
    return push.Lease(
        epoch=epoch,
        held=held,
        time=seconds(60),
        take_over_after=seconds(600),
        begun_after=seconds(begun_after),
    )


class Keeper:
    """A control plane that renews and takes back."""

    def __init__(self) -> None:
        self.renewed: asyncio.Queue[push.RenewLeaseRequest] = asyncio.Queue()
        self.released: list[push.ReleaseLeaseRequest] = []
        self.epochs: list[str] = []
        self.asked: asyncio.Queue[push.RenewLeaseRequest] = asyncio.Queue()
        self.refuses = False
        self.fails = False

    async def admit(self, method: Method, metadata: Metadata) -> str:
        self.epochs.append(metadata.get(LEASE_EPOCH_HEADER, ""))
        return "piped"

    @rpc("RenewLease")
    async def renew(
        self, caller: object, request: push.RenewLeaseRequest
    ) -> push.RenewLeaseResponse:
        self.asked.put_nowait(request)
        if self.refuses:
            raise StateError("another instance holds it")
        if self.fails:
            raise ConfigError("not now")
        self.renewed.put_nowait(request)
        return push.RenewLeaseResponse(lease=granted(request.epoch))

    @rpc("ReleaseLease")
    async def release(
        self, caller: object, request: push.ReleaseLeaseRequest
    ) -> push.ReleaseLeaseResponse:
        self.released.append(request)
        return push.ReleaseLeaseResponse()


@asynccontextmanager
async def control_of(
    keeper: Keeper, lease: Lease, *, knows: bool = True
) -> AsyncIterator[ControlPlane]:
    endpoints = Endpoints(admit=keeper.admit)
    served = {"RenewLease", "ReleaseLease"} if knows else set()
    unimplemented = [method.name for method in PUSH_SERVICE.methods if method.name not in served]
    endpoints.add(PUSH_SERVICE, keeper if knows else object(), unimplemented=unimplemented)
    async with (
        asyncio.timeout(LIMIT),
        serving(endpoints, "127.0.0.1:0") as port,
        connected(
            f"127.0.0.1:{port}",
            project_id="project",
            piped_id="piped",
            key="key",
            tls=None,
            also=lease.metadata,
            lease=lease,
        ) as control,
    ):
        yield control


async def turns() -> None:
    """Let everything run that can."""
    for _ in range(20):
        await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("age", "forward", "rollback"),
    [(0, True, True), (59, True, True), (60, False, True), (599, False, True), (600, False, False)],
)
def test_what_may_start_depends_on_the_last_renewal(
    age: float, forward: bool, rollback: bool
) -> None:
    clock = Clock()
    lease = Lease("i", clock=clock)
    lease.apply(granted(), asked=clock.now)

    clock.now += age

    assert lease.may_begin(begun=False) is forward
    assert lease.may_begin(begun=True) is forward
    assert lease.may_start(rollback=False) is forward
    assert lease.may_start(rollback=True) is rollback


def test_time_counts_from_the_question_not_from_the_answer() -> None:
    clock = Clock()
    lease = Lease("i", clock=clock)
    asked = clock.now
    clock.now += 61

    lease.apply(granted(), asked=asked)

    assert not lease.may_start(rollback=False)


def test_nothing_starts_before_the_control_plane_has_said_a_word() -> None:
    lease = Lease("i", clock=Clock())

    assert not lease.held
    assert not lease.may_begin(begun=False)
    assert not lease.may_start(rollback=True)


def test_without_leases_there_are_no_limits() -> None:
    clock = Clock()
    lease = Lease("i", clock=clock)
    lease.apply(None, asked=clock.now)

    clock.now += 100_000

    assert lease.held
    assert lease.may_begin(begun=True)
    assert lease.may_start(rollback=False)
    assert lease.metadata() == [(LEASE_EPOCH_HEADER, "0")]


@pytest.mark.parametrize("held", [True, False])
def test_who_was_told_of_leases_once_does_not_believe_that_there_are_none(held: bool) -> None:
    """A gateway before a control plane that is away answers so."""
    clock = Clock()
    lease = Lease("i", clock=clock)
    lease.apply(granted(held=held), asked=clock.now)
    clock.now += 100

    lease.apply(None, asked=clock.now)

    assert not lease.may_start(rollback=False)


def test_an_instance_that_does_not_hold_it_starts_nothing() -> None:
    lease = Lease("i", clock=Clock())

    lease.apply(granted(7, held=False), asked=1000.0)

    assert not lease.may_start(rollback=False)
    assert not lease.may_start(rollback=True)
    assert lease.epoch == 0


def test_an_answer_that_was_overtaken_changes_nothing() -> None:
    lease = Lease("i", clock=Clock())
    lease.apply(granted(3), asked=1000.0)
    lease.apply(granted(4, held=False), asked=1000.0)

    lease.apply(granted(3), asked=1000.0)

    assert lease.state is LeaseState.ELSEWHERE


def test_what_is_said_in_a_block_is_said_under_its_epoch() -> None:
    lease = Lease("i", clock=Clock())
    lease.apply(granted(3), asked=1000.0)
    with lease_epoch(1):
        assert lease.metadata() == [(LEASE_EPOCH_HEADER, "1")]
        with lease_epoch(None):
            assert lease.metadata() == [(LEASE_EPOCH_HEADER, "3")]
    with lease_epoch(0):
        assert lease.metadata() == [(LEASE_EPOCH_HEADER, "0")]

    assert lease.epoch_now() == 3


def test_the_epoch_is_kept_for_the_reports_that_the_next_piped_finds(tmp_path: Path) -> None:
    file = tmp_path / "lease"
    Lease("first", file, Clock()).apply(granted(12), asked=1000.0)

    second = Lease("second", file, Clock())

    assert second.metadata() == [(LEASE_EPOCH_HEADER, "12")]
    assert not second.held


@pytest.mark.parametrize(
    ("now", "sent"),
    [pytest.param(13, "13", id="nobody came between"), pytest.param(14, "12", id="somebody did")],
)
def test_what_the_piped_before_has_left_is_said_by_its_heir(
    tmp_path: Path, now: int, sent: str
) -> None:
    """Else reports that are late would be refused because of our own lease."""
    file = tmp_path / "lease"
    file.write_text("12\n")
    lease = Lease("second", file, Clock())
    left = lease.epoch_now()
    lease.apply(granted(now), asked=1000.0)

    with lease_epoch(left):
        assert lease.metadata() == [(LEASE_EPOCH_HEADER, sent)]
    lease.apply(granted(now + 1), asked=1000.0)
    with lease_epoch(left):
        assert lease.metadata() == [(LEASE_EPOCH_HEADER, "12")]


@pytest.mark.parametrize("content", ["", "twelve", "-1", "\xff"])
def test_a_kept_epoch_that_makes_no_sense_is_none(tmp_path: Path, content: str) -> None:
    file = tmp_path / "lease"
    file.write_text(content, encoding="latin-1")

    assert Lease("i", file, Clock()).epoch == 0


def test_a_folder_that_takes_no_file_keeps_nobody_from_work(tmp_path: Path) -> None:
    lease = Lease("i", tmp_path / "gone" / "lease", Clock())

    lease.apply(granted(2), asked=1000.0)

    assert lease.may_start(rollback=False)


async def test_whoever_waits_goes_on_when_it_is_back() -> None:
    clock = Clock()
    lease = Lease("i", clock=clock)
    lease.apply(granted(), asked=clock.now)
    clock.now += 700
    async with asyncio.timeout(LIMIT), asyncio.TaskGroup() as tasks:
        waiting = [
            tasks.create_task(lease.wait_for_deployment(begun=False)),
            tasks.create_task(lease.wait_for_deployment(begun=True)),
            tasks.create_task(lease.wait_for_stage(rollback=False)),
            tasks.create_task(lease.wait_for_stage(rollback=True)),
        ]
        await turns()
        assert not any(each.done() for each in waiting)

        lease.apply(granted(), asked=clock.now)


async def test_what_another_instance_has_begun_is_left_alone_for_a_while() -> None:
    clock = Clock()
    lease = Lease("i", clock=clock)
    lease.apply(granted(begun_after=500), asked=clock.now)
    async with asyncio.timeout(LIMIT), asyncio.TaskGroup() as tasks:
        await lease.wait_for_deployment(begun=False)
        begun = tasks.create_task(lease.wait_for_deployment(begun=True))
        await turns()
        assert not begun.done()

        clock.now += 500
        lease.apply(granted(), asked=clock.now)


async def test_what_another_instance_has_begun_is_taken_up_without_further_news() -> None:
    lease = Lease("i")
    lease.apply(granted(begun_after=0.05), asked=lease.now())

    async with asyncio.timeout(LIMIT):
        await lease.wait_for_deployment(begun=True)


async def test_what_runs_is_given_up_only_when_another_one_may_be_at_work_on_it() -> None:
    clock = Clock()
    lease = Lease("i", clock=clock)
    lease.apply(granted(), asked=clock.now)
    async with asyncio.timeout(LIMIT), asyncio.TaskGroup() as tasks:
        gone = tasks.create_task(lease.wait_until_lost())
        clock.now += 1000  # the control plane is away, and nobody knows of another one
        await turns()
        assert not gone.done()
        lease.apply(granted(), asked=clock.now)
        clock.now += 599
        lease.apply(granted(2, held=False), asked=clock.now)
        await turns()
        assert not gone.done()

        clock.now += 1
        lease.apply(granted(2, held=False), asked=clock.now)


async def test_what_runs_is_given_up_without_further_news() -> None:
    lease = Lease("i")
    for held in (True, False):
        said = granted(1 if held else 2, held=held)
        said.take_over_after.CopyFrom(seconds(0.05))
        lease.apply(said, asked=lease.now())

    async with asyncio.timeout(LIMIT):
        await lease.wait_until_lost()


async def test_work_goes_on_only_while_it_is_held() -> None:
    lease = Lease("i", clock=Clock())
    begun, ended = asyncio.Semaphore(0), asyncio.Semaphore(0)

    async def work() -> None:
        begun.release()
        try:
            await asyncio.Event().wait()
        finally:
            ended.release()

    async with asyncio.timeout(LIMIT), asyncio.TaskGroup() as tasks:
        working = tasks.create_task(lease.run_while_held(work))
        await turns()
        assert begun.locked()
        lease.apply(granted(1), asked=1000.0)
        await begun.acquire()
        lease.apply(granted(1), asked=1001.0)  # a renewal
        await turns()
        assert begun.locked(), "it is not begun a second time"
        assert ended.locked(), "nor ended"
        lease.apply(granted(2, held=False), asked=1000.0)
        await ended.acquire()
        await turns()
        assert begun.locked()
        lease.apply(granted(3), asked=1000.0)
        await begun.acquire()
        working.cancel()


async def test_work_begins_again_when_the_lease_came_back_in_another_epoch() -> None:
    """Another instance may have been at work in between, unseen."""
    lease = Lease("i", clock=Clock())
    begun = asyncio.Semaphore(0)

    async def work() -> None:
        begun.release()
        await asyncio.Event().wait()

    async with asyncio.timeout(LIMIT), asyncio.TaskGroup() as tasks:
        working = tasks.create_task(lease.run_while_held(work))
        lease.apply(granted(1), asked=1000.0)
        await begun.acquire()
        lease.apply(granted(3), asked=1000.0)
        await begun.acquire()
        working.cancel()


async def test_work_that_ends_by_itself_is_over_though_the_lease_is_held() -> None:
    lease = Lease("i", clock=Clock())
    lease.apply(granted(1), asked=1000.0)
    done: list[bool] = []

    async def work() -> None:
        done.append(True)

    async with asyncio.timeout(LIMIT):
        await lease.run_while_held(work)

    assert done == [True]


class Looks(Clock):
    """A clock that counts how often it is read."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __call__(self) -> float:
        self.count += 1
        return super().__call__()


@pytest.mark.parametrize("age", [100, 1000])
async def test_whoever_waits_for_the_lease_rests_until_it_changes(age: int) -> None:
    """A wait that wakes up again and again would keep a core busy for as long as it lasts."""
    clock = Looks()
    lease = Lease("i", clock=clock)
    lease.apply(granted(1), asked=clock.now - age)  # held, but not renewed for too long
    async with asyncio.timeout(LIMIT), asyncio.TaskGroup() as tasks:
        waiting = [
            tasks.create_task(lease.wait_for_deployment(begun=False)),
            tasks.create_task(lease.wait_for_deployment(begun=True)),
            tasks.create_task(lease.wait_for_stage(rollback=age > 600)),
            tasks.create_task(lease.wait_until_lost()),
        ]
        await turns()
        before = clock.count
        await turns()  # what spins looks again at each of them
        assert clock.count == before
        assert not any(each.done() for each in waiting)
        for each in waiting:
            each.cancel()


async def test_work_that_fails_is_not_hidden() -> None:
    lease = Lease("i", clock=Clock())
    lease.apply(None, asked=1000.0)

    async def work() -> None:
        raise ZeroDivisionError

    with pytest.raises(ExceptionGroup) as failed:
        await lease.run_while_held(work)

    assert failed.group_contains(ZeroDivisionError)


async def test_it_is_renewed_at_a_third_of_its_time_and_given_back() -> None:
    clock = Clock()
    lease = Lease("i", clock=clock)
    keeper = Keeper()
    lease.apply(granted(4), asked=clock.now)
    clock.now += 20
    async with control_of(keeper, lease) as control, asyncio.TaskGroup() as tasks:
        keeping = tasks.create_task(lease.renew_forever(control))
        request = await keeper.renewed.get()
        while not lease.may_start(rollback=False):  # noqa: ASYNC110 - another task makes it true
            await asyncio.sleep(0.01)
        await turns()
        keeping.cancel()
        await lease.release(control)

    assert keeper.renewed.empty(), "the next one is due in a third of its time"
    assert (request.instance_id, request.epoch) == ("i", 4)
    assert [(each.instance_id, each.epoch) for each in keeper.released] == [("i", 4)]
    assert set(keeper.epochs) == {"4"}


async def test_a_renewal_that_failed_is_tried_again_after_a_third_of_its_time() -> None:
    """Not at once: a control plane that fails would be asked without a pause."""
    clock = Clock()
    lease = Lease("i", clock=clock)
    keeper = Keeper()
    keeper.fails = True
    lease.apply(granted(4), asked=clock.now)
    clock.now += 20
    async with control_of(keeper, lease) as control, asyncio.TaskGroup() as tasks:
        keeping = tasks.create_task(lease.renew_forever(control))
        await keeper.asked.get()
        for _ in range(5):  # each takes as long as a renewal, which would have come between them
            request = push.ReleaseLeaseRequest(instance_id="another", epoch=1)
            await control.call(control.push.ReleaseLease, request)
        assert keeper.asked.empty()

        clock.now += 20
        lease.apply(granted(3), asked=clock.now)  # says nothing new, but the loop looks again
        await keeper.asked.get()
        keeping.cancel()


async def test_it_is_kept_by_nobody_while_it_is_elsewhere_and_the_loop_rests() -> None:
    clock = Clock()
    lease = Lease("i", clock=clock)
    keeper = Keeper()
    lease.apply(granted(1), asked=clock.now)
    async with control_of(keeper, lease) as control, asyncio.TaskGroup() as tasks:
        keeping = tasks.create_task(lease.renew_forever(control))
        await turns()  # a loop that spins would never come back here
        lease.apply(granted(2, held=False), asked=clock.now)
        clock.now += 100
        await turns()
        # A call that it made would have arrived before this one.
        await control.call(
            control.push.ReleaseLease, push.ReleaseLeaseRequest(instance_id="i", epoch=1)
        )
        keeping.cancel()

    assert keeper.renewed.empty()


async def test_a_renewal_that_is_refused_ends_it_and_asks_for_a_new_stream() -> None:
    lease = Lease("i", clock=Clock())
    keeper = Keeper()
    keeper.refuses = True
    refused: list[bool] = []
    lease.on_refused = lambda: refused.append(True)
    lease.apply(granted(4), asked=1000.0)
    async with control_of(keeper, lease) as control:
        await lease.renew(control)
        await lease.release(control)

    assert not lease.held
    assert not lease.may_start(rollback=True)
    assert refused == [True]
    assert keeper.released == []


async def test_a_renewal_that_is_refused_stops_the_work_that_needs_the_lease() -> None:
    lease = Lease("i", clock=Clock())
    lease.apply(granted(4), asked=1000.0)
    keeper = Keeper()
    keeper.refuses = True
    began, stopped = asyncio.Event(), asyncio.Event()

    async def work() -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    async with control_of(keeper, lease) as control, asyncio.TaskGroup() as tasks:
        working = tasks.create_task(lease.run_while_held(work))
        await began.wait()
        await lease.renew(control)
        await stopped.wait()
        working.cancel()


async def test_a_renewal_lets_new_work_start_for_a_whole_time_again() -> None:
    clock = Clock()
    lease = Lease("i", clock=clock)
    lease.apply(granted(4), asked=clock.now)
    clock.now += 59
    async with control_of(Keeper(), lease) as control:
        await lease.renew(control)
    clock.now += 59

    assert lease.may_start(rollback=False)


async def test_a_refusal_that_was_meant_for_an_earlier_epoch_changes_nothing() -> None:
    lease = Lease("i", clock=Clock())
    lease.apply(granted(4), asked=1000.0)

    class Overtaken(Keeper):
        """While it refuses, the push stream brings a newer lease."""

        async def admit(self, method: Method, metadata: Metadata) -> str:
            lease.apply(granted(5), asked=1000.0)
            return await super().admit(method, metadata)

    keeper = Overtaken()
    keeper.refuses = True
    async with control_of(keeper, lease) as control:
        await lease.renew(control)

    assert (lease.state, lease.epoch) == (LeaseState.HELD, 5)


class StrictKeeper(Keeper):
    """Refuses what is sent with another epoch than that of the lease which it has given."""

    def __init__(self, epoch: int) -> None:
        super().__init__()
        self.epoch = epoch
        self.refused = asyncio.Event()

    async def admit(self, method: Method, metadata: Metadata) -> str:
        caller = await super().admit(method, metadata)
        if int(self.epochs[-1]) < self.epoch:
            self.refused.set()
            raise StateError("the lease has gone to another instance")
        return caller


async def report_release(control: ControlPlane, *, must_arrive: bool) -> None:
    """Send something that the control plane takes only with the newest epoch."""
    send = control.call_until_accepted if must_arrive else control.call
    await send(control.push.ReleaseLease, push.ReleaseLeaseRequest(instance_id="i", epoch=5))


@pytest.mark.parametrize("must_arrive", [True, False], ids=["report", "question"])
async def test_what_is_refused_before_this_instance_hears_that_the_lease_is_its_own_is_sent_again(
    tmp_path: Path, must_arrive: bool
) -> None:
    """The last lines of a stage were lost so: the piped before had left them on disk."""
    (tmp_path / "lease").write_text("5")
    lease, keeper = Lease("i", tmp_path / "lease"), StrictKeeper(epoch=6)
    async with control_of(keeper, lease) as control, asyncio.TaskGroup() as tasks:
        with lease_epoch(5):
            sending = tasks.create_task(report_release(control, must_arrive=must_arrive))
        await keeper.refused.wait()
        lease.apply(granted(6), asked=lease.now())
        await sending

    assert (keeper.epochs[0], keeper.epochs[-1]) == ("5", "6")
    assert len(keeper.released) == 1


async def test_what_is_refused_is_not_sent_again_when_another_instance_has_the_lease(
    tmp_path: Path,
) -> None:
    (tmp_path / "lease").write_text("5")
    lease, keeper = Lease("i", tmp_path / "lease"), StrictKeeper(epoch=7)
    lease.apply(granted(7, held=False), asked=lease.now())
    async with control_of(keeper, lease) as control:
        with pytest.raises(StateError):
            await report_release(control, must_arrive=True)

    assert keeper.epochs == ["5"]


async def test_a_question_that_is_refused_waits_for_news_of_the_lease_only_for_a_while(
    tmp_path: Path,
) -> None:
    (tmp_path / "lease").write_text("5")
    lease, keeper = Lease("i", tmp_path / "lease"), StrictKeeper(epoch=6)
    async with control_of(keeper, lease) as control:
        with pytest.raises(UnavailableError, match="not known yet who has the lease"):
            await report_release(control, must_arrive=False)


async def test_who_has_the_lease_is_known_from_the_first_news_on_even_when_it_was_given_back() -> (
    None
):
    lease, without = Lease("i", clock=Clock()), Lease("i", clock=Clock())
    known = [lease.is_known]

    lease.apply(granted(1), asked=1000.0)
    known.append(lease.is_known)
    async with control_of(Keeper(), lease) as control:
        await lease.release(control)
    known.append(lease.is_known)
    without.apply(None, asked=1000.0)  # a control plane that has no leases says so

    assert known == [False, True, True]
    assert without.is_known


async def test_a_control_plane_that_cannot_renew_changes_nothing() -> None:
    lease = Lease("i", clock=Clock())
    lease.apply(granted(4), asked=1000.0)
    async with control_of(Keeper(), lease, knows=False) as control:
        await lease.renew(control)

    assert lease.state is LeaseState.HELD
