# SPDX-License-Identifier: Apache-2.0
"""The calling side of `bench_rpc`, in a process of its own.

`rpc_client.py ADDRESS SECONDS CALLERS` prints the calls per second, and the number of all calls,
those of the warm-up included.
"""

import asyncio
import sys
import time
from typing import TYPE_CHECKING

from pipecd_wire.apiservice import service_pb2 as pb
from pipecd_wire.apiservice.service_pb2_grpc import APIServiceStub
from pipecd_wire.rpc import call, connect

if TYPE_CHECKING:
    from pipecd_wire.apiservice.service_pb2_grpc import APIServiceAsyncStub

WARM_UP = 0.3


async def calls_until(end: float, stub: "APIServiceAsyncStub") -> int:
    request = pb.GetApplicationRequest(application_id="application-1")
    metadata = (("authorization", "API-KEY bench"),)
    count = 0
    while time.monotonic() < end:
        await call(stub.GetApplication, request, metadata=metadata)
        count += 1
    return count


async def main(address: str, seconds: float, callers: int) -> None:
    async with connect(address) as channel:
        stub = APIServiceStub(channel)
        warm_up = await calls_until(time.monotonic() + WARM_UP, stub)
        started = time.monotonic()
        async with asyncio.TaskGroup() as tasks:
            counts = [
                tasks.create_task(calls_until(started + seconds, stub)) for _ in range(callers)
            ]
        total = sum(count.result() for count in counts)
        print(total / (time.monotonic() - started), warm_up + total)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], float(sys.argv[2]), int(sys.argv[3])))
