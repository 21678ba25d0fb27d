# SPDX-License-Identifier: Apache-2.0
"""Control planes that share a PostgreSQL: reports a second, approvals across them, idle agents.

Reports are real calls to real servers, as a piped makes them, to one server and to two; beside
them, what bare asyncpg does in the same database: read a row, write it, commit, one connection for
each that the servers have. The database writes to the disk before it answers.

Idle agents watch, renew their leases and report their metrics as often as a piped does.

    python bench/bench_replicas.py [--agents N]
"""

import argparse
import asyncio
import statistics
import time
from contextlib import aclosing

import asyncpg
import idle_agent
from control_planes import CONNECTIONS, DEADLINE_SECONDS, BenchPiped, Site, register, running_site
from report import Bar, info, report

from pipecd_test_support.controlplane_messages import MessageBuilder
from pipecd_wire.apiservice import service_pb2 as api
from pipecd_wire.apiservice.service_pb2_grpc import APIServiceStub
from pipecd_wire.model import common_pb2
from pipecd_wire.model import deployment_pb2 as model
from pipecd_wire.pipecd.push import push_pb2
from pipecd_wire.pipecd.push.push_pb2_grpc import PushServiceStub
from pipecd_wire.pipedservice import service_pb2 as pipedservice
from pipecd_wire.pipedservice.service_pb2_grpc import PipedServiceStub
from pipecd_wire.rpc import call, stream

CALLERS = 32
SECONDS = 5.0
APPROVALS = 100


async def measure_reports(site: Site, pipeds: list[BenchPiped], servers: int) -> float:
    """Returns how many reports a second are taken, each caller with a deployment of its own."""
    stubs = [
        PipedServiceStub(await site.connect_piped(number % servers, piped))
        for number, piped in enumerate(pipeds)
    ]
    done = 0
    until = time.perf_counter() + SECONDS

    async def report_on(number: int) -> None:
        nonlocal done
        progress = 0
        while time.perf_counter() < until:
            progress += 1
            request = pipedservice.SaveDeploymentMetadataRequest(
                deployment_id=f"deployment-{number}", metadata={"progress": str(progress)}
            )
            await call(stubs[number].SaveDeploymentMetadata, request, deadline=DEADLINE_SECONDS)
            done += 1

    async with asyncio.TaskGroup() as tasks:
        for number in range(len(pipeds)):
            tasks.create_task(report_on(number))
    return done / SECONDS


async def measure_bare(site: Site) -> float:
    """Returns how many rows a second bare asyncpg reads, writes and commits."""
    done = 0
    until = time.perf_counter() + SECONDS

    async def update(number: int) -> None:
        nonlocal done
        connection = await asyncpg.connect(site.url)
        deployment_id = f"deployment-{number}"
        while time.perf_counter() < until:
            async with connection.transaction():
                row = await connection.fetchrow(
                    "SELECT data, version FROM deployment WHERE id = $1", deployment_id
                )
                assert row is not None
                model.Deployment.FromString(row[0])
                await connection.execute(
                    "UPDATE deployment SET data = $1, version = version + 1"
                    " WHERE id = $2 AND version = $3",
                    row[0],
                    deployment_id,
                    row[1],
                )
            done += 1
        await connection.close()

    async with asyncio.TaskGroup() as tasks:
        for number in range(CONNECTIONS):
            tasks.create_task(update(number))
    return done / SECONDS


async def compare_reports(site: Site) -> None:
    pipeds = await register(site, CALLERS, with_application=True)
    for _ in range(2):  # the first round warms up
        bare = await measure_bare(site)
        one = await measure_reports(site, pipeds, 1)
        two = await measure_reports(site, pipeds, 2)
    info("replicas.bare asyncpg", bare, "/s")
    info("replicas.reports, one server", one, "/s")
    info("replicas.reports, two servers", two, "/s")
    report("replicas.reports of one server to bare asyncpg", one / bare, "x", None)
    report("replicas.reports of two servers to one", two / one, "x", None)


async def compare_approvals(site: Site) -> None:
    """Measures from a call to one server until the agent of the other has the command."""
    (piped,) = await register(site, 1, with_application=False)
    agent = PipedServiceStub(await site.connect_piped(0, piped))
    meta = pipedservice.ReportPipedMetaRequest(
        repositories=[common_pb2.ApplicationGitRepository(id="repo")]
    )
    await call(agent.ReportPipedMeta, meta)
    admin = APIServiceStub(await site.connect_admin(0))
    request = api.AddApplicationRequest(
        name="approved", piped_id=piped.id, git_path=MessageBuilder().git_path()
    )
    added = await call(admin.AddApplication, request)
    push = PushServiceStub(await site.connect_piped(1, piped))
    watch = push_pb2.WatchRequest(instance_id="bench", data_folder_id="bench")
    taken = []
    async with aclosing(stream(push.Watch, watch)) as messages:
        await anext(messages)
        for _ in range(APPROVALS):
            started = time.perf_counter()
            asked = asyncio.create_task(
                call(
                    admin.SyncApplication,
                    api.SyncApplicationRequest(application_id=added.application_id),
                )
            )
            async for message in messages:
                if message.change.commands:
                    break
            taken.append((time.perf_counter() - started) * 1000)
            await asked
    taken.sort()
    info("replicas.command at one server to the agent of the other", statistics.median(taken), "ms")
    report(
        "replicas.command at one server to the agent of the other, p95",
        taken[int(len(taken) * 0.95)],
        "ms",
        Bar("<=", 300.0),
    )


async def compare_idle_agents(site: Site, count: int) -> None:
    pipeds = await register(site, count, with_application=False)
    before = [server.read_mebibytes() for server in site.servers]
    connected = asyncio.Semaphore(0)
    # All come from one address, which may have so many connections that have shown nothing yet.
    turns = asyncio.Semaphore(40)

    async def live(number: int, piped: BenchPiped) -> None:
        await turns.acquire()
        channel = await site.connect_piped(number % 2, piped)

        def note_snapshot() -> None:
            turns.release()
            connected.release()

        await idle_agent.live(channel, piped.id, number / count, note_snapshot)

    async with asyncio.TaskGroup() as tasks:
        began = time.perf_counter()
        agents = [tasks.create_task(live(number, piped)) for number, piped in enumerate(pipeds)]
        for _ in pipeds:
            await connected.acquire()
        info(f"replicas.{count} agents connected", time.perf_counter() - began, "s")
        used = [server.read_cpu_seconds() for server in site.servers]
        await asyncio.sleep(idle_agent.MINUTE)
        spent = sum(
            server.read_cpu_seconds() - was for server, was in zip(site.servers, used, strict=True)
        )
        grown = sum(
            server.read_mebibytes() - was for server, was in zip(site.servers, before, strict=True)
        )
        for each in agents:
            each.cancel()
    report("replicas.memory of an idle agent", grown / count, "MiB", Bar("<=", 0.3))
    info(f"replicas.CPU of both servers with {count} idle agents", spent, "s/min")


async def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--agents", type=int, default=500)
    chosen = arguments.parse_args()
    async with running_site("postgresql", servers=2) as site:
        await compare_approvals(site)
        await compare_reports(site)
        await compare_idle_agents(site, chosen.agents)


if __name__ == "__main__":
    asyncio.run(main())
