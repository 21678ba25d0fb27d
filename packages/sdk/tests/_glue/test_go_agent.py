# SPDX-License-Identifier: Apache-2.0
"""The checklist of a plugin that runs under upstream's agent, sentence by sentence.

Nothing of plugin management is there: no invitation, no Ready, no watch.
"""

import asyncio
import json
import shutil
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
import trustme

from pipecd_sdk.testing.piped import FakePiped
from pipecd_sdk.testing.process import (
    LaunchMode,
    PluginProcess,
    example_deployment,
    executable,
    start_plugin,
)
from pipecd_wire.model import deployment_pb2
from pipecd_wire.pipecd.plugin import plugin_pb2
from pipecd_wire.plugin.deploymentapi import api_pb2
from pipecd_wire.plugin.livestateapi import api_pb2 as livestate_pb2
from pipecd_wire.plugin.livestateapi import api_pb2_grpc as livestate_grpc
from pipecd_wire.rpc import CallError, call

LAB = [sys.executable, str(Path(__file__).parent.parent / "lab_plugin.py")]
FINAL = {2, 3, 5, 6}


@asynccontextmanager
async def under_go(
    command: Sequence[str | Path] = LAB, name: str = "lab"
) -> AsyncIterator[tuple[FakePiped, PluginProcess]]:
    async with (
        FakePiped(managed=False) as piped,
        start_plugin(piped, command, name=name, mode=LaunchMode.COMMAND_LINE) as plugin,
    ):
        yield piped, plugin


@pytest.mark.parametrize(
    ("name", "stages"),
    [
        ("wait", ["WAIT"]),
        ("waitapproval", ["WAIT_APPROVAL"]),
        (
            "scriptrun",
            ["SCRIPT_RUN", "SCRIPT_RUN_ROLLBACK", "CUSTOM_SYNC", "CUSTOM_SYNC_ROLLBACK"],
        ),
        (
            "dummy",
            [
                "DUMMY_SYNC",
                "DUMMY_CANARY_ROLLOUT",
                "DUMMY_PRIMARY_ROLLOUT",
                "DUMMY_CANARY_CLEAN",
                "DUMMY_ROLLBACK",
            ],
        ),
    ],
)
async def test_each_plugin_starts_with_upstreams_command_line_and_names_its_stages(
    name: str, stages: list[str]
) -> None:
    async with under_go([executable(f"pipecd-plugin-{name}")], name) as (_, plugin):
        request = api_pb2.FetchDefinedStagesRequest()
        answer = await call(plugin.deployments.FetchDefinedStages, request)

    assert list(answer.stages) == stages


async def test_both_families_of_localhost_are_served() -> None:
    async with under_go() as (_, plugin):
        with socket.create_connection(("127.0.0.1", plugin.port), timeout=10):
            pass
        if socket.has_ipv6 and _has_loopback_6():
            with socket.create_connection(("::1", plugin.port), timeout=10):
                pass


def _has_loopback_6() -> bool:
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


async def test_planned_stages_are_as_the_agent_wants_them() -> None:
    before = int(time.time())
    async with under_go() as (_, plugin):
        request = api_pb2.BuildPipelineSyncStagesRequest(rollback=True)
        request.stages.add(name="LAB_TELL", index=4, desc="Tell", timeout="6h0m0s", config=b"{}")
        request.stages.add(name="LAB_WAIT", index=7, timeout="6h0m0s")
        answer = await call(plugin.deployments.BuildPipelineSyncStages, request)

    assert [(each.name, each.index, each.desc) for each in answer.stages] == [
        ("LAB_TELL", 4, "Tell"),
        ("LAB_WAIT", 7, ""),
    ]
    for stage in answer.stages:
        assert stage.id == ""
        assert stage.status == 0
        assert stage.available_operation == 3
        assert before <= stage.created_at <= time.time()
        assert before <= stage.updated_at <= time.time()
        assert not stage.rollback


async def test_a_stage_plugin_has_no_versions_no_strategy_and_no_quick_sync() -> None:
    given = api_pb2.PlanPluginInput(deployment=example_deployment())
    async with under_go() as (_, plugin):
        versions = await call(
            plugin.deployments.DetermineVersions, api_pb2.DetermineVersionsRequest(input=given)
        )
        strategy = await call(
            plugin.deployments.DetermineStrategy, api_pb2.DetermineStrategyRequest(input=given)
        )
        stages = await call(
            plugin.deployments.BuildQuickSyncStages,
            api_pb2.BuildQuickSyncStagesRequest(rollback=True),
        )

    assert list(versions.versions) == []
    assert strategy.unsupported
    assert list(stages.stages) == []


