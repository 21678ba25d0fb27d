# SPDX-License-Identifier: Apache-2.0
"""Reports arrive in the order of their lane, and nobody waits for them."""

import asyncio
import tracemalloc
from collections import defaultdict
from pathlib import Path

import pytest
from google.protobuf.message import Message

from pipecd_model.errors import StateError, UnauthenticatedError
from pipecd_piped.controlplane.epoch import current_lease_epoch, lease_epoch
from pipecd_piped.report.journal import Journal
from pipecd_piped.report.outbox import Outbox
from pipecd_wire.pipedservice.service_pb2 import ReportStatRequest

LIMIT = 20


class Receiver:
    """Takes reports when it is let."""

    def __init__(self) -> None:
        self.taken: list[str] = []
        self.open: dict[str, asyncio.Event] = defaultdict(asyncio.Event)
        self.refuses: set[str] = set()
        self.keys_refused = 0

    async def __call__(self, method: str, request: Message) -> None:
        await self.open[method].wait()
        if method in self.refuses:
            raise StateError("no")
        if self.keys_refused:
            self.keys_refused -= 1
            raise UnauthenticatedError("who are you")
        self.taken.append(method)

    def let(self, *methods: str) -> None:
        for method in methods:
            self.open[method].set()


def put(outbox: Outbox, lane: str, *methods: str) -> None:
    for method in methods:
        outbox.put(lane, method, ReportStatRequest())


async def test_the_reports_of_a_lane_keep_their_order() -> None:
    receiver = Receiver()
    outbox = Outbox(receiver)
    async with asyncio.timeout(LIMIT), outbox.open():
        put(outbox, "a", "first", "second", "third")
        receiver.let("third", "second")
        await asyncio.sleep(0)
        assert receiver.taken == []
        assert outbox.waiting == 3

        receiver.let("first")
        await outbox.wait_delivered("a")

    assert receiver.taken == ["first", "second", "third"]


async def test_lanes_do_not_wait_for_each_other() -> None:
    receiver = Receiver()
    outbox = Outbox(receiver)
    async with asyncio.timeout(LIMIT), outbox.open():
        put(outbox, "a", "stuck")
        put(outbox, "b", "quick")
        receiver.let("quick")

        await outbox.wait_delivered("b")

        assert receiver.taken == ["quick"]
        receiver.let("stuck")


async def test_a_report_that_is_refused_does_not_stop_the_next() -> None:
    receiver = Receiver()
    receiver.refuses = {"bad"}
    receiver.let("bad", "good")
    outbox = Outbox(receiver)
    async with asyncio.timeout(LIMIT), outbox.open():
        put(outbox, "a", "bad", "good")
        await outbox.wait_delivered("a")

    assert receiver.taken == ["good"]


async def test_a_report_is_kept_while_only_the_key_is_refused() -> None:
    """An operator puts that right; what was said stays true."""
    receiver = Receiver()
    receiver.keys_refused = 2
    receiver.let("first", "second")
    outbox = Outbox(receiver, retry_seconds=0.01)
    async with asyncio.timeout(LIMIT), outbox.open():
        put(outbox, "a", "first", "second")
        await outbox.wait_delivered("a")

    assert receiver.taken == ["first", "second"]


@pytest.mark.parametrize("on_disk", [True, False], ids=["journal", "memory"])
async def test_an_undelivered_report_keeps_its_place_in_its_lane(
    tmp_path: Path, on_disk: bool
) -> None:
    """Refused once, it is retried before the reports behind it are tried at all."""
    tried: list[str] = []

    async def deliver(method: str, request: Message) -> None:
        tried.append(method)
        if len(tried) == 2:
            raise UnauthenticatedError("who are you")

    outbox = Outbox(deliver, Journal(tmp_path) if on_disk else None, retry_seconds=0.01)
    async with asyncio.timeout(LIMIT), outbox.open():
        put(outbox, "a", "first", "second", "third")
        await outbox.wait_delivered("a")

    assert tried == ["first", "second", "second", "third"]


async def test_reports_from_before_the_opening_come_behind_the_backlog(tmp_path: Path) -> None:
    async with Outbox(Receiver(), Journal(tmp_path)).open(drain=0) as outbox:
        put(outbox, "a", "backlog")

    receiver = Receiver()
    early = Outbox(receiver, Journal(tmp_path))
    put(early, "a", "early")
    put(early, "b", "early too")
    async with asyncio.timeout(LIMIT), early.open(drain=0):
        put(early, "a", "late")
        assert early.waiting == 4
    assert receiver.taken == []

    receiver.let("backlog", "early", "early too", "late")
    async with asyncio.timeout(LIMIT), Outbox(receiver, Journal(tmp_path)).open() as next_one:
        await next_one.wait_backlog_delivered()

    assert [each for each in receiver.taken if each != "early too"] == ["backlog", "early", "late"]
    assert "early too" in receiver.taken


