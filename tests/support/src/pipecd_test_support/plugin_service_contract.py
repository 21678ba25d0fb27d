# SPDX-License-Identifier: Apache-2.0
"""What every piped promises to a plugin; the fake of the SDK and the real one both run it."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final

import pytest

from pipecd_sdk import CommandKind, Metadata, PipedError, SharedObjects, StageFailedError, Tool
from pipecd_sdk._glue.management import announce
from pipecd_sdk._glue.piped import (
    PipedClient,
    PipedTools,
    StageCommandStream,
    StageMetadata,
    StageSecrets,
    get_shared_metadata,
)
from pipecd_sdk.testing import NOON
from pipecd_test_support.plugin_world import wait_for
from pipecd_wire.model.logblock_pb2 import LogBlock
from pipecd_wire.pipecd.plugin import plugin_pb2, plugin_pb2_grpc
from pipecd_wire.pluginservice import service_pb2
from pipecd_wire.rpc import CallError, Channel, call

PLUGIN: Final = "odd"
DEPLOYMENT: Final = "d1"
STAGE: Final = "s-WAIT"
APPLICATION: Final = "a1"
PORT: Final = 7001
"""Where the plugin says that it serves."""
PING_INTERVAL_SECONDS: Final = 2.5
SECRETS: Final = {"password": "hunter22"}
LIMIT_SECONDS: Final = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class PipedUnderTest:
    """A piped that runs the stage STAGE in the plugin PLUGIN."""

    client: PipedClient
    """As the plugin calls it, with its token."""
    stranger: Channel
    """To the same port, without the token."""
    send: Callable[[CommandKind, str], Awaitable[None]]
    """Sends a command to the stage: what, by whom."""
    read_lines: Callable[[], Sequence[str]]
    """The lines of the stage's log that have arrived."""


class MetadataContract:
    """What every implementation of `Metadata` promises."""

    async def test_a_value_is_found_again(self, metadata: Metadata) -> None:
        await metadata.put("a", "1")

        assert await metadata.get("a") == "1"

    async def test_a_key_without_a_value_has_none(self, metadata: Metadata) -> None:
        assert await metadata.get("a") is None

    async def test_an_empty_value_is_a_value(self, metadata: Metadata) -> None:
        await metadata.put("a", "")

        assert await metadata.get("a") == ""

    async def test_several_values_join_and_replace_those_before(self, metadata: Metadata) -> None:
        await metadata.put_many({"a": "1", "b": "2"})
        await metadata.put_many({"b": "3", "c": "4"})

        assert [await metadata.get(key) for key in "abc"] == ["1", "3", "4"]

    async def test_a_time_stays_the_first(self, metadata: Metadata) -> None:
        first = await metadata.get_or_set_time("startTime", lambda: NOON)
        second = await metadata.get_or_set_time("startTime", lambda: NOON.replace(year=2030))

        assert first == second == NOON
        assert await metadata.get("startTime") == str(int(NOON.timestamp()))

    async def test_a_value_that_is_no_time_fails_the_stage(self, metadata: Metadata) -> None:
        await metadata.put("startTime", "noon")

        with pytest.raises(StageFailedError, match="is no time"):
            await metadata.get_or_set_time("startTime", lambda: NOON)


class SharedObjectsContract:
    """What every implementation of `SharedObjects` promises."""

    async def test_an_object_is_found_again(self, objects: SharedObjects) -> None:
        await objects.put("last", b"\x00\xff")

        assert await objects.get("last") == b"\x00\xff"

    async def test_a_key_without_an_object_has_none(self, objects: SharedObjects) -> None:
        assert await objects.get("last") is None

    async def test_the_later_object_stays(self, objects: SharedObjects) -> None:
        await objects.put("last", b"1")
        await objects.put("last", b"")

        assert await objects.get("last") == b""


