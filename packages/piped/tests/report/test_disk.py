# SPDX-License-Identifier: Apache-2.0
"""A real file system that is full, or read-only: a named state, left when the disk is back."""

import asyncio
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.message import Message

from pipecd_model.errors import UnavailableError
from pipecd_piped.report.journal import Journal
from pipecd_piped.report.logs import SpooledStageLogs, StageKey
from pipecd_piped.report.outbox import Outbox
from pipecd_wire.model.logblock_pb2 import LogBlock
from pipecd_wire.pipedservice.service_pb2 import ReportStatRequest

LIMIT = 30
STAGE = StageKey("d1", "s1")


def mount(*arguments: str) -> bool:
    done = subprocess.run(["mount", *arguments], capture_output=True, check=False, timeout=LIMIT)
    return done.returncode == 0


class Disk:
    """A file system of a quarter of a megabyte."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def fill(self) -> None:
        with (self.folder / "filler").open("wb", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(4096))
            except OSError:
                return

    def empty(self) -> None:
        (self.folder / "filler").unlink()

    def read_only(self) -> None:
        assert mount("-o", "remount,ro", str(self.folder))

    def writable(self) -> None:
        assert mount("-o", "remount,rw", str(self.folder))


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    folder = tmp_path / "disk"
    folder.mkdir()
    if os.geteuid() != 0 or not mount("-t", "tmpfs", "-o", "size=256k", "none", str(folder)):
        pytest.skip("mounting a file system needs root")
    try:
        yield Disk(folder)
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True, timeout=LIMIT)


class Service:
    """The stub of a control plane that is away until it is back."""

    def __init__(self) -> None:
        self.is_back = False
        self.lines: list[str] = []

    async def __call__(self, method: str, request: Message) -> None:
        while not self.is_back:  # noqa: ASYNC110 - as `tell` does it
            await asyncio.sleep(0.01)


class Control:
    """What stage logs need of the control plane."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self.service: Any = self
        self.ReportStageLogs = None

    async def call(self, _method: object, request: Any) -> None:
        if not self._service.is_back:
            raise UnavailableError("away")
        self._service.lines += [block.log for block in request.blocks]


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(LIMIT):
        while not holds():  # noqa: ASYNC110 - the components have their own clocks
            await asyncio.sleep(0.01)


async def taken(logs: SpooledStageLogs, blocks: list[LogBlock]) -> None:
    """Send lines until they are acknowledged, as a plugin does."""
    async with asyncio.timeout(LIMIT):
        while True:
            try:
                return await logs.report(STAGE, blocks)
            except UnavailableError:
                continue


def line(index: int, size: int = 10) -> list[LogBlock]:
    return [LogBlock(index=index, log=f"{index}".ljust(size, "x"), created_at=1)]


def opened(disk: Disk, service: Service) -> tuple[Outbox, SpooledStageLogs]:
    outbox = Outbox(service, Journal(disk.folder / "outbox"))
    logs = SpooledStageLogs(Control(service), disk.folder / "outbox" / "logs", patience_seconds=0.1)  # type: ignore[arg-type]
    return outbox, logs


async def test_with_a_full_disk_reports_and_lines_go_on_and_it_is_used_when_it_has_room(
    disk: Disk,
) -> None:
    service = Service()
    outbox, logs = opened(disk, service)
    async with outbox.open(drain=0), logs.open(drain=0):
        outbox.put("a", "One", ReportStatRequest())
        await logs.report(STAGE, line(1))

        disk.fill()
        outbox.put("a", "Two", ReportStatRequest(piped_stats=bytes(8192)))
        with pytest.raises(UnavailableError):
            await logs.report(STAGE, line(2, 8192))
        assert outbox.fault.endswith("No space left on device")
        assert logs.fault.endswith("No space left on device")

        service.is_back = True
        await until(lambda: logs.bytes_waiting == 0 and outbox.waiting == 0)
        await taken(logs, line(2, 8192))
        assert service.lines == [line(1)[0].log, line(2, 8192)[0].log]

        service.is_back = False
        disk.empty()
        await until(lambda: outbox.fault == "")
        await taken(logs, line(3))
        assert logs.fault == ""


async def test_what_is_left_on_a_read_only_disk_is_told_and_the_disk_is_used_when_it_can_be(
    disk: Disk,
) -> None:
    service = Service()
    outbox, logs = opened(disk, service)
    async with outbox.open(drain=0), logs.open(drain=0):
        outbox.put("a", "One", ReportStatRequest())
        await logs.report(STAGE, line(1))

    disk.read_only()
    outbox, logs = opened(disk, service)
    async with outbox.open(drain=0), logs.open(drain=0):
        assert outbox.fault.endswith("Read-only file system")
        with pytest.raises(UnavailableError):
            await logs.report(STAGE, line(2))
        assert logs.fault.endswith("Read-only file system")

        service.is_back = True
        await until(lambda: logs.bytes_waiting == 0 and outbox.waiting == 0)
        await taken(logs, line(2))
        assert service.lines == [line(1)[0].log, line(2)[0].log]

        service.is_back = False
        disk.writable()
        await until(lambda: outbox.fault == "")
        await taken(logs, line(3))
        assert logs.fault == ""
