# SPDX-License-Identifier: Apache-2.0
"""Stage logs on their way up, over real gRPC to a control plane that comes and goes."""

import asyncio
import logging
import os
import resource
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from pipecd_model.errors import UnavailableError
from pipecd_piped.controlplane.client import ControlPlane
from pipecd_piped.report.joined import JoinedReports
from pipecd_piped.report.lines import LARGEST_REQUEST, LONGEST_BLOCK
from pipecd_piped.report.logs import SpooledStageLogs
from pipecd_piped.report.spool import StageKey
from pipecd_wire.model import deployment_pb2
from pipecd_wire.model.logblock_pb2 import LogBlock
from pipecd_wire.pipedservice import service_pb2 as pb
from pipecd_wire.rpc import Endpoints, StatusError, admit_all, connect, rpc, serving

SERVICE = pb.DESCRIPTOR.services_by_name["PipedService"]
STAGE = StageKey("d1", "s1")


class LogKeeper:
    """Takes logs as the control plane does, and refuses on request."""

    def __init__(self) -> None:
        self.requests: list[Any] = []
        self.refusals: list[str] = []
        self.held = asyncio.Event()
        self.held.set()

    @rpc("ReportStageLogs")
    async def logs(
        self, _: object, request: pb.ReportStageLogsRequest
    ) -> pb.ReportStageLogsResponse:
        await self._take(request)
        return pb.ReportStageLogsResponse()

    @rpc("ReportStageLogsFromLastCheckpoint")
    async def checkpoint(
        self, _: object, request: pb.ReportStageLogsFromLastCheckpointRequest
    ) -> pb.ReportStageLogsFromLastCheckpointResponse:
        await self._take(request)
        return pb.ReportStageLogsFromLastCheckpointResponse()

    async def _take(self, request: Any) -> None:
        await self.held.wait()
        if self.refusals:
            raise StatusError(self.refusals.pop(0), "refused by the test")
        self.requests.append(request)

    def lines(self, stage_id: str = "s1") -> list[str]:
        return [
            block.log
            for request in self.requests
            if request.stage_id == stage_id
            for block in request.blocks
        ]

    @asynccontextmanager
    async def served(self, address: str) -> AsyncIterator[None]:
        endpoints = Endpoints(admit=admit_all)
        mine = {"ReportStageLogs", "ReportStageLogsFromLastCheckpoint"}
        endpoints.add(SERVICE, self, unimplemented=set(SERVICE.methods_by_name) - mine)
        async with serving(endpoints, address, grace_seconds=0):
            yield


@pytest.fixture
def keeper() -> LogKeeper:
    return LogKeeper()


