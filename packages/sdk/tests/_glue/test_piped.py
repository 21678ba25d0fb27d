# SPDX-License-Identifier: Apache-2.0
"""What a stage asks of piped, over real gRPC: metadata and commands."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager

import pytest

from pipecd_sdk import CommandKind, PipedError
from pipecd_sdk._glue.piped import (
    DeploymentMetadata,
    PipedClient,
    StageCommandStream,
    StageMetadata,
)
from pipecd_sdk.testing import NOON
from pipecd_sdk.testing.piped import FakePiped
from pipecd_wire.headers import PLUGIN_TOKEN_HEADER
from pipecd_wire.rpc import connect

BOTH = pytest.mark.parametrize("managed", [True, False], ids=["ours", "go"])


@asynccontextmanager
async def client(piped: FakePiped, *, managed: bool | None = None) -> AsyncIterator[PipedClient]:
    token = [(PLUGIN_TOKEN_HEADER, piped.token)]
    async with connect(piped.address, metadata=lambda: token) as channel:
        yield PipedClient(
            channel,
            plugin="lab",
            managed=piped.managed if managed is None else managed,
            poll_interval_seconds=0.02,
        )


async def test_stage_metadata_is_kept_per_stage() -> None:
    async with FakePiped() as piped, client(piped) as asked:
        metadata = StageMetadata(asked, "d1", "s1")

        await metadata.put("a", "1")
        await metadata.put_many({"b": "2", "c": ""})

        assert piped.stage_metadata == {"s1": {"a": "1", "b": "2", "c": ""}}
        assert await metadata.get("b") == "2"
        assert await metadata.get("c") == ""
        assert await metadata.get("d") is None
        assert await StageMetadata(asked, "d1", "s2").get("a") is None


async def test_deployment_metadata_is_kept_per_plugin() -> None:
    async with FakePiped() as piped, client(piped) as asked:
        metadata = DeploymentMetadata(asked, "d1")

        await metadata.put("a", "1")
        await metadata.put_many({"b": "2"})

        assert piped.deployment_metadata == {("d1", "lab"): {"a": "1", "b": "2"}}
        assert await metadata.get("a") == "1"
        assert await metadata.get("z") is None


async def test_metadata_that_piped_has_sent_is_not_asked_for_until_it_is_stored_anew() -> None:
    async with FakePiped() as piped, client(piped) as asked:
        metadata = DeploymentMetadata(asked, "d1", {"a": "1", "b": "2"})

        assert await metadata.get("a") == "1"
        assert await metadata.get("z") is None
        assert piped.calls["GetDeploymentPluginMetadata"] == 0
        await metadata.put("a", "3")
        await metadata.put_many({"z": "4"})

        assert [await metadata.get(key) for key in ("a", "b", "z")] == ["3", "2", "4"]
        assert piped.calls["GetDeploymentPluginMetadata"] == 2


async def test_a_time_is_kept_in_unix_seconds() -> None:
    async with FakePiped() as piped, client(piped) as asked:
        metadata = StageMetadata(asked, "d1", "s1")

        await metadata.get_or_set_time("startTime", lambda: NOON)

        assert piped.stage_metadata["s1"]["startTime"] == "1704196800"
        assert await metadata.get_or_set_time("startTime", lambda: NOON.replace(year=2030)) == NOON


async def test_a_piped_that_is_away_for_a_moment_is_asked_again() -> None:
    async with FakePiped() as piped, client(piped) as asked:
        piped.refuse("PutStageMetadata", "UNAVAILABLE", "UNKNOWN", "UNAVAILABLE")

        await StageMetadata(asked, "d1", "s1").put("a", "1")

        assert piped.stage_metadata == {"s1": {"a": "1"}}


async def test_what_is_kept_waits_for_as_long_as_nobody_is_there() -> None:
    """An outage of the control plane in the moment a script begins must not fail its stage."""
    async with FakePiped() as piped, client(piped) as asked:
        piped.refuse("PutStageMetadata", *["UNAVAILABLE", "DEADLINE_EXCEEDED"] * 4)

        await StageMetadata(asked, "d1", "s1").put("key", "value")

        assert piped.stage_metadata["s1"] == {"key": "value"}
        assert piped.calls["PutStageMetadata"] == 9


async def test_a_refusal_is_an_error_at_once() -> None:
    async with FakePiped() as piped, client(piped) as asked:
        piped.refuse("PutStageMetadata", "FAILED_PRECONDITION")

        with pytest.raises(PipedError, match="FAILED_PRECONDITION: refused by the test"):
            await StageMetadata(asked, "d1", "s1").put("a", "1")

        assert piped.calls["PutStageMetadata"] == 1


@BOTH
async def test_commands_come_in_order_and_each_once(managed: bool) -> None:
    async with FakePiped(managed=managed) as piped, client(piped) as asked:
        await piped.send(CommandKind.APPROVE, "s1", by="alice")
        await piped.send(CommandKind.APPROVE, "other", by="mallory")
        async with asyncio.timeout(30), aclosing(StageCommandStream(asked, "d1", "s1")) as commands:
            first = await anext(commands)
            await piped.send(CommandKind.SKIP, "s1", by="bob")
            second = await anext(commands)

            assert (first.kind, first.commander) == (CommandKind.APPROVE, "alice")
            assert (second.kind, second.commander) == (CommandKind.SKIP, "bob")


async def test_ours_are_watched_and_not_polled() -> None:
    async with FakePiped() as piped, client(piped) as asked:
        await piped.send(CommandKind.APPROVE, "s1", by="alice")
        async with asyncio.timeout(30), aclosing(StageCommandStream(asked, "d1", "s1")) as commands:
            await anext(commands)

        assert piped.calls["WatchStageCommands"] == 1
        assert piped.calls["ListStageCommands"] == 0


async def test_a_broken_watch_is_opened_again_and_repeats_nothing() -> None:
    async with FakePiped() as piped, client(piped) as asked:
        piped.refuse("WatchStageCommands", "UNAVAILABLE", "INTERNAL")
        await piped.send(CommandKind.APPROVE, "s1", by="alice")
        async with asyncio.timeout(30), aclosing(StageCommandStream(asked, "d1", "s1")) as commands:
            assert (await anext(commands)).commander == "alice"
            await piped.break_watches()
            await piped.send(CommandKind.APPROVE, "s1", by="bob")

            assert (await anext(commands)).commander == "bob"


async def test_without_a_watch_commands_are_polled() -> None:
    async with FakePiped(managed=False) as piped, client(piped, managed=True) as asked:
        await piped.send(CommandKind.APPROVE, "s1", by="alice")
        async with asyncio.timeout(30), aclosing(StageCommandStream(asked, "d1", "s1")) as commands:
            assert (await anext(commands)).commander == "alice"


async def test_a_poll_that_fails_is_repeated() -> None:
    async with FakePiped(managed=False) as piped, client(piped) as asked:
        piped.refuse("ListStageCommands", "UNAVAILABLE", "UNKNOWN")
        await piped.send(CommandKind.APPROVE, "s1", by="alice")
        async with asyncio.timeout(30), aclosing(StageCommandStream(asked, "d1", "s1")) as commands:
            assert (await anext(commands)).commander == "alice"


@BOTH
async def test_a_cancelled_reader_leaves_nothing_open(managed: bool) -> None:
    async with FakePiped(managed=managed) as piped, client(piped) as asked:
        commands = StageCommandStream(asked, "d1", "s1")

        async def read() -> None:
            async for _ in commands:
                pass

        async with asyncio.TaskGroup() as tasks:
            reading = tasks.create_task(read())
            name = "WatchStageCommands" if managed else "ListStageCommands"
            async with asyncio.timeout(30):
                while not piped.calls[name]:  # noqa: ASYNC110 - a counter has no event
                    await asyncio.sleep(0.01)
            reading.cancel()
        await commands.aclose()

        with pytest.raises(StopAsyncIteration):
            await anext(commands)
