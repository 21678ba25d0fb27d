# SPDX-License-Identifier: Apache-2.0
"""A real `pipecd server` with few descriptors, a signed-in caller, and floods around them."""

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from pipecd_test_support.chosen_store import add_store_flags, get_chosen_store
from pipecd_wire.apiservice import service_pb2 as pb
from pipecd_wire.apiservice.service_pb2_grpc import APIServiceStub
from pipecd_wire.rpc import Channel, ClientTls, call, connect

DESCRIPTORS = 1024
ELSEWHERE = "127.0.0.9"
"""Where floods come from; our own callers are at 127.0.0.1."""
FLOODS = Path(__file__).with_name("floods.py")
LIMIT = 100.0
MIB = 1024 * 1024
POOLED = 16
"""Connections to PostgreSQL at most, with those that listen."""


@dataclass(frozen=True)
class Besieged:
    """The server, seen from outside."""

    pid: int
    address: str
    admin_address: str
    folder: Path
    roots: bytes | None

    def memory(self) -> float:
        """Returns the resident memory in MiB."""
        return self._status("VmRSS") / 1024

    def peak_memory(self) -> float:
        """Returns the highest that it ever was."""
        return self._status("VmHWM") / 1024

    def descriptors(self) -> int:
        return sum(1 for _ in Path(f"/proc/{self.pid}/fd").iterdir())

    def descriptor_limits(self) -> tuple[str, str]:
        """Returns the soft and the hard limit."""
        lines = Path(f"/proc/{self.pid}/limits").read_text().splitlines()
        [line] = [line for line in lines if line.startswith("Max open files")]
        soft, hard = line.split()[3:5]
        return soft, hard

    def log_bytes(self) -> int:
        return (self.folder / "log").stat().st_size

    def reset_peak(self) -> None:
        Path(f"/proc/{self.pid}/clear_refs").write_text("5")

    @asynccontextmanager
    async def caller(self) -> AsyncIterator[Channel]:
        """A connection of somebody with an API key."""
        key = (self.folder / "data" / "admin.key").read_text().strip()
        pairs = [("authorization", f"API-KEY {key}")]
        tls = ClientTls(roots=self.roots) if self.roots else None
        async with connect(self.address, metadata=lambda: pairs, tls=tls) as channel:
            yield channel

    def _status(self, name: str) -> int:
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith(f"{name}:"):
                return int(line.split()[1])
        raise AssertionError(name)


@dataclass
class Report:
    """What a flood did to the server, and to its callers."""

    connections: int = 0
    known: list[float] = field(default_factory=list)
    """Seconds of calls on a connection that was there before."""
    new: list[float] = field(default_factory=list)
    """Seconds of calls on connections that were made for them."""
    admin: list[float] = field(default_factory=list)
    memory_growth: float = 0.0
    log_growth: int = 0
    most_descriptors: int = 0


@asynccontextmanager
async def besieged(
    folder: Path, *flags: str, roots: bytes | None = None, ulimit: str = f"-n {DESCRIPTORS}"
) -> AsyncIterator[Besieged]:
    """Run a server that may have so many descriptors and no more."""
    static = _make_static(folder)
    command = [sys.executable, "-c", "from pipecd_controlplane.cli import main; main()", "server"]
    command += ["--data-dir", str(folder / "data"), "--listen", "127.0.0.1:0"]
    command += ["--admin-port", "0", "--static-dir", str(static)]
    command += add_store_flags(folder / "data", flags)
    limited = ["sh", "-c", f'ulimit {ulimit}; exec "$@"', "sh", *command]
    with (folder / "log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *limited, stdout=asyncio.subprocess.PIPE, stderr=log, start_new_session=True
        )
    try:
        assert process.stdout is not None
        async with asyncio.timeout(LIMIT):
            lines = [(await process.stdout.readline()).decode().split() for _ in range(4)]
        admin = lines[3][-1].removeprefix("http://").removesuffix("/metrics")
        yield Besieged(process.pid, lines[0][-1], admin, folder, roots)
    finally:
        # A server that has just ended by itself may be reaped before its code is known here.
        if process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
        async with asyncio.timeout(LIMIT):
            await process.wait()


def _make_static(folder: Path) -> Path:
    """A console with one large file."""
    static = folder / "static"
    static.mkdir(parents=True, exist_ok=True)
    (static / "index.html").write_text("<html></html>")
    (static / "large.js").write_bytes(b"x" * (16 * MIB))
    return static


async def ask(channel: Channel, deadline: float = LIMIT) -> float:
    """Make a unary call; returns its seconds."""
    started = time.monotonic()
    request = pb.ListDeploymentsRequest(limit=10)
    await call(APIServiceStub(channel).ListDeployments, request, deadline=deadline)
    return time.monotonic() - started


async def ask_anew(server: Besieged) -> float:
    """The same on a new connection."""
    started = time.monotonic()
    async with server.caller() as channel:
        await ask(channel)
    return time.monotonic() - started


async def ask_admin(server: Besieged) -> float:
    """Ask the admin port whether all is well."""
    started = time.monotonic()
    host, _, port = server.admin_address.rpartition(":")
    async with asyncio.timeout(LIMIT):
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        answer = await reader.read()
        writer.close()
        await writer.wait_closed()
    assert answer.startswith(b"HTTP/1.1 200"), answer[:100]
    return time.monotonic() - started


async def warm_up(server: Besieged) -> None:
    """Have everything loaded that is loaded once, so that memory is compared with memory."""
    for _ in range(5):
        await ask_anew(server)
        await ask_admin(server)


async def endure(
    server: Besieged, flood: str, *, calls: int = 10, source: str = ELSEWHERE
) -> Report:
    """Let a flood come over the server, call it meanwhile, and wait until all is as before.

    New connections are made only while the flood comes from another address than theirs: those of
    one address give way to each other.
    """
    report = Report()
    async with server.caller() as channel:
        await ask(channel)
        before = server.memory()
        descriptors, log = server.descriptors(), server.log_bytes()
        # A pool of connections to the database grows with the calls, and stays.
        spare = 0 if get_chosen_store() == "sqlite" else POOLED
        server.reset_peak()
        async with asyncio.timeout(LIMIT):
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                str(FLOODS),
                flood,
                server.address,
                source,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
            )
            assert process.stdout is not None
            reading = asyncio.create_task(process.stdout.readline())
            try:
                for number in range(calls):
                    report.known.append(await ask(channel))
                    if source == ELSEWHERE:
                        report.new.append(await ask_anew(server))
                    report.admin.append(await ask_admin(server))
                    report.most_descriptors = max(report.most_descriptors, server.descriptors())
                    if number == calls // 2:  # the second half when all of the flood is there
                        assert (await reading).strip() == b"ready"
            finally:
                told, _ = await process.communicate(b"")
        report.connections = int(told)
        report.memory_growth = server.peak_memory() - before
        report.log_growth = server.log_bytes() - log
        async with asyncio.timeout(LIMIT):
            while server.descriptors() > descriptors + spare:  # noqa: ASYNC110 - nothing tells when
                await asyncio.sleep(0.1)
        await ask(channel)
    return report
