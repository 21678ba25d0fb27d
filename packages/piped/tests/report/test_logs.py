# SPDX-License-Identifier: Apache-2.0
"""Stage logs on their way up, over real gRPC to a control plane that comes and goes."""

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from pipecd_model.errors import UnavailableError
from pipecd_wire.model.logblock_pb2 import LogBlock
from pipecd_wire.pipedservice import service_pb2 as pb
from pipecd_wire.rpc import Endpoints, StatusError, admit_all, connect, rpc, serving
from piped.mirror.controlplane import ControlPlane
from piped.report.logs import LARGEST_REQUEST, StageKey, StageLogs

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
    async def logs(self, _: Any, request: pb.ReportStageLogsRequest) -> pb.ReportStageLogsResponse:
        await self._take(request)
        return pb.ReportStageLogsResponse()

    @rpc("ReportStageLogsFromLastCheckpoint")
    async def checkpoint(
        self, _: Any, request: pb.ReportStageLogsFromLastCheckpointRequest
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
        endpoints.add(SERVICE, self, owed=set(SERVICE.methods_by_name) - mine)
        async with serving(endpoints, address, grace=0):
            yield


@pytest.fixture
def keeper() -> LogKeeper:
    return LogKeeper()


@pytest.fixture
def address(tmp_path: Path) -> str:
    """One that can be served again after it was gone."""
    return f"unix:{tmp_path}/control-plane"


@pytest.fixture
async def control(address: str) -> AsyncIterator[ControlPlane]:
    async with connect(address) as channel:
        yield ControlPlane(channel)


def blocks(*lines: str, start: int = 0) -> Sequence[LogBlock]:
    return [LogBlock(index=start + n, log=line, created_at=1) for n, line in enumerate(lines)]


async def test_lines_are_passed_on_in_order(
    keeper: LogKeeper, control: ControlPlane, address: str
) -> None:
    async with keeper.served(address), StageLogs(control).open() as logs:
        for number in range(50):
            await logs.report(STAGE, blocks(str(number), start=number))
        await logs.checkpoint(STAGE, [], completed=True)

        assert keeper.lines() == [str(number) for number in range(50)]
    assert keeper.requests[-1].completed


async def test_the_end_of_a_log_has_arrived_when_the_call_returns(
    keeper: LogKeeper, control: ControlPlane, address: str
) -> None:
    """A stage that is shown as finished has its last line."""
    async with keeper.served(address), StageLogs(control).open() as logs:
        await logs.report(STAGE, blocks("first"))
        await logs.checkpoint(STAGE, blocks("last", start=1), completed=True)

        assert keeper.lines() == ["first", "last"]
        assert logs.lines_waiting == 0


async def test_an_empty_end_is_passed_on(
    keeper: LogKeeper, control: ControlPlane, address: str
) -> None:
    """W31: a log without a line since the last checkpoint has an end too."""
    async with keeper.served(address), StageLogs(control).open() as logs:
        await logs.checkpoint(STAGE, [], completed=True)

    assert [request.completed for request in keeper.requests] == [True]


async def test_a_plugin_does_not_wait_for_a_control_plane_that_is_away(
    keeper: LogKeeper, control: ControlPlane, address: str
) -> None:
    async with StageLogs(control, flush=0.1).open(drain=20) as logs:
        async with asyncio.timeout(10):
            await logs.report(STAGE, blocks("one", "two"))
            await logs.checkpoint(STAGE, blocks("three", start=2), completed=True)
        assert logs.lines_waiting == 3

        async with keeper.served(address), asyncio.timeout(30):
            while logs.lines_waiting:  # noqa: ASYNC110 - the retries have their own clock
                await asyncio.sleep(0.01)

    assert keeper.lines() == ["one", "two", "three"]


@pytest.mark.parametrize("status", ["UNAVAILABLE", "INTERNAL", "UNKNOWN", "DEADLINE_EXCEEDED"])
async def test_lines_are_repeated_until_they_are_taken(
    keeper: LogKeeper, control: ControlPlane, address: str, status: str
) -> None:
    keeper.refusals = [status, status]

    async with keeper.served(address), StageLogs(control).open(drain=30) as logs:
        await logs.report(STAGE, blocks("one"))
        await logs.report(STAGE, blocks("two", start=1))

    assert keeper.lines() == ["one", "two"]


async def test_lines_for_a_closed_log_are_dropped(
    keeper: LogKeeper, control: ControlPlane, address: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A continued plugin may repeat the end of a log; that is nothing to worry an operator with."""
    keeper.refusals = ["FAILED_PRECONDITION"]

    async with keeper.served(address), StageLogs(control).open(drain=10) as logs:
        await logs.checkpoint(STAGE, blocks("late"), completed=True)

        assert logs.lines_waiting == 0
    assert keeper.lines() == []
    assert not [record for record in caplog.records if record.levelno > logging.DEBUG]


async def test_a_stage_does_not_wait_for_the_log_of_another(
    keeper: LogKeeper, control: ControlPlane, address: str
) -> None:
    async with keeper.served(address), StageLogs(control).open(drain=30) as logs:
        keeper.refusals = ["UNAVAILABLE"] * 3
        await logs.report(StageKey("d1", "slow"), blocks("slow"))
        while len(keeper.refusals) == 3:  # noqa: ASYNC110 - the server is what is waited for
            await asyncio.sleep(0.01)
        keeper.refusals = []

        await logs.checkpoint(STAGE, blocks("quick"), completed=True)

        assert keeper.lines() == ["quick"]
    assert keeper.lines("slow") == ["slow"]


async def test_a_full_memory_refuses_lines_and_loses_none(
    keeper: LogKeeper, control: ControlPlane, address: str
) -> None:
    """The plugin keeps what was refused and sends it again."""
    large = "x" * 1000
    async with StageLogs(control, largest=3000, patience=0.1).open(drain=20) as logs:
        await logs.report(STAGE, blocks(large))
        await logs.report(STAGE, blocks(large, start=1))

        with pytest.raises(UnavailableError, match="as many log lines as it can"):
            await logs.report(STAGE, blocks(large, start=2))

        async with keeper.served(address), asyncio.timeout(30):
            while len(keeper.lines()) < 2:  # noqa: ASYNC110 - the retries have their own clock
                await asyncio.sleep(0.01)
            await logs.report(STAGE, blocks(large, start=2))
            await logs.checkpoint(STAGE, [], completed=True)

    assert keeper.lines() == [large] * 3


async def test_a_call_that_waits_for_room_gets_it(
    keeper: LogKeeper, control: ControlPlane, address: str
) -> None:
    large = "x" * 1000
    keeper.held.clear()
    async with keeper.served(address), StageLogs(control, largest=1500).open(drain=20) as logs:
        await logs.report(STAGE, blocks(large))
        async with asyncio.TaskGroup() as tasks:
            waiting = tasks.create_task(logs.report(STAGE, blocks(large, start=1)))
            await asyncio.sleep(0.05)
            assert not waiting.done()

            keeper.held.set()

    assert keeper.lines() == [large] * 2


async def test_lines_that_have_gathered_go_together_but_not_past_a_checkpoint(
    keeper: LogKeeper, control: ControlPlane, address: str
) -> None:
    logs = StageLogs(control, flush=0)
    for number in range(5):
        await logs.report(STAGE, blocks(str(number), start=number))
    await logs.checkpoint(STAGE, blocks("5", start=5), completed=False)
    await logs.report(STAGE, blocks("6", start=6))
    big = "y" * (LARGEST_REQUEST - 10)
    await logs.report(STAGE, blocks(big, start=7))

    async with keeper.served(address), logs.open(drain=20):
        pass

    sizes = [len(request.blocks) for request in keeper.requests]
    assert sizes == [5, 1, 1, 1]
    assert keeper.lines() == ["0", "1", "2", "3", "4", "5", "6", big]


async def test_lines_that_never_arrive_are_told_to_the_operator(
    control: ControlPlane, caplog: pytest.LogCaptureFixture
) -> None:
    async with StageLogs(control).open(drain=0.1) as logs:
        await logs.report(STAGE, blocks("one", "two"))

    [record] = [record for record in caplog.records if record.message == "stage_log.lost"]
    assert record.fields == {"lines": 2}  # type: ignore[attr-defined]


async def test_an_error_of_the_block_stays_itself(control: ControlPlane) -> None:
    async def fail() -> None:
        async with StageLogs(control).open(drain=0):
            raise LookupError

    with pytest.raises(LookupError):
        await fail()
