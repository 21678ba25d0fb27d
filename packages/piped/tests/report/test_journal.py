# SPDX-License-Identifier: Apache-2.0
"""What the control plane was not told survives piped, in order; a broken disk is a state."""

import asyncio
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from google.protobuf.message import Message

from pipecd_piped.report.journal import Journal
from pipecd_piped.report.outbox import Outbox
from pipecd_wire.pipedservice.service_pb2 import ReportStageStatusChangedRequest

LIMIT = 20


def report(stage: str) -> ReportStageStatusChangedRequest:
    return ReportStageStatusChangedRequest(deployment_id="d", stage_id=stage)


def opened(folder: Path) -> tuple[Journal, list[str]]:
    journal = Journal(folder)
    left = []
    for each in journal.open():
        told = journal.read(each.number)
        assert told is not None
        method, request = told
        assert isinstance(request, ReportStageStatusChangedRequest)
        left.append(f"{each.lane} {method} {request.stage_id}")
    return journal, left


class Away:
    """A control plane that takes nothing until it is back."""

    def __init__(self) -> None:
        self.back = asyncio.Event()
        self.taken: list[str] = []

    async def __call__(self, method: str, request: Message) -> None:
        await self.back.wait()
        assert isinstance(request, ReportStageStatusChangedRequest)
        self.taken.append(request.stage_id)


@contextmanager
def full_disk(size: int) -> Iterator[None]:
    """Let no file of this process grow beyond so many bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


def test_what_was_not_taken_is_found_in_its_order(tmp_path: Path) -> None:
    journal, left = opened(tmp_path / "outbox")
    assert left == []
    first = journal.put("a", "Tell", report("1"))
    journal.put("b", "Tell", report("2"))
    journal.put("a", "Tell", report("3"))
    journal.mark_delivered(first)
    journal.close()

    again, left = opened(tmp_path / "outbox")
    again.close()

    assert left == ["b Tell 2", "a Tell 3"]


def test_numbers_go_on_after_those_that_were_found(tmp_path: Path) -> None:
    journal, _ = opened(tmp_path)
    old = journal.put("a", "Tell", report("1"))
    journal.close()
    again, _ = opened(tmp_path)

    assert again.put("a", "Tell", report("2")) > old
    again.close()


def test_every_cut_of_the_file_leaves_the_whole_records_before_it(tmp_path: Path) -> None:
    journal, _ = opened(tmp_path)
    ends = []
    for stage in "123":
        journal.put("a", "Tell", report(stage))
        ends.append((tmp_path / "journal").stat().st_size)
    journal.close()
    whole = (tmp_path / "journal").read_bytes()

    for size in range(len(whole) + 1):
        (tmp_path / "journal").write_bytes(whole[:size])
        again, left = opened(tmp_path)
        again.close()
        assert left == [f"a Tell {n + 1}" for n, end in enumerate(ends) if end <= size]


@pytest.mark.parametrize("damage", [b"\0" * 64, b"\xff" * 64, b"\0\0\0\5"])
def test_a_damaged_end_is_cut_and_new_records_follow_the_good_ones(
    tmp_path: Path, damage: bytes
) -> None:
    journal, _ = opened(tmp_path)
    journal.put("a", "Tell", report("1"))
    journal.close()
    with (tmp_path / "journal").open("ab") as file:
        file.write(damage)

    again, left = opened(tmp_path)
    again.put("a", "Tell", report("2"))
    again.close()
    last, both = opened(tmp_path)
    last.close()

    assert left == ["a Tell 1"]
    assert both == ["a Tell 1", "a Tell 2"]


def test_a_journal_in_which_nothing_waits_does_not_grow_for_ever(tmp_path: Path) -> None:
    journal, _ = opened(tmp_path)
    for _ in range(5000):
        journal.mark_delivered(journal.put("a", "Tell", report("x" * 100)))
    journal.close()

    assert (tmp_path / "journal").stat().st_size < 300_000


async def test_a_full_disk_is_a_state_and_is_left_when_there_is_room(tmp_path: Path) -> None:
    journal, _ = opened(tmp_path)
    journal.put("a", "Tell", report("1"))
    with full_disk((tmp_path / "journal").stat().st_size + 10):
        journal.put("a", "Tell", report("2"))
        assert "reports cannot be kept" in journal.fault
        journal.put("a", "Tell", report("3"))
        journal.recover()
        assert journal.fault
        await journal.sync()
    # What was kept before is still whole.
    copy = tmp_path / "copy"
    copy.mkdir()
    (copy / "journal").write_bytes((tmp_path / "journal").read_bytes())
    other, kept = opened(copy)
    other.close()
    assert kept == ["a Tell 1"]

    journal.recover()
    journal.close()

    assert journal.fault == ""
    again, left = opened(tmp_path)
    again.close()
    assert left == ["a Tell 1", "a Tell 2", "a Tell 3"]


async def test_the_next_outbox_delivers_first_what_the_last_one_could_not(tmp_path: Path) -> None:
    away = Away()
    async with asyncio.timeout(LIMIT):
        outbox = Outbox(away, Journal(tmp_path))
        async with outbox.open(drain=0):
            outbox.put("a", "Tell", report("1"))
            outbox.put("a", "Tell", report("2"))
            await outbox.wait_durable("a")

        away.back.set()
        outbox = Outbox(away, Journal(tmp_path))
        async with outbox.open():
            outbox.put("a", "Tell", report("3"))
            await outbox.wait_backlog_delivered()
            await outbox.wait_delivered("a")

    assert away.taken == ["1", "2", "3"]
    again, left = opened(tmp_path)
    again.close()
    assert left == []


async def test_without_disk_a_lane_is_kept_once_it_is_taken(tmp_path: Path) -> None:
    away = Away()
    outbox = Outbox(away, Journal(tmp_path))
    async with asyncio.timeout(LIMIT), outbox.open():
        with full_disk(0):
            outbox.put("a", "Tell", report("1"))
            assert outbox.fault
            waiting = asyncio.ensure_future(outbox.wait_durable("a"))
            await asyncio.wait([waiting], timeout=0.05)
            assert not waiting.done()
            away.back.set()
            await waiting
    assert away.taken == ["1"]


async def test_a_disk_that_is_back_is_used_again_by_itself(tmp_path: Path) -> None:
    outbox = Outbox(Away(), Journal(tmp_path))
    async with asyncio.timeout(LIMIT), outbox.open(drain=0):
        with full_disk(0):
            outbox.put("a", "Tell", report("1"))
            assert outbox.fault
        await outbox.wait_durable("a")
        assert outbox.fault == ""
    again, left = opened(tmp_path)
    again.close()
    assert left == ["a Tell 1"]


KILLED = """
import os, signal, sys
from pathlib import Path
from pipecd_wire.pipedservice.service_pb2 import ReportStageStatusChangedRequest as R
from pipecd_piped.report.journal import Journal
journal = Journal(Path(sys.argv[1]))
journal.open()
for n in range(100):
    journal.put("a", "Tell", R(deployment_id="d", stage_id=str(n)))
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_nothing_that_was_put_is_lost_with_a_killed_process(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", KILLED, str(tmp_path)], env=os.environ, check=False, timeout=60
    )
    assert ended.returncode == -signal.SIGKILL

    journal, left = opened(tmp_path)
    journal.close()

    assert left == [f"a Tell {n}" for n in range(100)]