async def test_a_platform_has_versions_and_wants_the_pipeline() -> None:
    given = api_pb2.PlanPluginInput(deployment=example_deployment())
    async with under_go([executable("pipecd-plugin-dummy")], "dummy") as (_, plugin):
        versions = await call(
            plugin.deployments.DetermineVersions, api_pb2.DetermineVersionsRequest(input=given)
        )
        strategy = await call(
            plugin.deployments.DetermineStrategy, api_pb2.DetermineStrategyRequest(input=given)
        )

    assert [(each.name, each.version) for each in versions.versions] == [("dummy", "0123456")]
    assert (strategy.unsupported, strategy.sync_strategy) == (False, 2)
    assert strategy.summary == "Pipeline: chosen by the plugin 'dummy'", "a Go agent shows it"


@pytest.mark.parametrize("outcome", ["", "fail", "skip", "exit", "bug"])
async def test_execute_stage_answers_a_final_status_and_can_be_called_again(outcome: str) -> None:
    async with under_go() as (_, plugin):
        first = await plugin.execute("LAB_TELL", {"outcome": outcome}, stage_id="s1")
        second = await plugin.execute("LAB_TELL", {"outcome": outcome}, stage_id="s1")

    assert first.status in FINAL
    assert second.status == first.status


async def test_log_lines_are_never_empty_and_have_a_time() -> None:
    async with under_go() as (piped, plugin):
        await plugin.execute("LAB_FLOOD", {"lines": 700}, stage_id="s1")

    blocks = piped.log("s1").blocks
    assert len(blocks) == 700
    assert all(block.log and block.created_at > 0 for block in blocks.values())
    assert piped.log("s1").durable == blocks.keys()


async def test_a_request_that_breaks_a_rule_is_an_invalid_argument() -> None:
    deployment = example_deployment()
    deployment.ClearField("git_path")
    async with under_go() as (_, plugin):
        with pytest.raises(CallError) as refused:
            await plugin.execute("LAB_TELL", {}, deployment=deployment)

    assert refused.value.status == "INVALID_ARGUMENT"
    assert "git_path" in refused.value.message


async def test_wrong_options_are_an_invalid_argument_with_every_fault() -> None:
    async with under_go() as (_, plugin):
        with pytest.raises(CallError) as refused:
            await plugin.plan(("LAB_TELL", {"lines": "x"}), ("LAB_TELL", {"linger": "soon"}))

    assert refused.value.status == "INVALID_ARGUMENT"
    first, second = refused.value.message.split("\n")
    assert first.startswith("stages[0].with.lines: ")
    assert second.startswith("stages[1].with.linger: not a duration: 'soon'")


async def test_a_service_that_the_plugin_does_not_have_is_unimplemented() -> None:
    async with under_go() as (_, plugin):
        stub = livestate_grpc.LivestateServiceStub(plugin.channel)
        with pytest.raises(CallError) as refused:
            await call(stub.GetLivestate, livestate_pb2.GetLivestateRequest())

    assert refused.value.status == "UNIMPLEMENTED"


async def test_an_unset_running_source_is_a_first_deployment() -> None:
    async with under_go() as (piped, plugin):
        await plugin.execute("LAB_TELL", {}, stage_id="s1")

    assert "running: None" in piped.log("s1").lines


async def test_the_deploy_targets_of_the_deployment_are_passed_on() -> None:
    deployment = example_deployment()
    deployment.deploy_targets_by_plugin["lab"].CopyFrom(
        deployment_pb2.DeployTargets(deploy_targets=["dev"])
    )
    entry = {"deployTargets": [{"name": "dev", "config": None}, {"name": "prod", "config": None}]}
    async with (
        FakePiped(managed=False) as piped,
        start_plugin(piped, LAB, name="lab", mode=LaunchMode.COMMAND_LINE, entry=entry) as plugin,
    ):
        await plugin.execute("LAB_TELL", {}, stage_id="s1", deployment=deployment)
        deployment.deploy_targets_by_plugin["lab"].deploy_targets.append("mars")
        with pytest.raises(CallError) as refused:
            await plugin.execute("LAB_TELL", {}, stage_id="s2", deployment=deployment)

    assert "targets: ['dev']" in piped.log("s1").lines
    assert (refused.value.status, refused.value.message) == (
        "INTERNAL",
        (
            "unknown deploy target 'mars' (it has dev, prod; choose under deployTargets in the"
            " application file, or with: pipectl application update shop --deploy-target lab=dev)"
        ),
    )


