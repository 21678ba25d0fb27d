# SPDX-License-Identifier: Apache-2.0
"""Applications that are out of sync are deployed again, unless something forbids it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import pytest

from pipecd_piped.controlplane.state import StateChange
from pipecd_test_support.trigger_bench import NOW, WEB, WITNESS, Bench, application_file
from pipecd_wire.model.application_pb2 import OUT_OF_SYNC, SYNCED, ApplicationSyncState
from pipecd_wire.model.deployment_pb2 import DEPLOYMENT_FAILURE, DEPLOYMENT_SUCCESS, Deployment
from pipecd_wire.pipecd.control.control_pb2 import (
    ApplicationControl,
    EmergencyStop,
    Freeze,
    Hold,
    Pin,
    ProjectRules,
)

WINDOW = 300


@asynccontextmanager
async def deployed(
    bench: Bench, trigger: str = "{onOutOfSync: {disabled: false}}"
) -> AsyncIterator[None]:
    """A piped whose application `web` was deployed once, with success, at NOW."""
    bench.push({"apps/web/app.pipecd.yaml": application_file("web", trigger=trigger)})
    async with bench.running(WEB, WITNESS):
        await bench.desk.until(lambda: len(deployments(bench)) == 1)
        end(bench)
        yield


def deployments(bench: Bench) -> list[Deployment]:
    return [each for each in bench.desk.created if each.application_id == "web"]


def has_deployed(bench: Bench, count: int) -> bool:
    return len(deployments(bench)) == count


def end(bench: Bench, status: int = DEPLOYMENT_SUCCESS) -> None:
    """The last deployment of `web` ends."""
    last = deployments(bench)[-1]
    last.status, last.completed_at = DEPLOYMENT_SUCCESS, int(bench.now)
    if status == DEPLOYMENT_FAILURE:
        last.status = DEPLOYMENT_FAILURE


def drift(bench: Bench, *, status: int = OUT_OF_SYNC) -> None:
    """The live state of `web` is found to be that."""
    assert bench.trigger is not None
    state = ApplicationSyncState(timestamp=int(bench.now))
    state.status = OUT_OF_SYNC if status == OUT_OF_SYNC else SYNCED
    bench.trigger.take_sync_state("web", state)


async def settled(bench: Bench) -> None:
    """Waits until everything that was told has been decided about."""
    await bench.witnessed(bench.push({}))
    await bench.witnessed(bench.push({}))


async def test_what_is_out_of_sync_is_deployed_again(bench: Bench) -> None:
    async with deployed(bench):
        bench.now = NOW + WINDOW
        drift(bench)
        await bench.desk.until(lambda: len(deployments(bench)) == 2)

    first, repair = deployments(bench)
    assert repair.trigger.commit.hash == first.trigger.commit.hash
    assert repair.status_reason == "what runs differs from git"
    assert repair.metadata_v2.shared.keyValues["DriftRepairs"] == "1"
    assert repair in bench.handed


async def test_not_within_the_window_and_by_itself_when_it_is_over(bench: Bench) -> None:
    async with deployed(bench, "{onOutOfSync: {disabled: false, minWindow: 2s}}"):
        bench.now = NOW + 1.8
        drift(bench)
        await settled(bench)
        assert len(deployments(bench)) == 1

        bench.now = NOW + 2
        await bench.desk.until(lambda: len(deployments(bench)) == 2)


async def test_off_unless_its_author_wants_it(bench: Bench) -> None:
    async with deployed(bench, "{}"):
        bench.now = NOW + WINDOW
        drift(bench)
        await settled(bench)

    assert len(deployments(bench)) == 1


async def test_not_after_a_failure(bench: Bench) -> None:
    async with deployed(bench):
        end(bench, DEPLOYMENT_FAILURE)
        bench.now = NOW + WINDOW
        drift(bench)
        await settled(bench)

    assert len(deployments(bench)) == 1


@pytest.mark.parametrize("what", ["pin", "freeze", "hold", "stop", "deploying"])
async def test_not_while_something_forbids_it_and_at_once_when_that_is_over(
    bench: Bench, what: str
) -> None:
    async with deployed(bench):
        bench.now = NOW + WINDOW
        forbid(bench, what)
        drift(bench)
        await settled(bench)
        assert len(deployments(bench)) == 1

        bench.state.merge(
            StateChange(controls=(ApplicationControl(application_id="web"),), rules=ProjectRules())
        )
        if what == "deploying":
            bench.state.forget_deployment("other")
            drift(bench)
        await bench.desk.until(lambda: len(deployments(bench)) == 2)


def forbid(bench: Bench, what: str) -> None:
    control = ApplicationControl(application_id="web")
    rules = ProjectRules()
    if what == "pin":
        control.pin.CopyFrom(Pin(by="alice"))
    elif what == "freeze":
        control.freeze.CopyFrom(Freeze(by="alice"))
    elif what == "hold":
        control.hold.CopyFrom(Hold(commit_hash=bench.head))
    elif what == "stop":
        rules.emergency_stop.CopyFrom(EmergencyStop(by="alice"))
    other = Deployment(id="other", application_id="web")
    bench.state.merge(
        StateChange(
            controls=(control,), rules=rules, deployments=(other,) if what == "deploying" else ()
        )
    )


async def test_a_loop_of_drift_and_repair_is_stopped_and_says_so(bench: Bench) -> None:
    async with deployed(bench):
        for count in (2, 3, 4):
            bench.now += WINDOW
            drift(bench)
            await bench.desk.until(partial(has_deployed, bench, count))
            end(bench)
            drift(bench, status=SYNCED)
        bench.now += WINDOW
        drift(bench)
        await bench.desk.until(lambda: "web" in bench.desk.notes)
        assert len(deployments(bench)) == 4
        assert "out of sync again after 3 repairs" in bench.desk.notes["web"]

        drift(bench, status=SYNCED)
        await bench.desk.until(lambda: "web" not in bench.desk.notes)
        bench.now += 7200
        drift(bench)
        await bench.desk.until(lambda: len(deployments(bench)) == 5)

    counts = [each.metadata_v2.shared.keyValues["DriftRepairs"] for each in deployments(bench)[1:]]
    assert counts == ["1", "2", "3", "1"]


async def test_a_restarted_piped_counts_on(bench: Bench) -> None:
    async with deployed(bench):
        bench.now += WINDOW
        drift(bench)
        await bench.desk.until(lambda: len(deployments(bench)) == 2)
        end(bench)

    bench.now += WINDOW
    async with bench.running(WEB, WITNESS):
        drift(bench)
        await bench.desk.until(lambda: len(deployments(bench)) == 3)

    assert deployments(bench)[2].metadata_v2.shared.keyValues["DriftRepairs"] == "2"
