# SPDX-License-Identifier: Apache-2.0
"""GetLivestate and GetPlanPreview as an agent sees them, ours and upstream's."""

import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from pipecd_sdk.testing.piped import FakePiped
from pipecd_sdk.testing.process import (
    LaunchMode,
    PluginProcess,
    StartError,
    example_deployment,
    executable,
    start_plugin,
)
from pipecd_wire.model import application_live_state_pb2 as live_pb2
from pipecd_wire.model import application_pb2, deployment_pb2
from pipecd_wire.pipecd.plugin import plugin_pb2
from pipecd_wire.rpc import CallError, call
from pipecd_wire.rpc.validation import check

WATCH = [sys.executable, str(Path(__file__).parent.parent / "watch_plugin.py")]
AGENTS = pytest.mark.parametrize("managed", [True, False], ids=["ours", "go"])


@asynccontextmanager
async def watching(
    targets: dict[str, dict[str, Any]], *, managed: bool = True
) -> AsyncIterator[tuple[FakePiped, PluginProcess]]:
    entry = {"deployTargets": [{"name": name, "config": each} for name, each in targets.items()]}
    mode = LaunchMode.DESCRIPTOR if managed else LaunchMode.COMMAND_LINE
    async with (
        FakePiped(managed=managed) as piped,
        start_plugin(piped, WATCH, name="watch", mode=mode, entry=entry) as plugin,
    ):
        yield piped, plugin


def deployment_to(*targets: str) -> deployment_pb2.Deployment:
    made = example_deployment()
    made.deploy_targets_by_plugin["watch"].deploy_targets.extend(targets)
    return made


@AGENTS
async def test_what_runs_is_told_with_all_that_an_agent_demands(managed: bool) -> None:
    """A Go agent crashes without a sync state, and its control plane refuses a time of 0."""
    before = int(time.time())
    async with watching({"a": {"resources": 2}}, managed=managed) as (_, plugin):
        answer = await plugin.live_state(targets=["a"], application={"wanted": 2})

    first, second = answer.application_live_state.resources
    assert check(answer) is None
    assert (first.id, first.deploy_target, first.plugin_name) == ("a/0", "a", "watch")
    assert (first.resource_type, list(first.parent_ids)) == ("Thing", ["root"])
    assert first.health_status == live_pb2.ResourceState.HEALTHY
    assert first.health_description == "as told"
    assert first.resource_metadata["number"] == "0"
    assert first.created_at >= before
    assert first.updated_at >= before
    assert second.name == "thing \\udcff1", "a name that is no Unicode is told all the same"
    assert answer.application_live_state.health_status == live_pb2.ApplicationLiveState.HEALTHY
    assert answer.HasField("sync_state")
    assert answer.sync_state.status == application_pb2.SYNCED
    assert answer.sync_state.timestamp >= before


async def test_the_sync_state_is_there_even_when_nothing_runs() -> None:
    async with watching({"a": {"resources": 0}}) as (_, plugin):
        answer = await plugin.live_state(targets=["a"])

    assert answer.HasField("sync_state")
    assert answer.sync_state.timestamp > 0
    assert answer.application_live_state.health_status == live_pb2.ApplicationLiveState.HEALTHY


@pytest.mark.parametrize(
    ("healths", "expected"),
    [
        (["HEALTHY", "HEALTHY"], live_pb2.ApplicationLiveState.HEALTHY),
        (["HEALTHY", "UNHEALTHY"], live_pb2.ApplicationLiveState.OTHER),
        (["UNHEALTHY", "UNKNOWN"], live_pb2.ApplicationLiveState.UNKNOWN),
    ],
)
async def test_the_health_of_all_is_upstreams(healths: list[str], expected: int) -> None:
    targets = {str(number): {"health": health} for number, health in enumerate(healths)}
    async with watching(targets) as (_, plugin):
        answer = await plugin.live_state(targets=list(targets))

    assert answer.application_live_state.health_status == expected


async def test_drift_of_one_target_is_drift_of_the_application_with_its_name() -> None:
    targets = {"a": {}, "b": {"sync": "OUT_OF_SYNC", "resources": 3}}
    async with watching(targets) as (_, plugin):
        answer = await plugin.live_state(targets=["a", "b"], application={"wanted": 1})

    assert answer.sync_state.status == application_pb2.OUT_OF_SYNC
    assert answer.sync_state.short_reason == "b: 3 of 1"
    assert answer.sync_state.reason == "b: there are 3"


async def test_a_target_that_cannot_be_looked_at_hides_no_other() -> None:
    targets = {"a": {}, "b": {"trouble": "no answer"}}
    async with watching(targets) as (_, plugin):
        answer = await plugin.live_state(targets=["a", "b"])

    assert [each.id for each in answer.application_live_state.resources] == ["a/0"]
    assert answer.sync_state.status == application_pb2.UNKNOWN
    assert answer.sync_state.reason == "b: no answer (look there)"


async def test_wrong_options_of_the_application_are_its_sync_state() -> None:
    """An error would tell nobody: the author of the file looks at the application."""
    async with watching({"a": {}}) as (_, plugin):
        answer = await plugin.live_state(targets=["a"], application={"wanted": "many"})

    assert answer.sync_state.status == application_pb2.INVALID_CONFIG
    assert "spec.plugins.watch.wanted" in answer.sync_state.reason


async def test_a_bug_in_a_plugin_is_an_error_and_no_state() -> None:
    async with watching({"a": {"trouble": "bug"}}) as (_, plugin):
        with pytest.raises(CallError) as told:
            await plugin.live_state(targets=["a"])

    assert told.value.status == "INTERNAL"


