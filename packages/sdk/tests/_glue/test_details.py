# SPDX-License-Identifier: Apache-2.0
"""OpenResource as an agent sees it."""

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from pipecd_sdk import ContainerLog, Details, ResourceEvent
from pipecd_sdk._glue.details import LARGEST_LOG, MOST_LOGS, to_details
from pipecd_sdk.testing.piped import FakePiped
from pipecd_sdk.testing.process import LaunchMode, PluginProcess, executable, start_plugin
from pipecd_wire.model import application_live_state_pb2 as live_pb2
from pipecd_wire.rpc import CallError

WATCH = [sys.executable, str(Path(__file__).parent.parent / "watch_plugin.py")]


@asynccontextmanager
async def watching(**target: Any) -> AsyncIterator[PluginProcess]:
    entry = {"deployTargets": [{"name": "a", "config": target}]}
    async with (
        FakePiped() as piped,
        start_plugin(piped, WATCH, name="watch", mode=LaunchMode.DESCRIPTOR, entry=entry) as plugin,
    ):
        yield plugin


def resource(**fields: Any) -> live_pb2.ResourceState:
    return live_pb2.ResourceState(
        **{
            "id": "a/0",
            "name": "thing",
            "resource_type": "Thing",
            "deploy_target": "a",
            "resource_metadata": {"number": "0"},
            "health_status": live_pb2.ResourceState.UNHEALTHY,
            "created_at": 1_700_000_000,
            "updated_at": 1_700_000_000,
            **fields,
        }
    )


async def test_a_resource_of_the_live_state_is_opened() -> None:
    async with watching() as plugin:
        (listed,) = (await plugin.live_state(targets=["a"])).application_live_state.resources
        opened = await plugin.open_resource(listed, application={"size": 1})

    assert opened.manifest.startswith("Thing 0: HEALTHY\n")
    assert opened.language == "text"
    assert opened.HasField("difference")
    assert opened.difference.startswith("-a\n")
    made, again = opened.events
    assert (made.at.seconds, made.kind, made.reason) == (listed.created_at, "Normal", "Made")
    assert not again.HasField("at")
    assert again.count == 2**31 - 1, "more than the wire can say"
    assert [(each.container, each.previous) for each in opened.logs] == [
        ("main", False),
        ("main", True),
    ]
    assert opened.logs[0].text == "line \\udcff0\n"
    assert list(opened.notes) == ["not all is known"]


async def test_the_plugin_is_told_which_lines_are_wanted() -> None:
    async with watching() as plugin:
        opened = await plugin.open_resource(
            resource(), application={"size": 9, "wanted": 2}, container="side", log_lines=2
        )

    assert opened.logs[0].container == "side"
    assert opened.logs[0].text.splitlines() == ["line \\udcff7", "line \\udcff8"]
    assert not opened.HasField("difference"), "unknown is not the same as none"


async def test_a_resource_that_is_gone_is_not_found_and_trouble_is_trouble() -> None:
    async with watching() as plugin:
        with pytest.raises(CallError, match="there is no such thing") as gone:
            await plugin.open_resource(resource(id="b/0"))
        with pytest.raises(CallError) as stranger:
            await plugin.open_resource(resource(deploy_target="z"))
    async with watching(trouble="no answer") as plugin:
        with pytest.raises(CallError, match=r"no answer \(look there\)") as trouble:
            await plugin.open_resource(resource())

    assert gone.value.status == "NOT_FOUND"
    assert stranger.value.status not in {"OK", "NOT_FOUND", "UNIMPLEMENTED"}
    assert trouble.value.status not in {"OK", "NOT_FOUND", "UNIMPLEMENTED"}


async def test_a_plugin_without_the_interface_answers_unimplemented() -> None:
    async with (
        FakePiped() as piped,
        start_plugin(
            piped,
            [executable("pipecd-plugin-wait")],
            name="wait",
            mode=LaunchMode.DESCRIPTOR,
        ) as plugin,
    ):
        with pytest.raises(CallError) as told:
            await plugin.open_resource(resource())

    assert told.value.status == "UNIMPLEMENTED"


def test_an_answer_is_cut_at_lines_and_says_so() -> None:
    line = "x" * 99 + "\n"
    sent = to_details(
        Details(
            manifest=line * 20_000,
            difference=line * 20_000,
            events=[ResourceEvent(message="e" * 10_000, at=datetime.now(UTC)) for _ in range(500)],
            logs=[
                ContainerLog(container="chatty", text="".join(f"{n:099d}\n" for n in range(5000))),
                *(ContainerLog(container=str(n), text="") for n in range(MOST_LOGS)),
            ],
            notes=["n" * 10_000] * 100,
        )
    )

    assert sent.ByteSize() < 4 * 1024 * 1024
    assert set(sent.manifest.splitlines(keepends=True)) == {line}
    assert set(sent.difference.splitlines(keepends=True)) == {line}
    assert len(sent.events) == 200
    last = sent.logs[0].text.splitlines()
    assert last[-1] == f"{4999:099d}", "the last lines are the ones that count"
    assert {len(each) for each in last} == {99}
    assert len(sent.logs[0].text) <= LARGEST_LOG
    assert len(sent.logs) == MOST_LOGS
    told = " ".join(sent.notes)
    for word in ("manifest is cut", "difference is cut", "300 older events", "chatty", "1 more"):
        assert word in told


def test_one_endless_line_is_cut_too() -> None:
    endless = "y" * 3_000_000
    sent = to_details(
        Details(
            manifest=endless,
            difference=endless,
            logs=[ContainerLog(container="c", text=endless)],
        )
    )

    assert 0 < len(sent.manifest) < 2_000_000
    assert 0 < len(sent.difference) < 2_000_000
    assert 0 < len(sent.logs[0].text) <= LARGEST_LOG