@pytest.fixture
def address(tmp_path: Path) -> str:
    """One that can be served again after it was gone."""
    return f"unix:{tmp_path}/control-plane"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where lines wait."""
    return tmp_path / "logs"


@pytest.fixture
async def control(address: str) -> AsyncIterator[ControlPlane]:
    async with connect(address) as channel:
        yield ControlPlane(channel)


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not holds():  # noqa: ASYNC110 - the retries have their own clock
            await asyncio.sleep(0.01)


async def taken(logs: SpooledStageLogs, lines: Sequence[LogBlock]) -> None:
    """Send lines until they are acknowledged, as a plugin does."""
    async with asyncio.timeout(60):
        while True:
            try:
                return await logs.report(STAGE, lines)
            except UnavailableError:
                continue


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


def files(folder: Path) -> list[Path]:
    return sorted(folder.iterdir())


def blocks(*lines: str, start: int = 0) -> Sequence[LogBlock]:
    return [LogBlock(index=start + n, log=line, created_at=1) for n, line in enumerate(lines)]


async def test_lines_are_passed_on_in_order(
    keeper: LogKeeper, control: ControlPlane, address: str, folder: Path
) -> None:
    async with keeper.served(address), SpooledStageLogs(control, folder).open() as logs:
        for number in range(50):
            await logs.report(STAGE, blocks(str(number), start=number))
        await logs.checkpoint(STAGE, [], completed=True)
        await logs.wait_delivered(STAGE)

        assert keeper.lines() == [str(number) for number in range(50)]
    assert keeper.requests[-1].completed


def stage_report(
    status: deployment_pb2.StageStatus.ValueType,
) -> pb.ReportStageStatusChangedRequest:
    return pb.ReportStageStatusChangedRequest(
        deployment_id=STAGE.deployment_id, stage_id=STAGE.stage_id, status=status
    )


async def test_the_end_of_a_stage_is_delivered_after_its_last_line(
    keeper: LogKeeper, control: ControlPlane, address: str, folder: Path
) -> None:
    """A stage that is shown as finished has its last line."""
    async with keeper.served(address), SpooledStageLogs(control, folder).open() as logs:
        keeper.held.clear()
        reports = JoinedReports(control.deliver_named, logs)
        await logs.report(STAGE, blocks("first"))
        await logs.checkpoint(STAGE, blocks("last", start=1), completed=True)
        await reports.wait_ready(stage_report(deployment_pb2.STAGE_RUNNING))
        assert keeper.lines() == [], "a beginning waits for no line"
        end = asyncio.create_task(
            reports.wait_ready(stage_report(deployment_pb2.STAGE_SUCCESS)), name="end of the stage"
        )
        await asyncio.sleep(0)
        assert not end.done(), "an end waits for all"
        keeper.held.set()
        await end

        assert keeper.lines() == ["first", "last"]


async def test_the_end_of_a_stage_does_not_wait_while_the_control_plane_is_away(
    control: ControlPlane, folder: Path
) -> None:
    """It shows nobody that the stage has ended, either. A deployment goes on without it."""
    async with SpooledStageLogs(control, folder, flush=3600).open(drain=0) as logs:
        async with asyncio.timeout(30):
            await logs.checkpoint(STAGE, blocks("last"), completed=True)
            await logs.wait_delivered(STAGE)

        assert logs.bytes_waiting > 0


async def test_nobody_waits_for_logs_that_are_closed(control: ControlPlane, folder: Path) -> None:
    """The outbox drains after them."""
    async with SpooledStageLogs(control, folder, flush=3600).open(drain=0) as logs:
        await logs.checkpoint(STAGE, blocks("last"), completed=True)
    async with asyncio.timeout(30):
        await logs.wait_delivered(STAGE)


async def test_an_empty_end_is_passed_on(
    keeper: LogKeeper, control: ControlPlane, address: str, folder: Path
) -> None:
    """W31: a log without a line since the last checkpoint has an end too."""
    async with keeper.served(address), SpooledStageLogs(control, folder).open() as logs:
        await logs.checkpoint(STAGE, [], completed=True)

    assert [request.completed for request in keeper.requests] == [True]


async def test_a_plugin_does_not_wait_for_a_control_plane_that_is_away(
    keeper: LogKeeper, control: ControlPlane, address: str, folder: Path
) -> None:
    async with SpooledStageLogs(control, folder, flush=0.1).open(drain=20) as logs:
        async with asyncio.timeout(10):
            await logs.report(STAGE, blocks("one", "two"))
            await logs.checkpoint(STAGE, blocks("three", start=2), completed=True)
        assert logs.bytes_waiting > 0

        async with keeper.served(address):
            await until(lambda: logs.bytes_waiting == 0)

    assert keeper.lines() == ["one", "two", "three"]
    assert not files(folder)


@pytest.mark.parametrize("status", ["UNAVAILABLE", "INTERNAL", "UNKNOWN", "DEADLINE_EXCEEDED"])
async def test_lines_are_repeated_until_they_are_taken(
    keeper: LogKeeper, control: ControlPlane, address: str, folder: Path, status: str
) -> None:
    keeper.refusals = [status, status]

    async with keeper.served(address), SpooledStageLogs(control, folder).open(drain=30) as logs:
        await logs.report(STAGE, blocks("one"))
        await logs.report(STAGE, blocks("two", start=1))

    assert keeper.lines() == ["one", "two"]


async def test_lines_for_a_closed_log_are_dropped(
    keeper: LogKeeper,
    control: ControlPlane,
    address: str,
    folder: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A continued plugin may repeat the end of a log; that is nothing to worry an operator with."""
    keeper.refusals = ["FAILED_PRECONDITION"]

    async with keeper.served(address), SpooledStageLogs(control, folder).open(drain=10) as logs:
        await logs.checkpoint(STAGE, blocks("late"), completed=True)
        await logs.wait_delivered(STAGE)

        assert logs.bytes_waiting == 0
    assert keeper.lines() == []
    assert not [record for record in caplog.records if record.levelno > logging.INFO]


