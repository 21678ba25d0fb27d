# SPDX-License-Identifier: Apache-2.0
"""gRPC in a process that starts others: agents and plugins do that all day.

Each case runs in a Python of its own, because what is tested happens at the first import of grpc.
"""

import os
import subprocess
import sys

SPAWNS = 100

LOAD = f"""
import asyncio
from pipecd_wire.pipecd.api import api_pb2 as pb
from pipecd_wire.pipecd.api.api_pb2_grpc import ApplicationServiceStub
from pipecd_wire.rpc import Endpoints, admit_all, call, connect, rpc, serving


class Api:
    @rpc("ReleaseHold")
    async def release(
        self, caller: object, request: pb.ReleaseHoldRequest
    ) -> pb.ReleaseHoldResponse:
        return pb.ReleaseHoldResponse(command_id=request.application_id)


async def keep_calling(stub, stop):
    count = 0
    while not stop.is_set():
        request = pb.ReleaseHoldRequest(application_id=str(count))
        assert (await call(stub.ReleaseHold, request)).command_id == str(count)
        count += 1
    return count


async def spawn():
    for _ in range({SPAWNS} // 4):
        process = await asyncio.create_subprocess_exec("true", start_new_session=True)
        assert await process.wait() == 0


async def main():
    endpoints = Endpoints(admit=admit_all)
    service = pb.DESCRIPTOR.services_by_name["ApplicationService"]
    endpoints.add(service, Api(), unimplemented=set(service.methods_by_name) - {{"ReleaseHold"}})
    stop = asyncio.Event()
    async with (
        asyncio.timeout(60),
        serving(endpoints, "127.0.0.1:0") as port,
        connect(f"127.0.0.1:{{port}}") as channel,
        asyncio.TaskGroup() as calls,
    ):
        stub = ApplicationServiceStub(channel)
        callers = [calls.create_task(keep_calling(stub, stop)) for _ in range(4)]
        async with asyncio.TaskGroup() as spawns:
            for _ in range(4):
                spawns.create_task(spawn())
        stop.set()
    print(sum(caller.result() for caller in callers))


asyncio.run(main())
"""


def run(program: str) -> subprocess.CompletedProcess[str]:
    environment = {key: value for key, value in os.environ.items() if not key.startswith("GRPC_")}
    return subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
        env=environment,
    )


def test_fork_support_is_off_before_grpc_is_imported() -> None:
    """gRPC reads the variable once, at its first import; set later it has no effect."""
    program = """
import os, sys
import pipecd_wire
assert "grpc" not in sys.modules, "nobody can set it any more"
import pipecd_wire.rpc
assert "grpc" in sys.modules
print(os.environ["GRPC_ENABLE_FORK_SUPPORT"])
"""

    finished = run(program)

    assert (finished.returncode, finished.stdout, finished.stderr) == (0, "0\n", "")


def test_many_processes_started_under_load_disturb_no_call() -> None:
    finished = run(LOAD)

    assert finished.stderr == ""
    assert finished.returncode == 0
    assert int(finished.stdout) > 0
