# SPDX-License-Identifier: Apache-2.0
"""The test plugin does what it is told; other tests rely on it."""

import asyncio
import signal
from datetime import timedelta
from pathlib import Path

import pytest
from pipecd_plugin_dummy.plugin import Dummy

from pipecd_sdk import StageFailedError, StageStatus, SyncStrategy
from pipecd_sdk.testing import NOON, FakeClock, StageHarness
from pipecd_sdk.testing.piped import FakePiped
from pipecd_sdk.testing.process import PluginProcess, executable, start_plugin
from pipecd_wire.model import deployment_pb2
from pipecd_wire.plugin.deploymentapi import api_pb2
from pipecd_wire.rpc import CallError, call

COMMAND = [executable("pipecd-plugin-dummy")]
COMMIT = "0123456789abcdef0123456789abcdef01234567"


async def test_it_sleeps_logs_and_records() -> None:
    harness = StageHarness(Dummy())

    result = await harness.run("DUMMY_SYNC", {"sleep": "5s", "log": ["one", "two"]})

    assert result.status is StageStatus.SUCCESS
    assert harness.clock.now() == NOON + timedelta(seconds=5)
    assert [line.text for line in harness.log][:2] == ["one", "two"]


@pytest.mark.parametrize(("fail", "reason"), [(True, "failed as told"), ("no luck", "no luck")])
async def test_it_fails_with_a_reason(fail: bool | str, reason: str) -> None:
    result = await StageHarness(Dummy()).run("DUMMY_PRIMARY_ROLLOUT", {"fail": fail})

    assert result.status is StageStatus.FAILURE
    assert result.reason == reason


async def test_a_reason_to_fail_that_is_none_is_a_fault() -> None:
    assert StageHarness(Dummy()).faults(("DUMMY_SYNC", {"fail": 3})) == [
        "stages[0].with.fail: not a reason to fail: 3 (true, or a sentence)"
    ]


async def test_the_order_of_calls_can_be_read_back(tmp_path: Path) -> None:
    harness = StageHarness(Dummy())
    options = {"record": str(tmp_path / "record")}

    await harness.run("DUMMY_CANARY_ROLLOUT", options)
    await harness.run("DUMMY_CANARY_CLEAN", options, index=1)

    assert (tmp_path / "record").read_text() == (
        f"DUMMY_CANARY_ROLLOUT {COMMIT}\nDUMMY_CANARY_CLEAN {COMMIT}\n"
    )


async def test_the_rollback_does_what_its_own_options_say(tmp_path: Path) -> None:
    """It is called with the options of the stage that failed, and must not fail like it."""
    harness = StageHarness(Dummy())
    options = {"record": str(tmp_path / "record"), "fail": True, "rollback": {"log": ["undone"]}}

    result = await harness.run("DUMMY_ROLLBACK", options)

    assert result.status is StageStatus.SUCCESS
    assert (tmp_path / "record").read_text() == f"DUMMY_ROLLBACK {COMMIT}\n"
    assert harness.log[0].text == "undone"


async def test_it_goes_on_after_a_cancel_as_long_as_told() -> None:
    clock = FakeClock(frozen=True)
    harness = StageHarness(Dummy(), clock=clock)
    async with asyncio.TaskGroup() as tasks:
        options = {"sleep": "1h", "log": ["here"], "ignoreCancel": "10s"}
        running = tasks.create_task(harness.run("DUMMY_SYNC", options))
        await harness.wait_logged("here")

        running.cancel()
        await harness.wait_logged("Cancelled; going on for 10s")

        assert not running.done()
        await clock.advance(timedelta(seconds=10))

    assert running.cancelled()


async def test_a_pipeline_gets_one_rollback_stage_at_its_first_place() -> None:
    planned = StageHarness(Dummy()).plan(("DUMMY_CANARY_ROLLOUT", {}), ("DUMMY_CANARY_CLEAN", {}))

    assert [(each.name, each.index, each.rollback) for each in planned] == [
        ("DUMMY_CANARY_ROLLOUT", 0, False),
        ("DUMMY_CANARY_CLEAN", 1, False),
        ("DUMMY_ROLLBACK", 0, True),
    ]