async def test_the_process_ends_soon_after_sigterm() -> None:
    async with under_go() as (piped, plugin), asyncio.TaskGroup() as tasks:
        running = tasks.create_task(_status(plugin.execute("LAB_WAIT", {}, stage_id="s1")))
        await piped.wait_until(lambda: piped.log("s1").lines == ["waiting"])

        plugin.process.send_signal(signal.SIGTERM)

        assert await running == "UNAVAILABLE"
        assert await plugin.exit_code(limit=30) == 0
        assert not piped.log("s1").sealed


async def _status(executing: Awaitable[object]) -> str:
    try:
        await executing
    except CallError as error:
        return error.status
    return "OK"


async def test_the_executable_is_one_file_that_can_be_copied_and_renamed(tmp_path: Path) -> None:
    """An agent copies what it fetched to its own folder, under the plugin's name."""
    copied = tmp_path / "my-wait"
    shutil.copy(executable("pipecd-plugin-wait"), copied)

    async with under_go([copied], "my-wait") as (_, plugin):
        answer = await plugin.execute("WAIT", {"duration": "10ms"})

    assert answer.status == deployment_pb2.STAGE_SUCCESS


async def test_a_plugin_serves_with_tls_when_told_to(tmp_path: Path) -> None:
    authority = trustme.CA()
    issued = authority.issue_cert("localhost")
    issued.private_key_pem.write_to_path(tmp_path / "key")
    for part in issued.cert_chain_pems:
        part.write_to_path(tmp_path / "cert", append=True)
    files = ["--cert-file", str(tmp_path / "cert"), "--key-file", str(tmp_path / "key")]

    async with (
        FakePiped(managed=False) as piped,
        start_plugin(
            piped,
            LAB,
            name="lab",
            mode=LaunchMode.COMMAND_LINE,
            flags=["--tls", *files],
            roots=authority.cert_pem.bytes(),
        ) as plugin,
    ):
        answer = await plugin.execute("LAB_TELL", {})

    assert answer.status == deployment_pb2.STAGE_SUCCESS


async def test_schemas_and_checks_are_there_for_whoever_asks() -> None:
    async with under_go() as (_, plugin):
        schemas = await call(plugin.configs.GetSchemas, plugin_pb2.GetSchemasRequest())
        request = plugin_pb2.CheckConfigRequest()
        request.stages.add(name="LAB_TELL", index=2, config=b'{"linger": "soon"}')
        request.stages.add(name="LAB_TELL", index=3, config=b"{}")
        checked = await call(plugin.configs.CheckConfig, request)

    assert json.loads(schemas.plugin_config)
    assert schemas.deploy_target_config == ""
    assert set(schemas.stages) == {"LAB_TELL", "LAB_FLOOD", "LAB_WAIT", "LAB_FINISH"}
    (fault,) = checked.faults
    assert (fault.path, fault.hint) == ("stages[2].with.linger", "e.g. 90s, 5m")


async def test_a_stage_ends_within_the_grace_when_the_agent_takes_no_more_lines() -> None:
    """Agent and plugins stop together: it closes its door before they have said their last word."""
    async with under_go() as (piped, plugin), asyncio.TaskGroup() as tasks:
        tasks.create_task(_ended(plugin.execute("LAB_WAIT", {}, stage_id="s1")))
        await piped.wait_until(lambda: piped.log("s1").lines == ["waiting"])
        for rpc in ("ReportStageLogs", "ReportStageLogsFromLastCheckpoint"):
            piped.refuse(rpc, *["UNAVAILABLE"] * 10_000)

        plugin.process.send_signal(signal.SIGTERM)

        assert await plugin.exit_code() == 0, "1 if it had to be torn away at the end of the grace"
        [lost] = [line for line in plugin.output if "stage_log.lost" in line]
        assert "the plugin stops" in lost


async def _ended(answer: Awaitable[object]) -> None:
    with suppress(CallError):
        await answer