async def test_an_answer_never_outgrows_what_a_go_agent_takes() -> None:
    async with watching({"a": {"resources": 3000}}) as (_, plugin):
        answer = await plugin.live_state(targets=["a"], application={"size": 2000})
        preview = await plugin.plan_preview(targets=["a"], application={"size": 1_000_000})

    assert 0 < len(answer.application_live_state.resources) < 3000
    assert answer.ByteSize() < 4 * 1024 * 1024
    assert preview.ByteSize() < 4 * 1024 * 1024
    assert preview.results[0].details.decode().endswith("more bytes are not shown\n")


@AGENTS
async def test_a_preview_has_a_result_for_each_target(managed: bool) -> None:
    async with watching({"a": {}, "b": {"resources": 2}}, managed=managed) as (_, plugin):
        answer = await plugin.plan_preview(targets=["a", "b"], application={"wanted": 2, "size": 1})

    first, second = answer.results
    assert (first.deploy_target, first.summary, first.no_change) == ("a", "2 wanted", False)
    assert (first.details, first.diff_language) == (b"+ a line\n", "diff")
    assert (second.deploy_target, second.no_change) == ("b", True)


async def test_a_preview_that_fails_names_every_target_that_failed() -> None:
    async with watching({"a": {"trouble": "gone"}, "b": {"trouble": "shut"}}) as (_, plugin):
        with pytest.raises(CallError) as told:
            await plugin.plan_preview(targets=["a", "b"])

    assert told.value.message == "a: gone; b: shut"


async def test_no_target_and_an_unknown_target_are_refused_as_a_go_plugin_does() -> None:
    async with watching({"a": {}}) as (_, plugin):
        for asking in (plugin.live_state, plugin.plan_preview):
            with pytest.raises(CallError) as none:
                await asking(targets=[])
            with pytest.raises(CallError) as unknown:
                await asking(targets=["z"])

            assert none.value.status == "INVALID_ARGUMENT"
            assert unknown.value.status == "INTERNAL"


async def test_without_any_deploy_target_the_plugin_does_not_start() -> None:
    with pytest.raises(StartError, match="needs at least one"):
        async with watching({}):
            pass


@AGENTS
async def test_a_plugin_without_the_interfaces_answers_unimplemented(managed: bool) -> None:
    mode = LaunchMode.DESCRIPTOR if managed else LaunchMode.COMMAND_LINE
    async with (
        FakePiped(managed=managed) as piped,
        start_plugin(piped, [executable("pipecd-plugin-wait")], name="wait", mode=mode) as plugin,
    ):
        for asking in (plugin.live_state, plugin.plan_preview):
            with pytest.raises(CallError) as told:
                await asking()

            assert told.value.status == "UNIMPLEMENTED"


@AGENTS
async def test_a_stage_has_options_of_the_application_and_shared_objects(managed: bool) -> None:
    async with watching({"a": {}, "b": {}}, managed=managed) as (piped, plugin):
        piped.shared_metadata["deployment-1", "DeploymentNotification"] = "{}"
        answer = await plugin.execute(
            "WATCH_SYNC",
            stage_id="s1",
            deployment=deployment_to("a", "b"),
            application={"wanted": 7},
        )

    assert answer.status == 2
    assert piped.log("s1").lines == [
        "wanted: 7",
        "before: None",
        r"after: b'\x00\xff'",
        "notification: {}",
        "[a] at work",
        "[b] at work",
    ]
    assert piped.shared_objects == {("application-1", "watch", "seen"): b"\x00\xff"}


async def test_each_target_has_a_result_and_the_reason_names_those_that_failed() -> None:
    async with watching({"a": {}, "b": {"trouble": "disk full"}}) as (piped, plugin):
        answer = await plugin.execute(
            "WATCH_SYNC", stage_id="s1", deployment=deployment_to("a", "b")
        )

    assert answer.message == "1 of 2 deploy targets failed: b: disk full"
    assert piped.stage_metadata["s1"]["pipecd/stage-targets"] == (
        '{"a": {"status": "SUCCESS", "reason": ""},'
        ' "b": {"status": "FAILURE", "reason": "disk full"}}'
    )


async def test_wrong_options_of_the_application_fail_the_stage_with_their_place() -> None:
    async with watching({"a": {}}) as (_, plugin):
        answer = await plugin.execute(
            "WATCH_SYNC", deployment=deployment_to("a"), application={"wanted": []}
        )

    assert answer.status == 3
    assert answer.message.startswith("spec.plugins.watch.wanted: expected")


async def test_a_tool_is_installed_through_piped(tmp_path: Path) -> None:
    async with watching({"a": {}}) as (piped, plugin):
        piped.tools = tmp_path
        answer = await plugin.execute("WATCH_TOOL", {}, deployment=deployment_to("a"))

    assert answer.status == 2
    assert (tmp_path / "greet-1.2").read_text() == "#!/bin/sh\necho 1.2"


async def test_a_tool_that_cannot_be_installed_fails_the_stage_with_the_reason() -> None:
    async with watching({"a": {}}) as (_, plugin):
        answer = await plugin.execute("WATCH_TOOL", {}, deployment=deployment_to("a"))

    assert answer.status == 3
    assert "greet 1.2 could not be installed: the test has no folder" in answer.message


async def test_the_options_of_an_application_have_a_schema_and_are_checked() -> None:
    async with watching({"a": {}}) as (_, plugin):
        schemas = await call(plugin.configs.GetSchemas, plugin_pb2.GetSchemasRequest())
        request = plugin_pb2.CheckConfigRequest(application_config=b'{"wanted": "x"}')
        checked = await call(plugin.configs.CheckConfig, request)

    assert '"wanted"' in schemas.application_config
    assert [each.path for each in checked.faults] == ["wanted"]
