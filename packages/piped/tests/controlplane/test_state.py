# SPDX-License-Identifier: Apache-2.0
"""What the state holds, what it hands on, and what it does not bring back."""

import asyncio
import gc

from pipecd_piped.controlplane.state import (
    HANDLED_KEPT,
    HANDLED_MEMORY_SECONDS,
    ControlPlaneState,
    GitHint,
    StateChange,
)
from pipecd_wire.model import deployment_pb2 as pb
from pipecd_wire.model.application_pb2 import Application
from pipecd_wire.model.command_pb2 import COMMAND_SUCCEEDED, Command
from pipecd_wire.model.deployment_pb2 import Deployment

APP = Application(id="app", name="web")
SYNC = Command(id="sync", type=Command.SYNC_APPLICATION, created_at=1)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


async def test_a_subscriber_is_told_of_a_change_at_once() -> None:
    state = ControlPlaneState()
    changes = state.changes()

    state.merge(
        StateChange(applications=(APP,), git_hints=(GitHint(repository_id="r", branch="b"),))
    )

    change = await asyncio.wait_for(anext(changes), 5)
    assert change.applications == (APP,)
    assert change.git_hints[0].repository_id == "r"
    assert dict(state.applications) == {"app": APP}


async def test_a_late_subscriber_starts_with_what_there_is() -> None:
    state = ControlPlaneState()
    state.replace(applications=[APP], deployments=[Deployment(id="d")], commands=[SYNC])

    change = await asyncio.wait_for(anext(state.changes()), 5)

    assert change.snapshot
    assert (len(change.applications), len(change.deployments), len(change.commands)) == (1, 1, 1)


async def test_every_subscriber_gets_every_change() -> None:
    state = ControlPlaneState()
    first, second = state.changes(), state.changes()

    state.merge(StateChange(commands=(SYNC,)))

    for changes in (first, second):
        assert (await asyncio.wait_for(anext(changes), 5)).commands == (SYNC,)


async def test_what_is_not_in_a_snapshot_is_gone() -> None:
    state = ControlPlaneState()
    state.replace(applications=[APP], deployments=[Deployment(id="d")], commands=[SYNC])
    changes = state.changes()
    await anext(changes)

    state.replace(applications=[], deployments=[], commands=[])

    assert not state.applications
    assert not state.deployments
    assert not state.commands
    assert (await anext(changes)).removed_applications == {"app"}


async def test_a_listing_of_one_kind_leaves_the_others() -> None:
    state = ControlPlaneState()
    state.replace(applications=[APP], deployments=[], commands=[SYNC])

    state.replace(commands=[])

    assert dict(state.applications) == {"app": APP}
    assert not state.commands


async def test_a_handled_command_is_not_brought_back_by_a_snapshot() -> None:
    """The report of it may still be on its way (W19)."""
    state = ControlPlaneState()
    state.replace(applications=[], deployments=[], commands=[SYNC])
    changes = state.changes()
    await anext(changes)

    state.forget_command("sync")
    state.replace(applications=[], deployments=[], commands=[SYNC])
    state.merge(StateChange(commands=(SYNC,)))

    assert not state.commands
    assert (await anext(changes)).commands == ()
    assert (await anext(changes)).commands == ()


async def test_a_handled_command_is_forgotten_when_nobody_lists_it_any_more() -> None:
    clock = Clock()
    state = ControlPlaneState(clock)
    state.forget_command("sync")
    clock.now += HANDLED_MEMORY_SECONDS + 1

    state.replace(commands=[SYNC])
    assert not state.commands, "it is listed still: the report has not arrived"
    state.replace(commands=[])
    state.replace(commands=[SYNC])

    assert list(state.commands) == ["sync"]


async def test_commands_handled_long_ago_are_forgotten_without_a_listing_but_never_the_newest() -> (
    None
):
    """A stream may last for months, and lists them only when it begins."""
    clock = Clock()
    state = ControlPlaneState(clock)
    early = [f"early-{number}" for number in range(HANDLED_KEPT)]
    for name in early:
        state.forget_command(name)
    clock.now += HANDLED_MEMORY_SECONDS

    for number in range(HANDLED_KEPT - 1):
        state.forget_command(f"late-{number}")
    state.merge(StateChange(commands=tuple(Command(id=name) for name in early)))
    state.merge(StateChange(commands=(Command(id="late-0"),)))

    assert list(state.commands) == early[:-1]


async def test_a_command_that_is_pushed_as_handled_is_not_open() -> None:
    state = ControlPlaneState()
    state.merge(StateChange(commands=(SYNC,)))
    done = Command()
    done.CopyFrom(SYNC)
    done.status = COMMAND_SUCCEEDED

    state.merge(StateChange(commands=(done,)))

    assert not state.commands


async def test_a_completed_deployment_is_not_open() -> None:
    state = ControlPlaneState()
    state.merge(StateChange(deployments=(Deployment(id="d", status=pb.DEPLOYMENT_RUNNING),)))

    state.merge(StateChange(deployments=(Deployment(id="d", status=pb.DEPLOYMENT_SUCCESS),)))

    assert not state.deployments


async def test_the_commands_of_a_stage_come_oldest_first() -> None:
    state = ControlPlaneState()
    second = Command(
        id="b", type=Command.APPROVE_STAGE, deployment_id="d", stage_id="s", created_at=2
    )
    first = Command(id="a", type=Command.SKIP_STAGE, deployment_id="d", stage_id="s", created_at=1)
    other = Command(
        id="c", type=Command.APPROVE_STAGE, deployment_id="d", stage_id="t", created_at=1
    )
    state.replace(commands=[second, first, other])

    assert state.stage_commands("d", "s") == [first, second]


async def test_a_watched_stage_hears_of_each_command_once() -> None:
    state = ControlPlaneState()
    first = Command(id="a", type=Command.APPROVE_STAGE, deployment_id="d", stage_id="s")
    state.replace(applications=[], deployments=[], commands=[first])
    watch = state.watch_stage_commands("d", "s")

    assert await asyncio.wait_for(anext(watch), 5) == first
    second = Command(id="b", type=Command.APPROVE_STAGE, deployment_id="d", stage_id="s")
    state.replace(commands=[first, second])

    assert await asyncio.wait_for(anext(watch), 5) == second
    await watch.aclose()


async def test_a_subscription_that_nobody_holds_collects_nothing() -> None:
    state = ControlPlaneState()
    changes = state.changes()
    assert len(state._subscribers) == 1

    del changes
    gc.collect()

    assert len(state._subscribers) == 0
