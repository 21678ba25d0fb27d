# SPDX-License-Identifier: Apache-2.0
"""WAIT_APPROVAL: who counts, what is kept, what is told."""

import asyncio

import pytest
from pipecd_plugin_waitapproval.plugin import APPROVED_USERS, WaitApproval

from pipecd_sdk import DISPLAY_KEY, CommandKind, Operation, Severity, StageStatus, replace
from pipecd_sdk.testing import StageHarness, example_deployment

LIMIT = 30


async def test_one_approval_is_enough_by_default() -> None:
    harness = StageHarness(WaitApproval())
    harness.send(CommandKind.APPROVE, by="alice")

    async with asyncio.timeout(LIMIT):
        result = await harness.run("WAIT_APPROVAL", {})

    assert result.status is StageStatus.SUCCESS
    assert harness.log[-1].severity is Severity.SUCCESS
    assert harness.log[-1].text == "Approved by alice"


async def test_as_many_different_people_as_wanted_must_approve() -> None:
    """The same person twice is one person."""
    harness = StageHarness(WaitApproval())
    for name in ("alice", "alice", "bob"):
        harness.send(CommandKind.APPROVE, by=name)

    async with asyncio.timeout(LIMIT):
        result = await harness.run("WAIT_APPROVAL", {"minApproverNum": 2})

    assert result.status is StageStatus.SUCCESS
    assert harness.metadata[APPROVED_USERS] == "alice, bob"
    assert harness.metadata[DISPLAY_KEY] == "Approved by alice, bob"


async def test_a_partial_approval_is_kept_before_the_rest_comes() -> None:
    harness = StageHarness(WaitApproval())
    async with asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(harness.run("WAIT_APPROVAL", {"minApproverNum": 2}))
        harness.send(CommandKind.APPROVE, by="alice")
        await harness.wait_logged("Approved by alice; 1 more approval needed")

        assert harness.metadata[APPROVED_USERS] == "alice"
        assert harness.metadata[DISPLAY_KEY] == "Approved by alice; 1 more approval needed"
        assert not waiting.done()
        waiting.cancel()


async def test_kept_approvals_count_after_a_restart() -> None:
    harness = StageHarness(WaitApproval())
    harness.metadata[APPROVED_USERS] = "alice"
    harness.send(CommandKind.APPROVE, by="alice")  # commands from before are told again
    harness.send(CommandKind.APPROVE, by="bob")

    async with asyncio.timeout(LIMIT):
        result = await harness.run("WAIT_APPROVAL", {"minApproverNum": 2})

    assert result.status is StageStatus.SUCCESS
    assert harness.metadata[APPROVED_USERS] == "alice, bob"


async def test_enough_kept_approvals_end_the_wait_at_once() -> None:
    harness = StageHarness(WaitApproval())
    harness.metadata[APPROVED_USERS] = "alice, bob"

    async with asyncio.timeout(LIMIT):
        result = await harness.run("WAIT_APPROVAL", {"minApproverNum": 2})

    assert result.status is StageStatus.SUCCESS


async def test_a_name_with_a_comma_is_still_one_person_after_a_restart() -> None:
    """Otherwise one person could be two, and two approvals one person's."""
    first = StageHarness(WaitApproval())
    async with asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(first.run("WAIT_APPROVAL", {"minApproverNum": 2}))
        first.send(CommandKind.APPROVE, by="CN=alice, OU=shop")
        await first.wait_logged("1 more approval needed")
        waiting.cancel()
    second = StageHarness(WaitApproval())
    second.metadata.values.update(first.metadata.values)

    async with asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(second.run("WAIT_APPROVAL", {"minApproverNum": 2}))
        await second.wait_logged("Waiting for 1 approval")

        assert not waiting.done()
        waiting.cancel()


async def test_other_commands_approve_nothing() -> None:
    harness = StageHarness(WaitApproval())
    harness.send(CommandKind.SKIP, by="mallory")
    harness.send(CommandKind.APPROVE, by="alice")

    async with asyncio.timeout(LIMIT):
        await harness.run("WAIT_APPROVAL", {})

    assert harness.metadata[APPROVED_USERS] == "alice"


