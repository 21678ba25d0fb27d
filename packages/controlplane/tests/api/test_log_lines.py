# SPDX-License-Identifier: Apache-2.0
"""Any range of a stage log, a search in it, and the whole as a file; long ones in small parts."""

from typing import Any

import httpx2
import pytest

from pipecd_controlplane.store.stage_logs import LogKey
from pipecd_controlplane.usecases import log_reading
from pipecd_model.errors import ConfigError
from pipecd_test_support.controlplane_server import ServedControlPlane
from pipecd_wire.model import deployment_pb2
from pipecd_wire.model.logblock_pb2 import LogBlock
from pipecd_wire.pipecd.api import logs_pb2
from pipecd_wire.pipecd.api.logs_pb2_grpc import StageLogServiceStub
from pipecd_wire.rpc import CallError, call

KEY = LogKey(deployment_id="deployment", stage_id="s1")
HERE: dict[str, Any] = {"deployment_id": "deployment", "stage_id": "s1"}


async def add_log(plane: ServedControlPlane, *lines: str, per_chunk: int = 100) -> None:
    """A log whose indexes say nothing about line numbers, as those of real agents."""
    if await plane.stores.deployments.find("default", "deployment") is None:
        await plane.stores.deployments.add(
            plane.build.deployment(
                id="deployment", project_id="default", stages=[plane.build.stage("s1")]
            )
        )
    blocks = [
        LogBlock(index=1_700_000_000 + 3 * number, log=line, created_at=1)
        for number, line in enumerate(lines)
    ]
    for start in range(0, len(blocks), per_chunk):
        await plane.stores.stage_logs.append(
            "default", KEY, blocks[start : start + per_chunk], completed=False
        )


async def read(plane: ServedControlPlane, **fields: Any) -> logs_pb2.ReadStageLogResponse:
    stub = StageLogServiceStub(plane.admin.channel)
    return await call(stub.ReadStageLog, logs_pb2.ReadStageLogRequest(**HERE, **fields))


async def search(
    plane: ServedControlPlane, text: str, **fields: Any
) -> logs_pb2.SearchStageLogResponse:
    stub = StageLogServiceStub(plane.admin.channel)
    request = logs_pb2.SearchStageLogRequest(**HERE, text=text, **fields)
    return await call(stub.SearchStageLog, request)


@pytest.mark.parametrize("per_chunk", [1, 7, 1000])
async def test_any_range_is_read_whatever_the_chunks(
    plane: ServedControlPlane, per_chunk: int
) -> None:
    lines = [f"line {number}" for number in range(1, 301)]
    await add_log(plane, *lines, per_chunk=per_chunk)
    for first, count in ((1, 5), (99, 3), (296, 50), (300, 1)):
        got = await read(plane, first_line=first, count=count)
        assert [block.log for block in got.blocks] == lines[first - 1 : first - 1 + count]
        assert (got.first_line, got.total_lines, got.completed) == (first, 300, False)
    last = await read(plane, count=10)
    assert (last.first_line, last.blocks[-1].log) == (291, "line 300")
    beyond = await read(plane, first_line=301, count=10)
    assert (len(beyond.blocks), beyond.total_lines) == (0, 300)


async def test_a_number_stays_when_earlier_lines_arrive_late(plane: ServedControlPlane) -> None:
    await add_log(plane, "one", "two")
    late = LogBlock(index=1, log="late", created_at=1)
    again = LogBlock(index=1_700_000_000, log="one again", created_at=1)
    await plane.stores.stage_logs.append("default", KEY, [late, again], completed=False)
    got = await read(plane, first_line=1, count=10)
    assert [block.log for block in got.blocks] == ["one", "two", "late"]
    assert got.total_lines == 3


async def test_a_log_is_complete_when_its_stage_is_over_and_all_was_read(
    plane: ServedControlPlane,
) -> None:
    await add_log(plane, "one", "two")

    def end(deployment: deployment_pb2.Deployment) -> None:
        deployment.stages[0].status = deployment_pb2.STAGE_SUCCESS

    await plane.stores.deployments.update("default", "deployment", end)
    assert not (await read(plane, first_line=1, count=1)).completed
    assert (await read(plane, first_line=2, count=1)).completed


async def test_a_stage_without_a_log_is_empty_and_one_that_is_not_there_is_not_found(
    plane: ServedControlPlane,
) -> None:
    await add_log(plane)
    assert (await read(plane)).total_lines == 0
    stub = StageLogServiceStub(plane.admin.channel)
    wanted = logs_pb2.ReadStageLogRequest(deployment_id="deployment", stage_id="nothing")
    with pytest.raises(CallError) as caught:
        await call(stub.ReadStageLog, wanted)
    assert caught.value.status == "NOT_FOUND"


async def test_a_search_sees_no_colours_and_goes_on_where_it_stopped(
    plane: ServedControlPlane,
) -> None:
    lines = [
        f"\x1b[31mErr\x1b[0mor {number}" if number % 10 == 0 else "fine" for number in range(50)
    ]
    await add_log(plane, *lines)
    found = await search(plane, "error", most=3)
    assert [each.line for each in found.matches] == [1, 11, 21]
    more = await search(plane, "error", first_line=found.next_line)
    assert [each.line for each in more.matches] == [31, 41]
    assert (more.next_line, more.total_lines) == (0, 50)
    assert not (await search(plane, "error", match_case=True)).matches
    regex = await search(plane, r"^err.* [24]0$", is_regex=True)
    assert [each.line for each in regex.matches] == [21, 41]


@pytest.mark.parametrize("text", ["(", r"(?=x)", "x" * 1001])
async def test_what_cannot_be_searched_for_is_refused(plane: ServedControlPlane, text: str) -> None:
    await add_log(plane, "one")
    with pytest.raises(CallError) as caught:
        await search(plane, text, is_regex=True)
    assert caught.value.status == "INVALID_ARGUMENT"
    with pytest.raises(ConfigError):
        log_reading.make_search("x" * 1001, match_case=False, is_regex=False)


async def test_one_answer_is_never_large(plane: ServedControlPlane) -> None:
    await add_log(plane, *("x" * 1_000_000 for _ in range(6)))
    got = await read(plane, first_line=1, count=6)
    assert (len(got.blocks), got.total_lines) == (2, 6)
    found = await search(plane, "nothing of it")
    assert found.next_line > 1


async def test_the_whole_is_downloaded_as_text(plane: ServedControlPlane) -> None:
    await add_log(plane, "\x1b[1mone\x1b[0m", "<script>two</script>")
    async with httpx2.AsyncClient(
        base_url=f"http://{plane.address}", trust_env=False, timeout=30
    ) as client:
        query = {"deployment": "deployment", "stage": "s1"}
        key = {"authorization": f"API-KEY {plane.admin.key}"}
        got = await client.get("/download/stage-log", params=query, headers=key)
        assert got.text == "one\n<script>two</script>\n"
        assert got.headers["content-type"] == "text/plain; charset=utf-8"
        assert got.headers["content-disposition"].startswith("attachment; filename=")
        assert got.headers["x-content-type-options"] == "nosniff"
        assert (await client.get("/download/stage-log", params=query)).status_code == 401
        for wrong in ({"attempt": "x"}, {"attempt": "-1"}, {"attempt": "99999"}):
            bad = await client.get("/download/stage-log", params=query | wrong, headers=key)
            assert bad.status_code == 400
        other = await client.get(
            "/download/stage-log", params=query, headers=key | {"sec-fetch-site": "cross-site"}
        )
        assert other.status_code == 403
