# SPDX-License-Identifier: Apache-2.0
"""Log lines on their way to piped, over real gRPC: nothing lost, nothing doubled."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from pipecd_sdk import Severity
from pipecd_sdk._glue.stage_log import (
    BATCH_BLOCKS,
    MOST_WAITING,
    OURS,
    UPSTREAMS,
    SendingPace,
    StageLogSender,
)
from pipecd_sdk.stage_log import LONGEST_LINE
from pipecd_sdk.testing.piped import FakePiped
from pipecd_wire.pluginservice import service_pb2, service_pb2_grpc
from pipecd_wire.rpc import Endpoints, admit_all, connect, rpc, serving

GO_LIMIT = 4 * 1024 * 1024
BOTH = pytest.mark.parametrize("pace", [OURS, UPSTREAMS], ids=["ours", "go"])


@asynccontextmanager
async def sending(
    piped: FakePiped, pace: SendingPace = OURS, *, completed: bool = True
) -> AsyncIterator[StageLogSender]:
    """A sender while the block runs; at its end the log is finished."""
    async with connect(piped.address) as channel, asyncio.TaskGroup() as tasks:
        sender = StageLogSender(
            service_pb2_grpc.PluginServiceStub(channel),
            deployment_id="d1",
            stage_id="s1",
            retried_count=0,
            pace=pace,
        )
        tasks.create_task(sender.run())
        yield sender
        sender.finish(completed=completed)


def numbers(count: int) -> list[str]:
    return [f"line {number}" for number in range(count)]


@BOTH
async def test_all_lines_arrive_in_order(pace: SendingPace) -> None:
    async with FakePiped() as piped:
        async with sending(piped, pace) as sender:
            for line in numbers(1234):
                sender.append(Severity.INFO, line)

        assert piped.log("s1").lines == numbers(1234)
        assert piped.log("s1").sealed


@BOTH
async def test_a_line_arrives_while_the_stage_still_runs(pace: SendingPace) -> None:
    async with FakePiped() as piped, sending(piped, pace) as sender:
        sender.append(Severity.ERROR, "look")

        await piped.wait_until(lambda: piped.log("s1").lines == ["look"])

        (block,) = piped.log("s1").blocks.values()
        assert Severity(block.severity) is Severity.ERROR
        assert block.created_at > 0
        assert not piped.log("s1").sealed


@pytest.mark.parametrize("checkpoint", [None, 3600.0], ids=["ours", "go"])
async def test_the_end_of_a_stage_does_not_wait_for_a_flush(checkpoint: float | None) -> None:
    """A stage that is done in a moment must not take as long as its log is collected."""
    async with FakePiped() as piped, asyncio.timeout(60):
        pace = SendingPace(flush=3600, gather=3600, checkpoint=checkpoint)
        async with sending(piped, pace) as sender:
            sender.append(Severity.INFO, "done")

        assert piped.log("s1").lines == ["done"]
        assert piped.log("s1").sealed


async def test_a_line_after_silence_does_not_wait_and_the_next_ones_do() -> None:
    """Somebody watches: the first line shows at once, a stream of lines costs few messages."""
    pace = SendingPace(flush=3600, gather=0.001, checkpoint=None)
    async with FakePiped() as piped, asyncio.timeout(60):
        async with sending(piped, pace) as sender:
            sender.append(Severity.INFO, "first")
            await piped.wait_until(lambda: piped.log("s1").lines == ["first"])
            while sender._some.is_set():  # it has heard that the line was taken  # noqa: ASYNC110
                await asyncio.sleep(0.001)
            for line in numbers(20):
                sender.append(Severity.INFO, line)
                await asyncio.sleep(0)
            assert piped.log("s1").lines == ["first"]

        assert piped.log("s1").lines == ["first", *numbers(20)]


async def test_many_lines_travel_in_few_messages() -> None:
    async with FakePiped() as piped:
        async with sending(piped) as sender:
            for line in numbers(3 * BATCH_BLOCKS):
                sender.append(Severity.INFO, line)

        assert piped.calls["ReportStageLogs"] <= 3


@BOTH
async def test_an_empty_log_is_sealed_too(pace: SendingPace) -> None:
    """Otherwise whoever follows it would wait for ever."""
    async with FakePiped() as piped:
        async with sending(piped, pace):
            pass

        assert piped.log("s1").sealed


@BOTH
async def test_a_stage_that_will_be_continued_leaves_its_log_open(pace: SendingPace) -> None:
    async with FakePiped() as piped:
        async with sending(piped, pace, completed=False) as sender:
            sender.append(Severity.INFO, "before")
        assert not piped.log("s1").sealed

        async with sending(piped, pace) as sender:
            sender.append(Severity.INFO, "after")

        assert piped.log("s1").lines == ["before", "after"]
        assert piped.log("s1").sealed


@BOTH
@pytest.mark.parametrize("rpc", ["ReportStageLogs", "ReportStageLogsFromLastCheckpoint"])
async def test_lines_are_sent_again_until_piped_takes_them(rpc: str, pace: SendingPace) -> None:
    async with FakePiped() as piped:
        piped.refuse(rpc, "UNAVAILABLE", "UNKNOWN", "DEADLINE_EXCEEDED")

        async with sending(piped, pace) as sender:
            for line in numbers(2 * BATCH_BLOCKS):
                sender.append(Severity.INFO, line)

        assert piped.log("s1").lines == numbers(2 * BATCH_BLOCKS)
        assert piped.log("s1").sealed


@BOTH
async def test_a_lost_answer_doubles_nothing(pace: SendingPace) -> None:
    async with FakePiped() as piped:
        piped.lose_answers("ReportStageLogs", 2)
        async with sending(piped, pace) as sender:
            for line in numbers(2 * BATCH_BLOCKS):
                sender.append(Severity.INFO, line)

        assert piped.log("s1").lines == numbers(2 * BATCH_BLOCKS)


async def test_a_lost_answer_to_the_seal_is_no_reason_to_wait() -> None:
    """The second attempt is told that the log is complete, which is what was wanted."""
    async with FakePiped() as piped:
        piped.lose_answers("ReportStageLogsFromLastCheckpoint")
        async with asyncio.timeout(30), sending(piped) as sender:
            sender.append(Severity.INFO, "last words")

        assert piped.log("s1").lines == ["last words"]
        assert piped.log("s1").sealed


async def test_a_log_sealed_by_an_earlier_run_does_not_hold_up_the_stage() -> None:
    async with FakePiped() as piped:
        async with sending(piped) as sender:
            sender.append(Severity.INFO, "first run")

        async with asyncio.timeout(30), sending(piped) as sender:
            for line in numbers(3 * BATCH_BLOCKS):
                sender.append(Severity.INFO, line)

        assert piped.log("s1").lines == ["first run"]


async def test_a_batch_that_is_refused_for_good_does_not_stop_the_next_and_is_counted() -> None:
    """Never silently: who reads the log sees that it is not whole."""
    async with FakePiped() as piped:
        piped.refuse("ReportStageLogs", "INVALID_ARGUMENT")
        async with sending(piped) as sender:
            for line in numbers(2 * BATCH_BLOCKS):
                sender.append(Severity.INFO, line)

        left = numbers(2 * BATCH_BLOCKS)[BATCH_BLOCKS:]
        assert piped.log("s1").lines == [*left, f"{BATCH_BLOCKS} lines of this log were not taken"]


async def test_upstreams_control_plane_keeps_every_line_for_good() -> None:
    """It keeps only what comes with a checkpoint; the rest is gone with its cache."""
    async with FakePiped(managed=False) as piped:
        async with sending(piped, UPSTREAMS) as sender:
            for line in numbers(3 * BATCH_BLOCKS + 7):
                sender.append(Severity.INFO, line)

        log = piped.log("s1")
        assert log.lines == numbers(3 * BATCH_BLOCKS + 7)
        assert log.durable == log.blocks.keys()


async def test_a_second_run_starts_above_every_index_of_the_first() -> None:
    async with FakePiped() as piped:
        async with sending(piped, completed=False) as sender:
            for line in numbers(100):
                sender.append(Severity.INFO, line)
        first = max(piped.log("s1").blocks)

        async with sending(piped) as sender:
            sender.append(Severity.INFO, "again")

        assert len(piped.log("s1").blocks) == 101
        assert max(piped.log("s1").blocks) > first


@BOTH
async def test_long_lines_stay_below_the_limit_of_go_peers(pace: SendingPace) -> None:
    line = "€" * (LONGEST_LINE // 3)
    async with FakePiped() as piped:
        async with sending(piped, pace) as sender:
            for _ in range(200):
                sender.append(Severity.INFO, line)

        assert piped.log("s1").lines == [line] * 200
        assert piped.largest_report < GO_LIMIT


async def test_a_writer_waits_while_too_many_lines_are_on_their_way() -> None:
    async with FakePiped() as piped, asyncio.TaskGroup() as tasks:
        piped.refuse("ReportStageLogs", *["UNAVAILABLE"] * 3)
        async with sending(piped) as sender:
            for line in numbers(MOST_WAITING):
                sender.append(Severity.INFO, line)

            waiting = tasks.create_task(sender.drain())
            await piped.wait_until(lambda: piped.calls["ReportStageLogs"] >= 2)
            assert not waiting.done()

            async with asyncio.timeout(30):
                await waiting

        assert piped.log("s1").lines == numbers(MOST_WAITING)


@BOTH
async def test_a_line_said_again_at_its_index_is_kept_once(pace: SendingPace) -> None:
    """So the next process can repeat what may not have arrived."""
    async with FakePiped() as piped:
        async with sending(piped, pace, completed=False) as sender:
            sender.set_next_index(1000, 60.0)
            sender.append(Severity.INFO, "one")
            sender.append(Severity.INFO, "two")

        async with sending(piped, pace) as sender:
            sender.set_next_index(1000, 60.0)
            for line in ("one", "two", "three"):
                sender.append(Severity.INFO, line)

        log = piped.log("s1")
        assert [(index, block.log) for index, block in sorted(log.blocks.items())] == [
            (1000, "one"),
            (1001, "two"),
            (1002, "three"),
        ]
        assert log.blocks[1000].created_at == 60


@BOTH
async def test_a_call_that_hangs_ends_when_the_process_has_no_more_time(
    pace: SendingPace, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever accepts the call and never answers must not cost the grace period."""
    async with (
        silent_server() as address,
        asyncio.timeout(60),
        connect(address) as channel,
        asyncio.TaskGroup() as tasks,
    ):
        sender = StageLogSender(
            service_pb2_grpc.PluginServiceStub(channel),
            deployment_id="d1",
            stage_id="s1",
            retried_count=0,
            pace=pace,
        )
        tasks.create_task(sender.run())
        for line in numbers(2 * BATCH_BLOCKS):
            sender.append(Severity.INFO, line)
        sender.finish(completed=False)
        sender.hurry(time.monotonic() + 0.2)

    [lost] = [each for each in caplog.records if each.message == "stage_log.lost"]
    assert lost.__dict__["fields"]["blocks"] == 2 * BATCH_BLOCKS


@asynccontextmanager
async def silent_server() -> AsyncIterator[str]:
    """Somebody who takes every call and answers none."""

    class Silent:
        @rpc("ReportStageLogs")
        async def report(
            self, _caller: object, request: service_pb2.ReportStageLogsRequest
        ) -> service_pb2.ReportStageLogsResponse:
            await asyncio.Event().wait()
            raise AssertionError

        @rpc("ReportStageLogsFromLastCheckpoint")
        async def report_checkpoint(
            self, _caller: object, request: service_pb2.ReportStageLogsFromLastCheckpointRequest
        ) -> service_pb2.ReportStageLogsFromLastCheckpointResponse:
            await asyncio.Event().wait()
            raise AssertionError

    service = service_pb2.DESCRIPTOR.services_by_name["PluginService"]
    endpoints = Endpoints(admit=admit_all)
    served = {"ReportStageLogs", "ReportStageLogsFromLastCheckpoint"}
    endpoints.add(service, Silent(), unimplemented=set(service.methods_by_name) - served)
    async with serving(endpoints, "127.0.0.1:0", grace_seconds=0) as port:
        yield f"127.0.0.1:{port}"