async def test_the_author_of_the_commit_does_not_count_when_excluded() -> None:
    """Two pairs of eyes are two only if they are of two people."""
    harness = StageHarness(WaitApproval())
    author = harness.deployment.commit.author
    for name in (author, author.upper(), "alice"):
        harness.send(CommandKind.APPROVE, by=name)

    async with asyncio.timeout(LIMIT):
        result = await harness.run("WAIT_APPROVAL", {"excludeAuthor": True})

    assert result.status is StageStatus.SUCCESS
    assert harness.metadata[APPROVED_USERS] == "alice"
    assert f"The approval of {author} does not count: the author of the commit" in harness.text


@pytest.mark.parametrize("by", ["Dev", "Dev <dev@example.com>", "dev@example.com"])
async def test_the_author_is_known_by_name_and_address(by: str) -> None:
    example = example_deployment()
    commit = replace(example.commit, author="Dev <dev@example.com>")
    harness = StageHarness(WaitApproval(), deployment=replace(example, commit=commit))
    harness.send(CommandKind.APPROVE, by=by)
    harness.send(CommandKind.APPROVE, by="alice")

    async with asyncio.timeout(LIMIT):
        await harness.run("WAIT_APPROVAL", {"excludeAuthor": True})

    assert harness.metadata[APPROVED_USERS] == "alice"


async def test_the_author_counts_unless_excluded() -> None:
    harness = StageHarness(WaitApproval())
    harness.send(CommandKind.APPROVE, by=harness.deployment.commit.author)

    async with asyncio.timeout(LIMIT):
        result = await harness.run("WAIT_APPROVAL", {})

    assert result.status is StageStatus.SUCCESS


async def test_a_quorum_that_needs_the_excluded_author_fails_at_once() -> None:
    options = {"approvers": ["dev", "alice"], "minApproverNum": 2, "excludeAuthor": True}

    async with asyncio.timeout(LIMIT):
        result = await StageHarness(WaitApproval()).run("WAIT_APPROVAL", options)

    assert result.status is StageStatus.FAILURE
    assert result.reason == (
        "2 approvals needed, and without the author of the commit there are 1 approvers"
        " (name more approvers)"
    )


async def test_who_is_not_an_approver_does_not_count() -> None:
    harness = StageHarness(WaitApproval())
    harness.send(CommandKind.APPROVE, by="mallory")
    harness.send(CommandKind.APPROVE, by="bob")

    async with asyncio.timeout(LIMIT):
        await harness.run("WAIT_APPROVAL", {"approvers": ["alice", "bob"]})

    assert harness.metadata[APPROVED_USERS] == "bob"


async def test_the_log_says_whose_approval_is_waited_for() -> None:
    harness = StageHarness(WaitApproval())
    harness.send(CommandKind.APPROVE, by="alice")

    async with asyncio.timeout(LIMIT):
        await harness.run("WAIT_APPROVAL", {"approvers": ["alice", "bob"]})

    assert harness.log[0].text == "Waiting for 1 approval from alice, bob"


async def test_the_stage_can_be_approved_by_its_approvers_only() -> None:
    (planned,) = StageHarness(WaitApproval()).plan(("WAIT_APPROVAL", {"approvers": ["alice"]}))

    assert planned.operation is Operation.APPROVE
    assert planned.operators == ("alice",)
    assert not planned.rollback


async def test_no_approvers_means_anyone() -> None:
    (planned,) = StageHarness(WaitApproval()).plan(("WAIT_APPROVAL", {}))

    assert planned.operation is Operation.APPROVE
    assert planned.operators == ()


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        ({"minApproverNum": -1}, "stages[0].with.minApproverNum: must be 1 or more: -1"),
        (
            {"approvers": ["alice", "alice"], "minApproverNum": 2},
            (
                "stages[0].with.minApproverNum: 2 approvals are wanted from 1 approvers "
                "(name more approvers, or ask for fewer approvals)"
            ),
        ),
        (
            {"approvers": "alice"},
            "stages[0].with.approvers: expected a list, got the text 'alice'",
        ),
    ],
)
async def test_wrong_options_are_told_when_the_deployment_is_planned(
    options: dict[str, object], fault: str
) -> None:
    assert StageHarness(WaitApproval()).faults(("WAIT_APPROVAL", options)) == [fault]


async def test_options_of_older_files_that_piped_reads_are_no_concern_here() -> None:
    harness = StageHarness(WaitApproval())
    harness.send(CommandKind.APPROVE, by="alice")

    async with asyncio.timeout(LIMIT):
        await harness.run("WAIT_APPROVAL", {"timeout": "30m", "skipOn": {"paths": ["*.md"]}})

    assert "unknown" not in harness.text