async def test_without_rollback_no_rollback_stage_is_planned() -> None:
    planned = StageHarness(Dummy()).plan(("DUMMY_CANARY_ROLLOUT", {}), rollback=False)

    assert [each.name for each in planned] == ["DUMMY_CANARY_ROLLOUT"]


async def test_a_crash_ends_the_process_once_and_a_new_one_continues() -> None:
    async with FakePiped() as piped:
        command = [executable("pipecd-plugin-dummy")]
        async with start_plugin(piped, command, name="dummy") as plugin:
            with pytest.raises(CallError) as lost:
                await plugin.execute("DUMMY_SYNC", {"exit": 7}, stage_id="s1")
            assert lost.value.status == "UNAVAILABLE"
            assert await plugin.exit_code() == 7

        async with start_plugin(piped, command, name="dummy") as plugin:
            answer = await plugin.execute("DUMMY_SYNC", {"exit": 7}, stage_id="s1")

    assert answer.status == deployment_pb2.STAGE_SUCCESS


async def test_a_quick_sync_needs_no_options_and_no_targets() -> None:
    async with (
        FakePiped() as piped,
        start_plugin(piped, [executable("pipecd-plugin-dummy")], name="dummy") as plugin,
    ):
        request = api_pb2.BuildQuickSyncStagesRequest(rollback=True)
        planned = await call(plugin.deployments.BuildQuickSyncStages, request)
        answer = await plugin.execute("DUMMY_SYNC", None)

    assert [(each.name, each.rollback) for each in planned.stages] == [
        ("DUMMY_SYNC", False),
        ("DUMMY_ROLLBACK", True),
    ]
    assert answer.status == deployment_pb2.STAGE_SUCCESS


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV])
async def test_a_crash_may_be_a_signal(number: signal.Signals) -> None:
    async with (
        FakePiped() as piped,
        start_plugin(piped, COMMAND, name="dummy") as plugin,
    ):
        with pytest.raises(CallError):
            await plugin.execute("DUMMY_SYNC", {"signal": number})
        assert await plugin.exit_code() == -number


async def test_a_hang_stops_the_pings_and_ends_by_itself() -> None:
    async with (
        FakePiped(ping_interval_seconds=0.05) as piped,
        start_plugin(piped, COMMAND, name="dummy") as plugin,
        asyncio.TaskGroup() as tasks,
    ):
        running = tasks.create_task(
            plugin.execute("DUMMY_SYNC", {"log": ["here"], "sleep": "300ms", "hang": "2s"})
        )
        await piped.wait_until(lambda: piped.calls["Ping"] >= 3)
        async with asyncio.timeout(30):
            quiet = 0
            while quiet < 10 and not running.done():
                before = piped.calls["Ping"]
                await asyncio.sleep(0.1)
                quiet = quiet + 1 if piped.calls["Ping"] == before else 0
        assert not running.done()

    assert (await running).status == deployment_pb2.STAGE_SUCCESS


async def test_it_floods_its_outputs_and_the_log() -> None:
    options = {"flood": {"stdout": "1MB", "stderr": "64KiB", "logLines": 3000, "line": 80}}
    async with (
        FakePiped() as piped,
        start_plugin(piped, COMMAND, name="dummy") as plugin,
    ):
        answer = await plugin.execute("DUMMY_SYNC", options, stage_id="s1")
        written = sum(len(line) + 1 for line in plugin.output if line.startswith("xxx"))

    assert answer.status == deployment_pb2.STAGE_SUCCESS
    assert written >= 1_000_000 + 64 * 1024
    lines = [line for line in piped.log("s1").lines if line.endswith("x")]
    assert [int(line.split()[0]) for line in lines] == list(range(3000))


async def test_an_answer_can_be_larger_than_anybody_takes() -> None:
    async with (
        FakePiped() as piped,
        start_plugin(piped, COMMAND, name="dummy") as plugin,
    ):
        with pytest.raises(CallError) as told:
            await plugin.execute("DUMMY_SYNC", {"flood": {"answer": "100MB"}})
        again = await plugin.execute("DUMMY_SYNC", {}, index=1)

    assert told.value.status == "RESOURCE_EXHAUSTED"
    assert again.status == deployment_pb2.STAGE_SUCCESS


