# SPDX-License-Identifier: Apache-2.0
"""Reports arrive in the order of their lane, and nobody waits for them."""

import asyncio
from collections import defaultdict

import pytest
from google.protobuf.message import Message

from pipecd_model.errors import StateError
from pipecd_wire.pipedservice.service_pb2 import ReportStatRequest
from piped.report.outbox import Outbox

LIMIT = 20


class Receiver:
    """Takes reports when it is let."""

    def __init__(self) -> None:
        self.taken: list[str] = []
        self.open: dict[str, asyncio.Event] = defaultdict(asyncio.Event)
        self.refuses: set[str] = set()

    async def __call__(self, method: str, request: Message) -> None:
        await self.open[method].wait()
        if method in self.refuses:
            raise StateError("no")
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
        await outbox.taken("a")

    assert receiver.taken == ["first", "second", "third"]


async def test_lanes_do_not_wait_for_each_other() -> None:
    receiver = Receiver()
    outbox = Outbox(receiver)
    async with asyncio.timeout(LIMIT), outbox.open():
        put(outbox, "a", "stuck")
        put(outbox, "b", "quick")
        receiver.let("quick")

        await outbox.taken("b")

        assert receiver.taken == ["quick"]
        receiver.let("stuck")


async def test_a_report_that_is_refused_does_not_stop_the_next() -> None:
    receiver = Receiver()
    receiver.refuses = {"bad"}
    receiver.let("bad", "good")
    outbox = Outbox(receiver)
    async with asyncio.timeout(LIMIT), outbox.open():
        put(outbox, "a", "bad", "good")
        await outbox.taken("a")

    assert receiver.taken == ["good"]


async def test_a_lane_that_has_nothing_is_taken() -> None:
    outbox = Outbox(Receiver())
    async with asyncio.timeout(LIMIT), outbox.open():
        await outbox.taken("a")


async def test_what_was_put_before_it_opened_is_sent() -> None:
    receiver = Receiver()
    receiver.let("early")
    outbox = Outbox(receiver)
    put(outbox, "a", "early")
    async with asyncio.timeout(LIMIT), outbox.open():
        await outbox.taken("a")

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
