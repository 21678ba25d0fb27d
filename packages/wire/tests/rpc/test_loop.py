# SPDX-License-Identifier: Apache-2.0
"""grpc.aio serves one event loop per process; a second one gets an error instead of odd noise."""

import asyncio
from collections.abc import Callable

import pytest

from pipecd_wire.rpc import Endpoints, Server, connect, serving
from pipecd_wire.rpc.loop import SecondLoopError

Served = Callable[..., Endpoints]


async def test_a_second_loop_is_refused_while_the_first_one_is_open(served: Served) -> None:
    async def make_server() -> None:
        Server(served())

    async def make_channel() -> None:
        async with connect("127.0.0.1:1"):
            pass

    async with serving(served(), "127.0.0.1:0", grace_seconds=0):
        for elsewhere in (make_server, make_channel):
            with pytest.raises(SecondLoopError, match="another event loop"):
                await asyncio.to_thread(asyncio.run, elsewhere())


def test_a_loop_may_follow_one_that_is_closed(served: Served) -> None:
    async def use() -> int:
        async with serving(served(), "127.0.0.1:0", grace_seconds=0) as port:
            return port

    assert asyncio.run(use()) > 0
    assert asyncio.run(use()) > 0
