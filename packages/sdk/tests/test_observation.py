# SPDX-License-Identifier: Apache-2.0
"""Several deploy targets as one answer, and one stage on several deploy targets."""

import asyncio
import json
from collections.abc import Callable

import pytest

from pipecd_sdk import (
    DeploymentPlugin,
    DeployTarget,
    Drift,
    LiveContext,
    LiveSnapshot,
    LiveState,
    PipedError,
    Resource,
    StageContext,
    StageFailedError,
    StageLog,
    StageStatus,
    SyncState,
    SyncStatus,
    run_on_targets,
    stage,
)
from pipecd_sdk._observation import merge
from pipecd_sdk.testing import StageHarness, deploy_target

Do = Callable[[str], None]


class Plain(DeploymentPlugin):
    def __init__(self, do: Do = lambda _: None) -> None:
        self._do = do
        self.concurrency = 0
        self.most_at_once = 0

    @stage("WORK")
    async def work(self, ctx: StageContext) -> None:
        async def one(target: DeployTarget, log: StageLog) -> None:
            self.concurrency += 1
            self.most_at_once = max(self.concurrency, self.most_at_once)
            await asyncio.sleep(0)
            self.concurrency -= 1
            self._do(target.name)
            log.info("done")

        await run_on_targets(ctx, one, concurrency=2)


class Compares(Plain, Drift):
    async def drift(self, ctx: LiveContext, target: DeployTarget, live: LiveSnapshot) -> SyncState:
        assert live == LiveSnapshot()
        return SyncState(status=SyncStatus.SYNCED)


class Looks(Plain, LiveState):
    async def live_state(self, ctx: LiveContext, target: DeployTarget) -> LiveSnapshot:
        return LiveSnapshot(resources=[Resource(id=target.name, name=target.name)])


def state(name: str, reason: str = "") -> SyncState:
    return SyncState(status=SyncStatus[name], short_reason=reason, reason=reason)


@pytest.mark.parametrize(
    ("states", "status", "reason"),
    [
        ([], "UNKNOWN", "there is no deploy target"),
        (["SYNCED", "SYNCED"], "SYNCED", ""),
        (["SYNCED", "UNKNOWN"], "UNKNOWN", "1: UNKNOWN"),
        (["UNKNOWN", "OUT_OF_SYNC"], "OUT_OF_SYNC", "0: UNKNOWN; 1: OUT_OF_SYNC"),
        (["OUT_OF_SYNC", "INVALID_CONFIG", "SYNCED"], "INVALID_CONFIG", "0: OUT_OF_SYNC; 1: INV"),
    ],
)
def test_the_worst_target_decides(states: list[str], status: str, reason: str) -> None:
    merged = merge([(str(number), state(each, each)) for number, each in enumerate(states)])

    assert merged.status is SyncStatus[status]
    assert merged.short_reason.startswith(reason)


def test_one_target_is_told_as_it_is() -> None:
    assert merge([("a", state("OUT_OF_SYNC", "why"))]) == state("OUT_OF_SYNC", "why")


def harness_of(plugin: Plain, *names: str) -> StageHarness[Plain]:
    return StageHarness(plugin, targets=[deploy_target(plugin, name) for name in names])


async def test_drift_needs_no_live_state() -> None:
    seen = await harness_of(Compares(), "a").live_state()

    assert (seen.sync.status, list(seen.resources)) == (SyncStatus.SYNCED, [])


async def test_live_state_without_drift_is_told_as_unknown() -> None:
    seen = await harness_of(Looks(), "a", "b").live_state()

    assert [resource.id for _, resource in seen.resources] == ["a", "b"]
    assert seen.sync.status is SyncStatus.UNKNOWN
    assert "does not compare" in seen.sync.short_reason


async def test_targets_are_done_several_at_once_but_not_all() -> None:
    plugin = Plain()

    await harness_of(plugin, *"abcdef").run("WORK")

    assert plugin.most_at_once == 2


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (StageFailedError("full", hint="clean up"), "full (clean up)"),
        (PipedError("away"), "piped could not be asked: away"),
        (ZeroDivisionError("a secret"), "ZeroDivisionError in the plugin; piped's log"),
    ],
)
async def test_all_targets_are_tried_and_each_has_its_result(error: Exception, reason: str) -> None:
    def fail(name: str) -> None:
        if name == "b":
            raise error

    harness = harness_of(Plain(fail), "a", "b", "c")

    result = await harness.run("WORK")

    assert result.status is StageStatus.FAILURE
    assert result.reason.startswith(f"1 of 3 deploy targets failed: b: {reason}")
    kept = json.loads(harness.metadata["pipecd/stage-targets"])
    assert {name: each["status"] for name, each in kept.items()} == {
        "a": "SUCCESS",
        "b": "FAILURE",
        "c": "SUCCESS",
    }
    assert kept["b"]["reason"].startswith(reason)
    assert "a secret" not in harness.text + result.reason


async def test_a_cancelled_stage_cancels_the_work_on_all_targets() -> None:
    cancelled = []

    class Waits(DeploymentPlugin):
        @stage("WAIT")
        async def wait(self, ctx: StageContext) -> None:
            async def one(target: DeployTarget, log: StageLog) -> None:
                log.info("waiting")
                try:
                    await asyncio.Event().wait()
                finally:
                    cancelled.append(target.name)

            await run_on_targets(ctx, one)

    plugin = Waits()
    harness = StageHarness(plugin, targets=[deploy_target(plugin, name) for name in "ab"])
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(harness.run("WAIT"))
        await harness.wait_logged("[b] waiting")
        running.cancel()

    assert sorted(cancelled) == ["a", "b"]