async def test_a_stage_does_not_wait_for_the_log_of_another(
    keeper: LogKeeper, control: ControlPlane, address: str, folder: Path
) -> None:
    async with keeper.served(address), SpooledStageLogs(control, folder).open(drain=30) as logs:
        keeper.refusals = ["UNAVAILABLE"] * 3
        await logs.report(StageKey("d1", "slow"), blocks("slow"))
        while len(keeper.refusals) == 3:  # noqa: ASYNC110 - the server is what is waited for
            await asyncio.sleep(0.01)
        keeper.refusals = []

        await logs.checkpoint(STAGE, blocks("quick"), completed=True)
        await logs.wait_delivered(STAGE)

        assert keeper.lines() == ["quick"]
    assert keeper.lines("slow") == ["slow"]


async def test_lines_beyond_the_limit_of_a_stage_are_refused_and_none_is_lost(
    keeper: LogKeeper, control: ControlPlane, address: str, folder: Path
) -> None:
    """The plugin keeps what was refused and sends it again. Another stage has room still."""
    large = "x" * 1000
    logs = SpooledStageLogs(control, folder, most_of_stage=2500, patience_seconds=0.1)
    async with logs.open(drain=20):
        await logs.report(STAGE, blocks(large))
        await logs.report(STAGE, blocks(large, start=1))

        with pytest.raises(UnavailableError, match="can take no more log lines"):
            await logs.report(STAGE, blocks(large, start=2))
        await logs.report(StageKey("d1", "other"), blocks("small"))

        async with keeper.served(address):
            await taken(logs, blocks(large, start=2))
            await until(lambda: logs.bytes_waiting == 0)

    assert keeper.lines() == [large] * 3
    assert keeper.lines("other") == ["small"]


async def test_lines_beyond_the_limit_of_all_stages_are_refused(
    control: ControlPlane, folder: Path
) -> None:
    async with SpooledStageLogs(control, folder, most=2500, patience_seconds=0.1).open(
        drain=0
    ) as logs:
        await logs.report(STAGE, blocks("x" * 2000))

        with pytest.raises(UnavailableError):
            await logs.report(StageKey("d1", "other"), blocks("x" * 1000))


async def test_the_end_of_a_log_is_taken_although_there_is_no_room(
    control: ControlPlane, folder: Path
) -> None:
    """A stage must be able to end while the control plane is away."""
    logs = SpooledStageLogs(control, folder, most=2500, patience_seconds=0.1, flush=0)
    async with logs.open(drain=0):
        await logs.report(STAGE, blocks("x" * 2000))

        await logs.checkpoint(STAGE, blocks("y" * 1000, start=1), completed=True)


async def test_a_call_that_waits_for_room_gets_it(
    keeper: LogKeeper, control: ControlPlane, address: str, folder: Path
) -> None:
    large = "x" * 1000
    keeper.held.clear()
    async with (
        keeper.served(address),
        SpooledStageLogs(control, folder, most_of_stage=1500).open(drain=20) as logs,
    ):
        await logs.report(STAGE, blocks(large))
        async with asyncio.TaskGroup() as tasks:
            waiting = tasks.create_task(logs.report(STAGE, blocks(large, start=1)))
            await asyncio.sleep(0.05)
            assert not waiting.done()

            keeper.held.set()

    assert keeper.lines() == [large] * 2