class PluginServiceContract:
    """What every piped promises to the plugin that it has started."""

    async def test_ready_is_answered_with_the_interval_of_pings(
        self, piped: PipedUnderTest
    ) -> None:
        interval = await announce(piped.client, version="1", port=PORT, stages_without_files=[])
        await call(piped.client.management.Ping, plugin_pb2.PingRequest())

        assert interval == PING_INTERVAL_SECONDS

    async def test_management_is_for_the_plugin_alone(self, piped: PipedUnderTest) -> None:
        stub = plugin_pb2_grpc.PluginManagementServiceStub(piped.stranger)

        with pytest.raises(CallError) as caught:
            await call(stub.Ping, plugin_pb2.PingRequest())

        assert caught.value.status == "UNAUTHENTICATED"

    async def test_the_metadata_of_two_stages_is_apart(self, piped: PipedUnderTest) -> None:
        await StageMetadata(piped.client, DEPLOYMENT, STAGE).put("a", "1")

        assert await StageMetadata(piped.client, DEPLOYMENT, "s-OTHER").get("a") is None

    async def test_what_piped_itself_does_not_keep_is_none(self, piped: PipedUnderTest) -> None:
        assert await get_shared_metadata(piped.client, DEPLOYMENT, "nothing") is None

    async def test_lines_of_the_log_arrive_in_order(self, piped: PipedUnderTest) -> None:
        lines = ["one", "two", "three"]
        blocks = [
            LogBlock(index=index, log=line, created_at=1)
            for index, line in enumerate(lines, start=1)
        ]

        await call(
            piped.client.service.ReportStageLogs,
            service_pb2.ReportStageLogsRequest(
                deployment_id=DEPLOYMENT, stage_id=STAGE, blocks=blocks[:1]
            ),
        )
        await call(
            piped.client.service.ReportStageLogsFromLastCheckpoint,
            service_pb2.ReportStageLogsFromLastCheckpointRequest(
                deployment_id=DEPLOYMENT, stage_id=STAGE, blocks=blocks[1:], completed=True
            ),
        )

        await wait_for(lambda: list(piped.read_lines()) == lines)

    async def test_commands_come_each_once_those_from_before_first(
        self, piped: PipedUnderTest
    ) -> None:
        await piped.send(CommandKind.APPROVE, "alice")
        stream = StageCommandStream(piped.client, DEPLOYMENT, STAGE)
        async with asyncio.timeout(LIMIT_SECONDS), aclosing(stream) as commands:
            first = await anext(commands)
            await piped.send(CommandKind.SKIP, "bob")
            second = await anext(commands)

        assert [(each.kind, each.commander) for each in (first, second)] == [
            (CommandKind.APPROVE, "alice"),
            (CommandKind.SKIP, "bob"),
        ]

    async def test_commands_can_be_listed_as_well(self, piped: PipedUnderTest) -> None:
        """A plugin of upstream's asks for them again and again."""
        await piped.send(CommandKind.APPROVE, "alice")
        request = service_pb2.ListStageCommandsRequest(deployment_id=DEPLOYMENT, stage_id=STAGE)

        lists = [await call(piped.client.service.ListStageCommands, request) for _ in range(2)]

        assert [[each.commander for each in answer.commands] for answer in lists] == [["alice"]] * 2

    async def test_a_secret_is_opened_for_the_running_stage(self, piped: PipedUnderTest) -> None:
        secrets = StageSecrets(piped.client, DEPLOYMENT)

        assert await secrets.open("password") == "hunter22"

    async def test_a_secret_that_is_none_fails_the_stage(self, piped: PipedUnderTest) -> None:
        with pytest.raises(StageFailedError, match="there is no secret 'other'"):
            await StageSecrets(piped.client, DEPLOYMENT).open("other")

    async def test_a_tool_is_installed_once_and_can_be_run(self, piped: PipedUnderTest) -> None:
        tools = PipedTools(piped.client)
        script = 'printf "#!/bin/sh\\necho {{ .Name }} {{ .Version }}\\n" > "{{ .OutPath }}"'
        tool = Tool(name="hello", version="1", script=script)

        first, second = await tools.install(tool), await tools.install(tool)

        assert first == second
        assert first.stat().st_mode & 0o111
        assert first.read_text() == "#!/bin/sh\necho hello 1\n"

    async def test_a_tool_that_installs_nothing_is_refused(self, piped: PipedUnderTest) -> None:
        with pytest.raises((StageFailedError, PipedError)):
            await PipedTools(piped.client).install(Tool(name="none", version="1", script="true"))
