# SPDX-License-Identifier: Apache-2.0
"""Commands that ask for a plan preview, and the answers they get."""

import asyncio
import base64
import json
from typing import Any

import pytest

from pipecd_model.errors import SourceError
from pipecd_piped.controlplane.state import ControlPlaneState, StateChange
from pipecd_piped.preview.handler import AT_ONCE, MOST_OUTPUT, PlanPreviewHandler
from pipecd_piped.report.commands import CommandInbox
from pipecd_wire.model.command_pb2 import COMMAND_FAILED, COMMAND_SUCCEEDED, Command
from pipecd_wire.model.common_pb2 import PIPELINE
from pipecd_wire.model.planpreview_pb2 import (
    ApplicationPlanPreviewResult,
    PluginPlanPreviewResult,
)


class World:
    def __init__(self) -> None:
        self.state = ControlPlaneState()
        self.state.replace(applications=[], deployments=[], commands=[])
        self.answer: Any = []
        self.reports: asyncio.Queue[Any] = asyncio.Queue()
        self.built = 0
        self.started = asyncio.Event()

    async def build(self, _wanted: Any, /) -> list[ApplicationPlanPreviewResult]:
        self.built += 1
        self.started.set()
        if isinstance(self.answer, BaseException):
            raise self.answer
        if self.answer is None:
            await asyncio.sleep(3600)
        return list(self.answer)

    def put(self, key: str, rpc: str, message: Any) -> None:
        assert (key, rpc) == (message.command_id, "ReportCommandHandled")
        self.reports.put_nowait(message)

    def ask(
        self,
        command_id: str = "c1",
        seconds: int = 60,
        *,
        branch: str = "feature",
        commit: str = "h1",
        at: int = 1,
    ) -> None:
        wanted = Command.BuildPlanPreview(
            repository_id="r", timeout=seconds, head_branch=branch, head_commit=commit
        )
        command = Command(
            id=command_id,
            type=Command.BUILD_PLAN_PREVIEW,
            build_plan_preview=wanted,
            created_at=at,
        )
        self.state.merge(StateChange(commands=(command,)))

    async def report(self) -> tuple[int, dict[str, Any]]:
        """The next answer: its status, and its output."""
        async with asyncio.timeout(30):
            message = await self.reports.get()
        return message.status, json.loads(message.output)


@pytest.fixture
async def world() -> Any:
    made = World()
    handler = PlanPreviewHandler(
        piped_id="p1",
        state=made.state,
        builder=made,
        commands=CommandInbox(made.state, made),  # type: ignore[arg-type]
    )
    task = asyncio.create_task(handler.run())
    yield made
    task.cancel()
    await asyncio.wait([task])


async def test_an_answer_is_the_plain_json_of_the_go_implementation(world: World) -> None:
    plan = PluginPlanPreviewResult(plugin_name="files", plan_summary=b"1 file")
    world.answer = [
        ApplicationPlanPreviewResult(
            application_id="a", sync_strategy=PIPELINE, plugin_plan_results=[plan], created_at=7
        )
    ]
    world.ask()

    status, output = await world.report()

    assert status == COMMAND_SUCCEEDED
    assert output == {
        "command_id": "c1",
        "piped_id": "p1",
        "results": [
            {
                "application_id": "a",
                "sync_strategy": int(PIPELINE),
                "plugin_plan_results": [{"plugin_name": "files", "plan_summary": "MSBmaWxl"}],
                "created_at": 7,
            }
        ],
    }


async def test_a_failure_is_an_answer_too(world: World) -> None:
    world.answer = SourceError("no such branch", hint="push it first")
    world.ask()

    status, output = await world.report()

    assert status == COMMAND_FAILED
    assert output["error"] == "no such branch (push it first)"


async def test_a_bug_of_ours_leaves_nobody_waiting(world: World) -> None:
    world.answer = RuntimeError("oops")
    world.ask()

    status, output = await world.report()

    assert status == COMMAND_FAILED
    assert "bug" in output["error"]


async def test_a_preview_that_takes_too_long_says_so(world: World) -> None:
    world.answer = None
    world.ask(seconds=1)

    status, output = await world.report()

    assert status == COMMAND_FAILED
    assert output["error"] == "the preview took longer than 1s"


async def test_a_command_is_answered_once(world: World) -> None:
    world.ask()
    await world.report()
    world.ask()
    world.ask("c2")

    _, output = await world.report()

    assert output["command_id"] == "c2"
    assert world.built == 2


async def test_a_preview_that_is_too_large_for_a_report_is_cut(world: World) -> None:
    large = PluginPlanPreviewResult(plugin_name="k8s", plan_details=b"x" * 20 * 2**20)
    small = PluginPlanPreviewResult(plugin_name="ecs", plan_details=b"one task")
    world.answer = [
        ApplicationPlanPreviewResult(application_id=each.plugin_name, plugin_plan_results=[each])
        for each in (large, small)
    ]
    world.ask()

    async with asyncio.timeout(30):
        message = await world.reports.get()

    assert message.status == COMMAND_SUCCEEDED
    assert len(message.output) < MOST_OUTPUT
    first, second = (
        each["plugin_plan_results"][0] for each in json.loads(message.output)["results"]
    )
    assert b"the rest is left out" in base64.b64decode(first["plan_details"])
    assert base64.b64decode(second["plan_details"]) == b"one task"


async def test_a_preview_that_cannot_be_cut_says_so(world: World) -> None:
    world.answer = [ApplicationPlanPreviewResult(application_id="x" * MOST_OUTPUT)]
    world.ask()

    status, answer = await world.report()

    assert status == COMMAND_FAILED
    assert answer["error"] == "the preview is too large to be told"


async def test_a_newer_push_ends_the_preview_of_the_older_commit(world: World) -> None:
    world.answer = None
    world.ask("old", commit="h1")
    await world.started.wait()
    world.answer = []

    world.ask("new", commit="h2345678", at=2)

    (status, output), (newer, _) = await world.report(), await world.report()
    assert status == COMMAND_FAILED
    assert output["command_id"] == "old"
    assert output["error"] == (
        "ended, because the newer commit h234567 was pushed to feature: see the preview of that one"
    )
    assert newer == COMMAND_SUCCEEDED


async def test_a_preview_that_waits_for_its_turn_is_ended_too(world: World) -> None:
    world.answer = None
    for number in range(AT_ONCE):
        world.ask(f"busy{number}", branch=f"b{number}")
    world.ask("old", commit="h1")
    world.ask("new", commit="h2", at=2)

    _, output = await world.report()

    assert output["command_id"] == "old"


@pytest.mark.parametrize("other", [{"branch": "another", "commit": "h2"}, {"commit": "h1"}])
async def test_another_branch_and_the_same_commit_end_nothing(
    world: World, other: dict[str, str]
) -> None:
    world.answer = None
    world.ask("first")
    await world.started.wait()
    world.answer = []
    world.ask("second", at=2, **other)  # type: ignore[arg-type]

    _, output = await world.report()

    assert output["command_id"] == "second"
    assert "error" not in output
