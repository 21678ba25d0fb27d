# SPDX-License-Identifier: Apache-2.0
"""What an idle plugin costs: time until it is ready, and memory, as ratios to a bare process.

A plugin with deploy targets has one, of a platform that is not there. The bare process imports
grpc.aio and the messages of the plugin service, serves one method and says so: what every plugin in
Python has to do at the least. All take turns; the ratio is that of the medians. Memory is the
proportional set size, so what several processes share is counted once.
"""

import asyncio
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from importlib.metadata import entry_points
from pathlib import Path

from report import Bar, info, report

from pipecd_sdk.testing.piped import FakePiped
from pipecd_sdk.testing.process import executable, start_plugin

TURNS = 7
ENTRIES = sorted(entry_points(group="pipecd.plugins"), key=lambda entry: entry.name, reverse=True)
PLUGINS = sorted({entry.module.partition(".")[0]: entry.name for entry in ENTRIES}.values())
"""One of each program: one is two plugins."""
BARE = """
import asyncio, sys
import grpc
from pipecd_wire.plugin.deploymentapi import api_pb2, api_pb2_grpc

class Service(api_pb2_grpc.DeploymentServiceServicer):
    async def FetchDefinedStages(self, request, context):
        return api_pb2.FetchDefinedStagesResponse(stages=["BARE"])

async def main():
    server = grpc.aio.server()
    api_pb2_grpc.add_DeploymentServiceServicer_to_server(Service(), server)
    server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print("ready", flush=True)
    await server.wait_for_termination()

asyncio.run(main())
"""


class TimedPiped(FakePiped):
    """Remembers when a plugin said Ready."""

    ready_at = 0.0

    async def note(self) -> None:
        if self.ready and not self.ready_at:
            self.ready_at = time.perf_counter()
        await super().note()


def main() -> None:
    times: dict[str, list[float]] = defaultdict(list)
    sizes: dict[str, list[float]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(TURNS):
            asyncio.run(turn(Path(folder), times, sizes))
    bare_time, bare_size = (statistics.median(each["bare"]) for each in (times, sizes))
    info("plugins: bare process, time to ready", bare_time * 1000, "ms")
    info("plugins: bare process, memory", bare_size, "MiB")
    for name in PLUGINS:
        ready, size = statistics.median(times[name]), statistics.median(sizes[name])
        report(f"plugins: {name}, time to ready / bare", ready / bare_time, "x", Bar("<=", 1.5))
        report(f"plugins: {name}, memory / bare", size / bare_size, "x", Bar("<=", 1.4))


async def turn(folder: Path, times: dict[str, list[float]], sizes: dict[str, list[float]]) -> None:
    started = time.perf_counter()
    bare = await asyncio.create_subprocess_exec(
        sys.executable, "-c", BARE, stdout=asyncio.subprocess.PIPE, start_new_session=True
    )
    assert bare.stdout is not None
    await bare.stdout.readline()
    times["bare"].append(time.perf_counter() - started)
    sizes["bare"].append(memory(bare.pid))
    for name in PLUGINS:
        async with TimedPiped() as piped:
            started = time.perf_counter()
            async with start_plugin(
                piped,
                [executable(f"pipecd-plugin-{name}")],
                name=name,
                entry=entry_of(name, folder),
            ) as plugin:
                times[name].append(piped.ready_at - started)
                sizes[name].append(memory(plugin.process.pid))
    bare.kill()
    await bare.wait()


def entry_of(name: str, folder: Path) -> dict[str, object]:
    """A plugin's entry in the piped file; no platform of these is there, and nobody asks one."""
    configs: dict[str, dict[str, str]] = {
        "files": {"path": str(folder)},
        "kubernetes": {"masterURL": "https://127.0.0.1:1"},
        "terraform": {},
        "ecs": {"region": "eu-central-1", "endpointUrl": "http://127.0.0.1:1"},
        "lambda": {"region": "eu-central-1", "endpointUrl": "http://127.0.0.1:1"},
        "cloudrun": {"project": "bench", "region": "us-east1", "endpoint": "http://127.0.0.1:1"},
    }
    return {"deployTargets": [{"name": "a", "config": configs[name]}]} if name in configs else {}


def memory(pid: int) -> float:
    """The proportional set size of a process, in MiB."""
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    line = next(line for line in rollup.splitlines() if line.startswith("Pss:"))
    return int(line.split()[1]) / 1024


if __name__ == "__main__":
    main()
