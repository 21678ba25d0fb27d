# SPDX-License-Identifier: Apache-2.0
"""Commands become deployments, or are refused with a reason."""

from dataclasses import replace
from typing import Any

import pytest

from pipecd_test_support.trigger_bench import (
    NOW,
    WEB,
    WITNESS,
    Bench,
    application,
    application_file,
    sync,
)
from pipecd_wire.model import common_pb2
from pipecd_wire.model.command_pb2 import Command


@pytest.mark.parametrize(
    ("strategy", "summary"),
    [
        (common_pb2.AUTO, ""),
        (common_pb2.QUICK_SYNC, "quick sync asked for by alice"),
        (common_pb2.PIPELINE, "pipeline sync asked for by alice"),
    ],
)
async def test_a_command_deploys_the_head_again(bench: Bench, strategy: Any, summary: str) -> None:
    async with bench.running(WEB):
        await bench.desk.until(lambda: len(bench.desk.created) == 1)
        bench.tell(sync("web", "c1", strategy))
        await bench.desk.until(lambda: "c1" in bench.desk.handled_commands)

    deployment = bench.desk.created[1]
    assert bench.desk.handled_commands == {"c1": deployment.id}
    assert bench.handed[1] == deployment
    assert deployment.trigger.commander == "alice"
    assert deployment.trigger.sync_strategy == strategy
    assert deployment.trigger.strategy_summary == summary
    assert deployment.status_reason == "alice asked for it"
    assert bench.desk.last["web"].deployment_id == deployment.id
    assert not bench.state.commands


async def test_a_command_deploys_what_is_in_git_now(bench: Bench) -> None:
    async with bench.running(WEB):
        await bench.desk.until(lambda: len(bench.desk.created) == 1)
        commit = bench.remote.commit({"README": "not touching"})
        bench.tell(sync("web"))
        await bench.desk.until(lambda: len(bench.desk.created) == 2)

    assert bench.desk.deployed()[1] == ("web", commit)


async def test_a_commit_and_a_command_that_come_together_are_one_deployment(bench: Bench) -> None:
    async with bench.running(WEB, WITNESS):
        await bench.witnessed(bench.head)
        commit = bench.push({"apps/web/x": "1"})
        bench.tell(sync("web"))
        await bench.witnessed(commit)
        await bench.desk.until(lambda: "c1" in bench.desk.handled_commands)
        await bench.witnessed(bench.push({}))

    assert bench.desk.deployed().count(("web", commit)) == 1


async def test_two_commands_for_one_application_are_two_deployments_in_order(bench: Bench) -> None:
    async with bench.running(WEB):
        await bench.desk.until(lambda: len(bench.desk.created) == 1)
        bench.tell(
            sync("web", "later", commander="bob", created_at=NOW + 1),
            sync("web", "earlier", commander="alice", created_at=NOW),
        )
        await bench.desk.until(lambda: len(bench.desk.handled_commands) == 2)

    assert [each.trigger.commander for each in bench.desk.created[1:]] == ["alice", "bob"]


async def test_a_command_seen_again_after_a_restart_is_the_same_deployment(bench: Bench) -> None:
    """The piped died between creating the deployment and saying so."""
    async with bench.running(WEB):
        await bench.desk.until(lambda: len(bench.desk.created) == 1)
        bench.tell(sync("web"))
        await bench.desk.until(lambda: "c1" in bench.desk.handled_commands)
    first = bench.desk.handled_commands.pop("c1")
    handed = len(bench.handed)

    async with bench.running(WEB):
        bench.tell(sync("web"))
        await bench.desk.until(lambda: "c1" in bench.desk.handled_commands)

    assert bench.desk.handled_commands == {"c1": first}
    assert len(bench.desk.created) == 2
    assert len(bench.handed) == handed  # the mirror brings it, with the status it has by now


async def test_a_refused_command_is_told_why_and_its_commit_is_not_lost(bench: Bench) -> None:
    """A "no" of one kind says nothing about another kind."""
    disabled = "{onCommand: {disabled: true}}"
    bench.push({"apps/web/app.pipecd.yaml": application_file("web", trigger=disabled)})
    async with bench.running(WEB, WITNESS):
        await bench.witnessed(bench.head)
        commit = bench.push({"apps/web/x": "1"})
        bench.tell(sync("web"))
        await bench.desk.until(lambda: "c1" in bench.desk.refusals)
        await bench.witnessed(commit)
        await bench.desk.until(lambda: ("web", commit) in bench.desk.deployed())

    assert bench.desk.refusals == {"c1": "the application does not deploy on command"}
    assert not bench.desk.handled_commands
    assert not bench.state.commands


async def test_commands_that_nobody_can_follow_are_refused_with_a_reason(bench: Bench) -> None:
    homeless = application("homeless", repo="other")
    bench.limits = replace(bench.limits, unknown_application_seconds=0.0)
    async with bench.running(WEB, homeless):
        bench.tell(
            sync("nobody", "unknown"),
            sync("homeless", "homeless"),
            Command(
                id="edit", piped_id="piped", type=Command.UPDATE_APPLICATION_CONFIG, created_at=1
            ),
            Command(
                id="chain", piped_id="piped", type=Command.CHAIN_SYNC_APPLICATION, created_at=1
            ),
        )
        await bench.desk.until(lambda: len(bench.desk.refusals) == 4)

    refusals = bench.desk.refusals
    assert "has no application 'nobody'" in refusals["unknown"]
    assert "there is no repository 'other'" in refusals["homeless"]
    assert "commit the change to git" in refusals["edit"]
    assert "has no application ''" in refusals["chain"]
    assert not bench.state.commands


async def test_a_command_waits_a_little_for_an_application_that_is_not_listed_yet(
    bench: Bench,
) -> None:
    async with bench.running(WITNESS):
        await bench.witnessed(bench.head)
        bench.tell(sync("web"))
        bench.tell(applications=(WEB,))
        await bench.desk.until(lambda: "c1" in bench.desk.handled_commands)

    assert not bench.desk.refusals


async def test_other_commands_are_left_to_others(bench: Bench) -> None:
    cancel = Command(id="x", piped_id="piped", type=Command.CANCEL_DEPLOYMENT, created_at=1)
    async with bench.running(WITNESS):
        bench.tell(cancel)
        await bench.witnessed(bench.head)

    assert list(bench.state.commands) == ["x"]
