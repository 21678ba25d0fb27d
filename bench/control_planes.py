# SPDX-License-Identifier: Apache-2.0
"""Control planes as processes, with pipeds that are registered and do not run.

PostgreSQL writes to the disk before it answers.
"""

import asyncio
import os
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pipecd_test_support.controlplane_messages import MessageBuilder
from pipecd_test_support.postgres import running_postgres
from pipecd_wire.apiservice import service_pb2 as api
from pipecd_wire.apiservice.service_pb2_grpc import APIServiceStub
from pipecd_wire.model import common_pb2
from pipecd_wire.pipedservice import service_pb2 as pipedservice
from pipecd_wire.pipedservice.service_pb2_grpc import PipedServiceStub
from pipecd_wire.rpc import call, connect

CONNECTIONS = 8
DEADLINE_SECONDS = 60.0
DURABLE = {"fsync": "on", "full_page_writes": "on"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerProcess:
    """One control plane."""

    process: asyncio.subprocess.Process
    address: str

    def read_mebibytes(self) -> float:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        (line,) = [line for line in status.splitlines() if line.startswith("VmRSS:")]
        return int(line.split()[1]) / 1024

    def read_cpu_seconds(self) -> float:
        stat = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(stat[11]) + int(stat[12])) / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """Control planes and their database; `url` is empty with SQLite."""

    servers: list[ServerProcess]
    url: str
    admin_key: str
    opened: AsyncExitStack

    async def connect_admin(self, server: int) -> Any:
        pairs = [("authorization", f"API-KEY {self.admin_key}")]
        return await self._connect(server, pairs)

    async def connect_piped(self, server: int, piped: "BenchPiped") -> Any:
        pairs = [("authorization", f"PIPED-TOKEN default,{piped.id},{piped.key}")]
        return await self._connect(server, pairs)

    async def _connect(self, server: int, pairs: list[tuple[str, str]]) -> Any:
        address = self.servers[server].address
        return await self.opened.enter_async_context(connect(address, metadata=lambda: pairs))


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchPiped:
    """A registered piped with one application."""

    id: str
    key: str
    application_id: str = ""


@asynccontextmanager
async def running_site(
    store: Literal["sqlite", "postgresql"], *, servers: int
) -> AsyncIterator[Site]:
    async with AsyncExitStack() as opened:
        folder = Path(opened.enter_context(tempfile.TemporaryDirectory()))
        url, options = "", []
        if store == "postgresql":
            postgres = opened.enter_context(running_postgres(settings=DURABLE))
            url = postgres.url(await asyncio.to_thread(postgres.create_database))
            options = write_shared_config(folder, url)
        running = [
            await opened.enter_async_context(running_server(folder / str(number), options))
            for number in range(servers)
        ]
        admin_key = (folder / "0" / "admin.key").read_text().strip()
        yield Site(servers=running, url=url, admin_key=admin_key, opened=opened)


def write_shared_config(folder: Path, url: str) -> list[str]:
    """Writes what servers of one database share, and returns the options that name it."""
    key_file = folder / "all.key"
    key_file.write_bytes(os.urandom(64))
    config = folder / "control-plane.yaml"
    config.write_text(
        "apiVersion: pipecd.dev/v1beta1\nkind: ControlPlane\nspec:\n  datastore:\n"
        "    type: POSTGRESQL\n    config:\n"
        f"      url: {url}\n      connections: {CONNECTIONS}\n"
    )
    return [f"--config-file={config}", f"--encryption-key-file={key_file}"]


@asynccontextmanager
async def running_server(folder: Path, options: list[str]) -> AsyncIterator[ServerProcess]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        "from pipecd_controlplane.cli import main; main()",
        "server",
        f"--data-dir={folder}",
        "--listen=127.0.0.1:0",
        *options,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    assert process.stdout is not None
    lines = [(await process.stdout.readline()).decode() for _ in range(3)]
    try:
        yield ServerProcess(process=process, address=lines[0].split()[-1])
    finally:
        process.terminate()
        await process.wait()


async def register(site: Site, count: int, *, with_application: bool) -> list[BenchPiped]:
    """Registers pipeds, and an application for each if wanted."""
    stub = APIServiceStub(await site.connect_admin(0))
    turns = asyncio.Semaphore(8)
    build = MessageBuilder()

    async def register_one(number: int) -> BenchPiped:
        async with turns:
            request = api.RegisterPipedRequest(name=f"piped {number}")
            made = await call(stub.RegisterPiped, request, deadline=DEADLINE_SECONDS)
        piped = BenchPiped(id=made.id, key=made.key)
        if not with_application:
            return piped
        agent = PipedServiceStub(await site.connect_piped(0, piped))
        meta = pipedservice.ReportPipedMetaRequest(
            repositories=[common_pb2.ApplicationGitRepository(id="repo")]
        )
        await call(agent.ReportPipedMeta, meta, deadline=DEADLINE_SECONDS)
        application = api.AddApplicationRequest(
            name=f"app {number}", piped_id=piped.id, git_path=build.git_path()
        )
        added = await call(stub.AddApplication, application, deadline=DEADLINE_SECONDS)
        await call(
            agent.CreateDeployment,
            pipedservice.CreateDeploymentRequest(
                deployment=build.deployment(
                    id=f"deployment-{number}",
                    application_id=added.application_id,
                    piped_id=piped.id,
                    project_id="default",
                )
            ),
            deadline=DEADLINE_SECONDS,
        )
        return BenchPiped(id=made.id, key=made.key, application_id=added.application_id)

    return [await each for each in [asyncio.create_task(register_one(n)) for n in range(count)]]
