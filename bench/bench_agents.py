# SPDX-License-Identifier: Apache-2.0
"""What 200 connected agents that have nothing to do cost the control plane: memory and time.

They watch, renew their leases and report their metrics as often as a piped does.

python bench/bench_agents.py [--agents N]
"""

import argparse
import asyncio
import sys
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path

import idle_agent
from report import Bar, info, report

from pipecd_wire.apiservice import service_pb2 as pb
from pipecd_wire.apiservice.service_pb2_grpc import APIServiceStub
from pipecd_wire.rpc import call, connect

TOGETHER = 8


def megabytes(process_id: int) -> float:
    for line in Path(f"/proc/{process_id}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise SystemExit("the server has gone")


def cpu_seconds(process_id: int) -> float:
    fields = Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


async def started(folder: str) -> tuple[asyncio.subprocess.Process, str]:
    server = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        "from pipecd_controlplane.cli import main; main()",
        "server",
        "--data-dir",
        folder,
        "--listen",
        "127.0.0.1:0",
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    assert server.stdout is not None
    line = (await server.stdout.readline()).decode()
    for _ in range(2):
        await server.stdout.readline()
    return server, line.split()[-1]


async def registered(address: str, folder: str, count: int) -> list[tuple[str, str]]:
    """Id and key of each new piped."""
    key = (Path(folder) / "admin.key").read_text().strip()
    slots = asyncio.Semaphore(TOGETHER)
    made: list[tuple[str, str]] = []
    async with connect(address, metadata=lambda: [("authorization", f"API-KEY {key}")]) as channel:
        api = APIServiceStub(channel)

        async def one(number: int) -> None:
            async with slots:
                request = pb.RegisterPipedRequest(name=f"piped-{number}")
                answer = await call(api.RegisterPiped, request, deadline=60)
                made.append((answer.id, answer.key))

        async with asyncio.TaskGroup() as tasks:
            for number in range(count):
                tasks.create_task(one(number))
    return made


async def live(
    opened: AsyncExitStack,
    address: str,
    piped: tuple[str, str],
    phase: float,
    first: asyncio.Semaphore,
) -> None:
    """One agent with a connection of its own."""
    pairs = [("authorization", f"PIPED-TOKEN default,{piped[0]},{piped[1]}")]
    channel = await opened.enter_async_context(connect(address, metadata=lambda: pairs))
    await idle_agent.live(channel, piped[0], phase, first.release)


async def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--agents", type=int, default=200)
    count = arguments.parse_args().agents
    with tempfile.TemporaryDirectory() as folder:
        server, address = await started(folder)
        try:
            pipeds = await registered(address, folder, count)
            before = megabytes(server.pid)
            first = asyncio.Semaphore(0)
            async with AsyncExitStack() as opened, asyncio.TaskGroup() as tasks:
                begun = time.perf_counter()
                watching = [
                    tasks.create_task(live(opened, address, piped, number / count, first))
                    for number, piped in enumerate(pipeds)
                ]
                async with asyncio.timeout(120):
                    for _ in pipeds:
                        await first.acquire()
                info(f"agents.{count} connected", time.perf_counter() - begun, "s")
                used = cpu_seconds(server.pid)
                await asyncio.sleep(idle_agent.MINUTE)
                idle = (cpu_seconds(server.pid) - used) / idle_agent.MINUTE * 100
                after = megabytes(server.pid)
                for task in watching:
                    task.cancel()
            info("agents.server before", before, "MiB")
            report(f"agents.server with {count} idle agents", after, "MiB", Bar("<=", 256.0))
            info("agents.each", (after - before) / count * 1024, "KiB")
            report(f"agents.{count} idle agents", idle, "% of a core", Bar("<=", 10.0))
        finally:
            server.terminate()
            await server.wait()


if __name__ == "__main__":
    asyncio.run(main())
