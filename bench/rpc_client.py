# SPDX-License-Identifier: Apache-2.0
"""The calling side of `bench_rpc`, in a process of its own.

`rpc_client.py CALLERS ADDRESS…` keeps one connection to each address. For each line of its input,
`INDEX SECONDS`, it calls that address for so long and prints how many calls were answered and the
seconds they took.
"""

import asyncio
import sys
import time
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from pipecd_wire.apiservice import service_pb2 as pb
from pipecd_wire.apiservice.service_pb2_grpc import APIServiceStub
from pipecd_wire.rpc import call, connect

if TYPE_CHECKING:
    from pipecd_wire.apiservice.service_pb2_grpc import APIServiceAsyncStub


async def call_until(end: float, stub: "APIServiceAsyncStub") -> int:
    request = pb.GetApplicationRequest(application_id="application-1")
    metadata = (("authorization", "API-KEY bench"),)
    count = 0
    while time.monotonic() < end:
        await call(stub.GetApplication, request, metadata=metadata)
        count += 1
    return count


async def main(callers: int, addresses: list[str]) -> None:
    async with AsyncExitStack() as opened:
        stubs = [
            APIServiceStub(await opened.enter_async_context(connect(address)))
            for address in addresses
        ]
        while line := await asyncio.to_thread(sys.stdin.readline):
            index, seconds = line.split()
            started = time.monotonic()
            end = started + float(seconds)
            async with asyncio.TaskGroup() as tasks:
                counts = [
                    tasks.create_task(call_until(end, stubs[int(index)])) for _ in range(callers)
                ]
            total = sum(count.result() for count in counts)
            print(total, time.monotonic() - started, flush=True)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), sys.argv[2:]))