async def test_lines_that_have_gathered_go_together_but_not_past_a_checkpoint(
    keeper: LogKeeper, control: ControlPlane, address: str, folder: Path
) -> None:
    big = "y" * (LARGEST_REQUEST - 10)
    async with SpooledStageLogs(control, folder, flush=0).open(drain=20) as logs:
        for number in range(5):
            await logs.report(STAGE, blocks(str(number), start=number))
        await logs.checkpoint(STAGE, blocks("5", start=5), completed=False)
        await logs.report(STAGE, blocks("6", start=6))
        await logs.report(STAGE, blocks(big, start=7))
        async with keeper.served(address):
            await until(lambda: logs.bytes_waiting == 0)

    sizes = [len(request.blocks) for request in keeper.requests]
    assert sizes == [5, 1, 1, 1]
    assert keeper.lines() == ["0", "1", "2", "3", "4", "5", "6", big]


async def test_lines_that_do_not_fit_into_one_request_go_in_several(
    keeper: LogKeeper, control: ControlPlane, address: str, folder: Path
) -> None:
    """A plugin may send as much at once as a message holds, and a line longer than one."""
    lines = ["x" * 1_000_000] * 9
    async with keeper.served(address), SpooledStageLogs(control, folder).open(drain=20) as logs:
        await logs.checkpoint(STAGE, blocks(*lines), completed=False)
        await logs.checkpoint(
            STAGE, blocks("y" * (LONGEST_BLOCK + 7), "last", start=9), completed=True
        )

    *before, long, last = keeper.lines()
    assert (before, last) == (lines, "last")
    assert long == "y" * LONGEST_BLOCK + "… 7 bytes of this line are left out"
    assert [request.completed for request in keeper.requests] == [False] * 10 + [True]


async def test_the_next_one_passes_on_first_what_the_last_one_could_not(
    keeper: LogKeeper, control: ControlPlane, address: str, folder: Path
) -> None:
    async with SpooledStageLogs(control, folder, flush=0).open(drain=0) as logs:
        await logs.report(STAGE, blocks("one", "two"))
        await logs.checkpoint(StageKey("d2", "s1", 3), blocks("other"), completed=True)

    async with keeper.served(address), SpooledStageLogs(control, folder).open(drain=20) as logs:
        await logs.report(STAGE, blocks("three", start=2))

    assert [line for line in keeper.lines() if line != "other"] == ["one", "two", "three"]
    [other] = [request for request in keeper.requests if request.deployment_id == "d2"]
    assert (other.retried_count, other.completed) == (3, True)
    assert not files(folder)


async def test_lines_that_wait_are_in_several_files_and_arrive_in_order(
    keeper: LogKeeper, control: ControlPlane, address: str, folder: Path
) -> None:
    lines = [f"{number:05}{'x' * 20_000}" for number in range(600)]
    async with SpooledStageLogs(control, folder, flush=0).open(drain=0) as logs:
        for start in range(0, 300, 20):
            await logs.report(STAGE, blocks(*lines[start : start + 20], start=start))
    async with SpooledStageLogs(control, folder, flush=0).open(drain=60) as logs:
        for start in range(300, 600, 20):
            await logs.report(STAGE, blocks(*lines[start : start + 20], start=start))
        assert len(files(folder)) > 2

        async with keeper.served(address):
            await logs.checkpoint(STAGE, [], completed=True)
            await until(lambda: logs.bytes_waiting == 0)

    assert keeper.lines() == lines
    assert not files(folder)


async def test_lines_are_synced_when_the_control_plane_does_not_take_them_soon(
    control: ControlPlane, folder: Path
) -> None:
    async with SpooledStageLogs(control, folder).open(drain=0) as logs:
        await logs.report(STAGE, blocks("one"))
        spool = logs.spools[STAGE]
        assert not spool.is_synced

        await until(lambda: spool.is_synced)


