# SPDX-License-Identifier: Apache-2.0
"""The executable `pipecd-plugin-waitapproval` as piped starts it."""

import asyncio

import pytest

from pipecd_sdk import CommandKind
from pipecd_sdk.testing.piped import FakePiped
from pipecd_sdk.testing.process import LaunchMode, executable, start_plugin
from pipecd_wire.model import deployment_pb2

COMMAND = [executable("pipecd-plugin-waitapproval")]


@pytest.mark.parametrize(
    ("mode", "managed"),
    [(LaunchMode.DESCRIPTOR, True), (LaunchMode.COMMAND_LINE, False)],
    ids=["ours", "go"],
)
async def test_a_command_approves_the_stage(mode: LaunchMode, managed: bool) -> None:
    async with (
        FakePiped(managed=managed) as piped,
        start_plugin(piped, COMMAND, name="waitapproval", mode=mode) as plugin,
        asyncio.TaskGroup() as tasks,
    ):
        waiting = tasks.create_task(plugin.execute("WAIT_APPROVAL", {}, stage_id="s1"))
        await piped.wait_until(lambda: "Waiting for 1 approval" in piped.log("s1").text)

        await piped.send(CommandKind.APPROVE, "s1", by="alice")
        async with asyncio.timeout(30):
            answer = await waiting

    assert answer.status == deployment_pb2.STAGE_SUCCESS
    assert piped.stage_metadata["s1"]["pipecd/stage-approved-users"] == "alice"
    assert piped.log("s1").lines[-1] == "Approved by alice"


async def test_the_planned_stage_carries_the_operation_and_its_operators() -> None:
    async with (
        FakePiped() as piped,
        start_plugin(piped, COMMAND, name="waitapproval") as plugin,
    ):
        (stage,) = await plugin.plan(("WAIT_APPROVAL", {"approvers": ["alice", "bob"]}))

    assert stage.available_operation == 2
    assert list(stage.authorized_operators) == ["alice", "bob"]