async def test_garbage_breaks_the_connection_and_the_next_one_works() -> None:
    async with (
        FakePiped() as piped,
        start_plugin(piped, COMMAND, name="dummy") as plugin,
    ):
        with pytest.raises(CallError) as told:
            await plugin.execute("DUMMY_SYNC", {"garbage": "1KiB", "sleep": "10ms"}, stage_id="s1")
        async with asyncio.timeout(30):
            again = await eventually(plugin)

    assert told.value.status in {"UNAVAILABLE", "INTERNAL", "UNKNOWN"}
    assert again.status == deployment_pb2.STAGE_SUCCESS


async def eventually(plugin: PluginProcess) -> api_pb2.ExecuteStageResponse:
    """Run a stage over a connection that may still be the broken one."""
    while True:
        try:
            return await plugin.execute("DUMMY_SYNC", {}, stage_id="s2")
        except CallError as error:
            if not error.transient:
                raise
            await asyncio.sleep(0.05)


async def test_a_size_that_is_none_is_a_fault() -> None:
    assert StageHarness(Dummy()).faults(("DUMMY_SYNC", {"garbage": "much"})) == [
        "stages[0].with.garbage: not a size: 'much' (e.g. 4096, 100MB or 64KiB)"
    ]


async def test_it_says_of_live_state_drift_and_preview_what_it_is_told() -> None:
    application = {
        "live": {
            "resources": 2,
            "health": "UNHEALTHY",
            "sync": "OUT_OF_SYNC",
            "reason": "told\nso",
        },
        "preview": {"summary": "2 things", "details": "+x"},
    }
    entry = {"deployTargets": [{"name": "a"}]}
    async with (
        FakePiped() as piped,
        start_plugin(piped, COMMAND, name="dummy", entry=entry) as plugin,
    ):
        live = await plugin.live_state(targets=["a"], application=application)
        preview = await plugin.plan_preview(targets=["a"], application=application)
        with pytest.raises(CallError, match="a: no luck"):
            await plugin.plan_preview(targets=["a"], application={"preview": {"fail": "no luck"}})

    assert [each.id for each in live.application_live_state.resources] == [
        "a/nothing-0",
        "a/nothing-1",
    ]
    assert (live.sync_state.status, live.sync_state.short_reason) == (3, "told")
    assert (preview.results[0].summary, preview.results[0].details) == ("2 things", b"+x")


async def test_planning_can_be_told_too() -> None:
    harness = StageHarness(Dummy(), options={"planning": {"strategy": "QUICK_SYNC"}})
    failing = StageHarness(Dummy(), options={"planning": {"fail": True}})

    assert (await harness.strategy()).sync is SyncStrategy.QUICK_SYNC
    assert (await StageHarness(Dummy()).strategy()).sync is SyncStrategy.PIPELINE
    with pytest.raises(StageFailedError, match="failed as told"):
        await failing.versions()


async def test_it_shows_of_a_resource_what_it_is_told() -> None:
    told = {
        "manifest": "a: 1\n",
        "difference": "-a\n",
        "events": ["made"],
        "log": "one\ntwo\n",
        "containers": ["web", "side"],
    }
    entry = {"deployTargets": [{"name": "a"}]}
    async with (
        FakePiped() as piped,
        start_plugin(piped, COMMAND, name="dummy", entry=entry) as plugin,
    ):
        (nothing,) = (await plugin.live_state(targets=["a"])).application_live_state.resources
        opened = await plugin.open_resource(
            nothing, application={"details": told}, container="web", log_lines=1
        )
        for trouble, status in (({"gone": True}, "NOT_FOUND"), ({"fail": "as told"}, "INTERNAL")):
            with pytest.raises(CallError, match="as told") as refused:
                await plugin.open_resource(nothing, application={"details": trouble})
            assert refused.value.status == status

    assert (opened.manifest, opened.difference) == ("a: 1\n", "-a\n")
    assert [each.message for each in opened.events] == ["made"]
    assert [(each.container, each.previous, each.text) for each in opened.logs] == [
        ("web", False, "two\n"),
        ("web", True, "two\n"),
    ]