async def test_what_never_arrives_is_told_to_the_operator(
    control: ControlPlane, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with SpooledStageLogs(control, folder).open(drain=0.1) as logs:
        await logs.report(STAGE, blocks("one", "two"))

    assert [record for record in caplog.records if record.message == "stage_log.undelivered"]


async def test_without_disk_a_call_is_answered_when_its_lines_are_taken(
    keeper: LogKeeper, control: ControlPlane, address: str, folder: Path
) -> None:
    """What was acknowledged is never lost: a plugin keeps its lines until somebody else does."""
    async with SpooledStageLogs(control, folder, patience_seconds=0.2).open(drain=0) as logs:
        await logs.report(STAGE, blocks("kept"))
        with full_disk(0):
            with pytest.raises(UnavailableError) as refused:
                await logs.report(STAGE, blocks("again", start=1))
            assert "File too large" in refused.value.hint
            assert "log lines cannot be kept" in logs.fault

            async with keeper.served(address):
                await until(lambda: keeper.lines() == ["kept"])
                await taken(logs, blocks("again", start=1))
                assert keeper.lines() == ["kept", "again"]


async def test_a_disk_that_is_back_is_used_again_by_itself(
    control: ControlPlane, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with SpooledStageLogs(control, folder, patience_seconds=0.1).open(drain=0) as logs:
        with full_disk(0), pytest.raises(UnavailableError):
            await logs.report(STAGE, blocks("one"))

        await taken(logs, blocks("one"))

        assert logs.fault == ""
    said = [record.message for record in caplog.records if "disk" in record.message]
    assert said == ["stage_log.disk_fault", "stage_log.disk_back"]
    assert len(files(folder)) == 1


async def test_half_a_record_hides_nothing_behind_it(
    keeper: LogKeeper, control: ControlPlane, address: str, folder: Path
) -> None:
    async with SpooledStageLogs(control, folder, patience_seconds=0.1).open(drain=0) as logs:
        await logs.report(STAGE, blocks("one"))
        [file] = files(folder)
        with full_disk(file.stat().st_size + 10), pytest.raises(UnavailableError):
            await logs.report(STAGE, blocks("two", start=1))
        await taken(logs, blocks("two", start=1))

    async with keeper.served(address), SpooledStageLogs(control, folder).open(drain=20):
        pass

    assert keeper.lines() == ["one", "two"]


async def test_a_file_that_was_cut_gives_the_lines_before_the_cut(
    keeper: LogKeeper, control: ControlPlane, address: str, folder: Path
) -> None:
    async with SpooledStageLogs(control, folder).open(drain=0) as logs:
        await logs.report(STAGE, blocks("one"))
        await logs.report(STAGE, blocks("two", start=1))
    [file] = files(folder)
    os.truncate(file, file.stat().st_size - 1)
    (folder / ("0" * 32 + "-00000001")).write_bytes(bytes(30))

    async with keeper.served(address), SpooledStageLogs(control, folder).open(drain=20) as logs:
        await logs.report(STAGE, blocks("three", start=2))

    assert keeper.lines() == ["one", "three"]
    assert not files(folder)


KILLED = """
import asyncio, os, signal, sys
from pathlib import Path
from pipecd_wire.model import deployment_pb2
from pipecd_wire.model.logblock_pb2 import LogBlock
from pipecd_wire.rpc import connect
from pipecd_piped.controlplane.client import ControlPlane
from pipecd_piped.report.logs import StageKey, SpooledStageLogs

async def main():
    async with connect(sys.argv[1]) as channel:
        async with SpooledStageLogs(ControlPlane(channel), Path(sys.argv[2])).open() as logs:
            for n in range(100):
                block = LogBlock(index=n, log=str(n), created_at=1)
                await logs.report(StageKey("d1", "s1"), [block])
            os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""


async def test_no_line_that_was_acknowledged_is_lost_with_a_killed_process(
    keeper: LogKeeper, control: ControlPlane, address: str, folder: Path
) -> None:
    ended = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", KILLED, address, str(folder)],
        check=False,
        timeout=60,
    )
    assert ended.returncode == -signal.SIGKILL

    async with keeper.served(address), SpooledStageLogs(control, folder).open(drain=20):
        pass

    assert keeper.lines() == [str(number) for number in range(100)]


async def test_an_error_of_the_block_stays_itself(control: ControlPlane, folder: Path) -> None:
    async def fail() -> None:
        async with SpooledStageLogs(control, folder).open(drain=0):
            raise LookupError

    with pytest.raises(LookupError):
        await fail()