async def test_a_leftover_that_does_not_get_through_stops_only_its_own_lane(tmp_path: Path) -> None:
    async with Outbox(Receiver(), Journal(tmp_path)).open(drain=0) as outbox:
        put(outbox, "a", "stuck")
        put(outbox, "b", "quick")

    receiver = Receiver()
    receiver.let("quick", "newer")
    outbox = Outbox(receiver, Journal(tmp_path))
    async with asyncio.timeout(LIMIT), outbox.open():
        await outbox.wait_backlog_delivered(limit=0.2)
        assert (outbox.has_backlog("a"), outbox.has_backlog("b")) == (True, False)
        put(outbox, "c", "newer")
        await outbox.wait_delivered("c")
        assert receiver.taken == ["quick", "newer"]

        receiver.let("stuck")
        await outbox.wait_lane_backlog_delivered("a")
        assert not outbox.has_backlog("a")


async def test_a_leftover_that_is_refused_for_good_is_dropped(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with Outbox(Receiver(), Journal(tmp_path)).open(drain=0) as outbox:
        put(outbox, "a", "stale", "good")

    receiver = Receiver()
    receiver.refuses = {"stale"}
    receiver.let("stale", "good")
    outbox = Outbox(receiver, Journal(tmp_path))
    async with asyncio.timeout(LIMIT), outbox.open():
        await outbox.wait_backlog_delivered()

    assert receiver.taken == ["good"]
    assert [record for record in caplog.records if record.message == "report.refused"]
    assert Journal(tmp_path).open() == []


async def test_reports_that_wait_on_disk_are_not_in_memory(tmp_path: Path) -> None:
    """A control plane that is away for a day must not cost piped its memory."""
    request = ReportStatRequest(piped_stats=bytes(10_000))
    outbox = Outbox(Receiver(), Journal(tmp_path))
    async with outbox.open(drain=0):
        outbox.put("a", "one", request)
        tracemalloc.start()
        for _ in range(2000):
            outbox.put("a", "one", request)
        grown, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()

    assert outbox.waiting == 2001
    assert grown < 2_000_000


async def test_a_lane_that_has_nothing_is_taken() -> None:
    outbox = Outbox(Receiver())
    async with asyncio.timeout(LIMIT), outbox.open():
        await outbox.wait_delivered("a")


async def test_what_was_put_before_it_opened_is_sent() -> None:
    receiver = Receiver()
    receiver.let("early")
    outbox = Outbox(receiver)
    put(outbox, "a", "early")
    async with asyncio.timeout(LIMIT), outbox.open():
        await outbox.wait_delivered("a")

    assert receiver.taken == ["early"]


async def test_the_last_reports_are_waited_for_at_the_end() -> None:
    receiver = Receiver()
    outbox = Outbox(receiver)
    async with asyncio.timeout(LIMIT), outbox.open(drain=LIMIT):
        put(outbox, "a", "last")
        asyncio.get_running_loop().call_later(0.02, receiver.let, "last")

    assert receiver.taken == ["last"]


async def test_the_end_does_not_wait_for_ever() -> None:
    outbox = Outbox(Receiver())
    async with asyncio.timeout(LIMIT), outbox.open(drain=0.02):
        put(outbox, "a", "never")

    assert outbox.waiting == 1


async def test_an_error_of_the_block_comes_out_as_it_is() -> None:
    outbox = Outbox(Receiver())
    with pytest.raises(KeyError, match="ours"):
        async with outbox.open(drain=0):
            raise KeyError("ours")


async def test_a_report_is_sent_under_the_lease_of_the_moment_it_was_put(tmp_path: Path) -> None:
    """However late that is, also by the next piped on the folder: another may hold it by then."""
    sent: list[tuple[str, int | None]] = []
    let = asyncio.Event()

    async def deliver(method: str, request: Message) -> None:
        await let.wait()
        sent.append((method, current_lease_epoch()))

    now = 3
    outbox = Outbox(deliver, Journal(tmp_path), lambda: current_lease_epoch() or now)
    async with asyncio.timeout(LIMIT), outbox.open(drain=0):
        put(outbox, "a", "of the third")
        now = 5
        with lease_epoch(4):
            put(outbox, "a", "of a run of the fourth")
        put(outbox, "a", "of the fifth")
        let.set()
        await outbox.wait_delivered("a")
        let.clear()
        put(outbox, "a", "left")
    now = 6

    let.set()
    later = Outbox(deliver, Journal(tmp_path), lambda: now)
    async with asyncio.timeout(LIMIT), later.open():
        now = 7
        await later.wait_backlog_delivered()

    assert sent == [
        ("of the third", 3),
        ("of a run of the fourth", 4),
        ("of the fifth", 5),
        ("left", 6),
    ]
