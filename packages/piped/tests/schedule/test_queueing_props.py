# SPDX-License-Identifier: Apache-2.0
"""Every running stage, every newer deployment, every mode and every interference, in a controller.

What comes out is compared with what the words say, not with the functions that decide.
"""

import asyncio
from itertools import product
from typing import Any, Final

import pytest

from pipecd_model.queueing import QUEUE_KEY, encode_settings
from pipecd_piped.controlplane.state import StateChange
from pipecd_test_support.piped_parts import (
    LIMIT,
    FakePlugin,
    FakePlugins,
    FakeSources,
    Hold,
    World,
    application_file,
    cancel,
    deployment,
)
from pipecd_wire.model import deployment_pb2 as pb
from pipecd_wire.pipecd.control import control_pb2 as control

STAGES: Final = ("WAIT", "WAIT_APPROVAL", "ANALYSIS", "SCRIPT_RUN", "K8S_SYNC")
MODES: Final = ("queue", "supersede")  # the trigger makes no deployment in the third
NEWER: Final = ("none", "commit", "roll-back", "override")
INTERFERENCES: Final = ("none", "cancel", "hold", "pin", "freeze", "stop")
HARMLESS: Final = {"WAIT", "WAIT_APPROVAL", "ANALYSIS"}
BLOCKING: Final = {"pin", "freeze", "stop"}


def interfere(world: World, what: str) -> None:
    held = control.ApplicationControl(application_id="web")
    match what:
        case "cancel":
            world.push(cancel("running"))
        case "hold":
            held.hold.commit_hash = "c1"
            world.state.merge(StateChange(controls=(held,)))
        case "pin":
            held.pin.commit_hash = "c0"
            world.state.merge(StateChange(controls=(held,)))
        case "freeze":
            held.freeze.by = "ada"
            world.state.merge(StateChange(controls=(held,)))
        case "stop":
            stop = control.EmergencyStop(by="eve")
            world.state.merge(StateChange(rules=control.ProjectRules(emergency_stop=stop)))


def lift(world: World) -> None:
    world.state.merge(
        StateChange(
            controls=(control.ApplicationControl(application_id="web"),),
            rules=control.ProjectRules(),
        )
    )


def add_newer(world: World, newer: str, mode: str) -> None:
    record = control.DeploymentRecord(deployment_id="newer")
    if newer == "roll-back":
        record.type = control.DeploymentRecord.ROLL_BACK
    elif newer == "override":
        record.override.by = "eve"
    world.state.merge(StateChange(records=(record,)))
    made = deployment("newer")
    kept = encode_settings(mode, [])
    if kept is not None:
        made.metadata_v2.shared.keyValues[QUEUE_KEY] = kept
    world.controller.on_created(made)


async def settle() -> None:
    """Give what should not happen the time to happen."""
    for _ in range(50):
        await asyncio.sleep(0)


async def until_cancelled(held: Hold) -> None:
    async with asyncio.timeout(LIMIT):
        while not held.cancelled:  # noqa: ASYNC110 - the stand-in of a plugin has no event for it
            await asyncio.sleep(0)


async def play(stage: str, newer: str, mode: str, interference: str, place: str) -> World:
    """Run one in a stage, interfere, add a newer one; then lift what blocks, and end everything."""
    plugin = FakePlugin("steps", *STAGES, "LAST", "ROLLBACK", rollback="ROLLBACK")
    world = World(FakePlugins(plugin), FakeSources({"c1": application_file([stage, "LAST"])}))
    held = plugin.behave[f"{stage} 0"] = Hold()
    interrupts = interference == "cancel" or (takes_place(newer, mode) and stage in HARMLESS)
    is_blocked = (newer == "commit" and interference in BLOCKING) or (
        newer == "override" and interference == "pin"  # only a person releases it
    )
    async with world.running():
        world.controller.on_created(deployment("running"))
        await held.began.wait()
        del plugin.behave[f"{stage} 0"]
        interfere(world, interference)
        if interference == "cancel":
            await until_cancelled(held)
        await settle()
        if newer != "none":
            add_newer(world, newer, mode)
        if interrupts and not is_blocked:
            await until_cancelled(held)
        await settle()
        assert held.cancelled == (interrupts and not is_blocked), place
        # What is lifted lets the newer one do what it could not do before.
        lift(world)
        if interrupts:
            await until_cancelled(held)
        await settle()
        assert held.cancelled == interrupts, place
        held.let_go.set()
        await world.memory.until_completed("running")
        if newer != "none":
            await world.memory.until_completed("newer")
    return world


def takes_place(newer: str, mode: str) -> bool:
    return newer == "roll-back" or (newer != "none" and mode == "supersede")


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("mode", MODES)
async def test_every_combination(stage: str, mode: str) -> None:
    for newer, interference in product(NEWER, INTERFERENCES):
        place = f"{stage} {mode} {newer} {interference}"
        world = await play(stage, newer, mode, interference, place)

        is_superseded, is_cancelled = takes_place(newer, mode), interference == "cancel"
        check_running(world.memory.completed("running"), is_superseded, is_cancelled, place)
        check_order(world.plugins.record, stage, newer, is_superseded or is_cancelled, place)


def check_running(ended: Any, is_superseded: bool, is_cancelled: bool, place: str) -> None:
    if is_cancelled:
        assert ended.status == pb.DEPLOYMENT_CANCELLED, place
        assert ended.status_reason.startswith("cancelled by alice"), place
    elif is_superseded:
        assert ended.status == pb.DEPLOYMENT_CANCELLED, place
        assert ended.status_reason.startswith("superseded by the deployment newer"), place
    else:
        assert ended.status == pb.DEPLOYMENT_SUCCESS, place


def check_order(record: list[str], stage: str, newer: str, is_stopped: bool, place: str) -> None:
    """The older one is rolled back, or comes to its end, before the newer one begins."""
    first = [f"{stage} 0", "ROLLBACK 0" if is_stopped else "LAST 1"]
    second = [f"{stage} 0", "LAST 1"] if newer != "none" else []
    assert record == first + second, place
