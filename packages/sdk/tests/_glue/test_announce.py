# SPDX-License-Identifier: Apache-2.0
"""What a plugin that watches its platform tells piped, over real gRPC and as a process."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from pipecd_sdk._glue.announce import MOST_AT_ONCE, Announcer
from pipecd_sdk._glue.piped import PipedClient
from pipecd_sdk.testing.piped import FakePiped
from pipecd_sdk.testing.process import LaunchMode, start_plugin
from pipecd_wire.headers import PLUGIN_TOKEN_HEADER
from pipecd_wire.rpc import connect

WATCH = [sys.executable, str(Path(__file__).parent.parent / "watch_plugin.py")]


@asynccontextmanager
async def announcing(piped: FakePiped) -> AsyncIterator[tuple[Announcer, asyncio.Task[None]]]:
    token = [(PLUGIN_TOKEN_HEADER, piped.token)]
    async with connect(piped.address, metadata=lambda: token) as channel:
        announcer = Announcer(PipedClient(channel, plugin="lab", managed=piped.managed))
        task = asyncio.create_task(announcer.run())
        yield announcer, task
        task.cancel()
        await asyncio.wait([task])


async def test_changes_that_come_together_are_sent_together_and_each_once() -> None:
    async with FakePiped() as piped, announcing(piped) as (announcer, _):
        for application_id in ("a", "b", "a", "", "a"):
            announcer.announce(application_id)
        await piped.wait_until(lambda: piped.announced == ["a", "b"])

        announcer.announce("a")
        await piped.wait_until(lambda: piped.announced == ["a", "b", "a"])

    assert piped.calls["AnnounceLiveStates"] == 2


async def test_more_than_a_message_takes_is_sent_in_several() -> None:
    async with FakePiped() as piped, announcing(piped) as (announcer, _):
        for number in range(MOST_AT_ONCE + 1):
            announcer.announce(f"a{number}")
        await piped.wait_until(lambda: len(piped.announced) == MOST_AT_ONCE + 1)

    assert piped.calls["AnnounceLiveStates"] == 2
    assert piped.wrong_calls == []


async def test_what_piped_did_not_take_is_sent_again() -> None:
    async with FakePiped() as piped, announcing(piped) as (announcer, _):
        piped.refuse("AnnounceLiveStates", "UNAVAILABLE")
        announcer.announce("a")
        await piped.wait_until(lambda: piped.announced == ["a"])


async def test_a_piped_that_does_not_know_announcements_is_told_no_more() -> None:
    async with FakePiped() as piped, announcing(piped) as (announcer, task):
        piped.refuse("AnnounceLiveStates", "UNIMPLEMENTED")
        announcer.announce("a")
        async with asyncio.timeout(30):
            await task
        announcer.announce("b")

    assert (piped.announced, piped.calls["AnnounceLiveStates"]) == ([], 1)


def entry(**config: Any) -> dict[str, Any]:
    return {"deployTargets": [{"name": "a", "config": config}]}


async def test_a_plugin_watches_from_its_start() -> None:
    async with (
        FakePiped() as piped,
        start_plugin(piped, WATCH, name="watch", entry=entry(announced=["x", "y"])),
    ):
        await piped.wait_until(lambda: piped.announced == ["x", "y"])


async def test_a_watch_that_fails_is_started_again_and_the_plugin_serves_all_the_time() -> None:
    async with (
        FakePiped() as piped,
        start_plugin(
            piped, WATCH, name="watch", entry=entry(announced=["x"], watchFailures=1)
        ) as plugin,
    ):
        answer = await plugin.live_state(targets=["a"], application={})
        await piped.wait_until(lambda: piped.announced == ["x"])

    assert len(answer.application_live_state.resources) == 1


@pytest.mark.parametrize("mode", [LaunchMode.COMMAND_LINE])
async def test_a_plugin_of_a_go_agent_announces_nothing(mode: LaunchMode) -> None:
    async with (
        FakePiped(managed=False) as piped,
        start_plugin(piped, WATCH, name="watch", mode=mode, entry=entry(announced=["x"])) as plugin,
    ):
        await plugin.live_state(targets=["a"], application={})

    assert piped.calls["AnnounceLiveStates"] == 0
