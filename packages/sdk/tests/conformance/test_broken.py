# SPDX-License-Identifier: Apache-2.0
"""The kit finds each fault of a plugin that is broken on purpose, and names it."""

import sys
from pathlib import Path

import pytest

from pipecd_sdk.conformance import (
    CaseOutcome,
    CaseVerdict,
    Profile,
    StageProfile,
    judge_plugin,
    load_cases,
)

# These faults show when a limit has passed.
SLOW = {"blocks", "ignores-term"}

BROKEN_PLUGIN = Path(__file__).parent / "broken_plugin.py"

PROFILE = Profile(
    name="work",
    deploy_targets=({"name": "here"},),
    stages=(
        StageProfile(
            name="WORK",
            with_={},
            results=("SUCCESS",),
            long={"seconds": 600},
            wrong={"seconds": "soon"},
        ),
    ),
)

FAULTS = {
    "does-not-start": ("starts", "no license found"),
    "doubled-stage": ("names-stages", "without doubles"),
    "rollback-in-quick-sync": ("quick-sync", "must be not there"),
    "counts-from-zero": ("forward-indexes", "must be exactly [2], and is 0"),
    "own-rollback-index": ("rollback-indexes", "and is 99"),
    "rollback-unasked": ("no-rollback-unasked", "must be not there"),
    "no-times": ("complete-stages", "created_at must be positive, and is 0"),
    "own-id": ("complete-stages", "id must be empty, and is 'mine'"),
    "other-plan": ("same-plan", "index must be the same as in"),
    "never-final": ("ends", "status must be among"),
    "log-without-time": ("log", "ReportStageLogs"),
    "log-left-open": ("log", "sealed must be filled"),
    "blocks": ("two-at-once", "must answer OK, and answered DEADLINE_EXCEEDED"),
    "takes-wrong-options": ("wrong-options", "status must be among"),
    "dies-of-garbage": ("garbage-options", "and answered UNAVAILABLE"),
    "runs-anything": ("unknown-stage", "status must be among"),
    "any-target": ("no-deploy-target", "must answer INVALID_ARGUMENT, and answered OK"),
    "ignores-term": ("stops-idle", "it lived on for"),
    "no-sync-state": ("live-state", "has_sync_state must be filled"),
    "shows-anything": ("details-of-nothing", "must answer NOT_FOUND or"),
    "no-preview-result": ("preview", "must be exactly ['here'], and is nothing"),
}


async def verdicts(fault: str, *cases: str, profile: Profile = PROFILE) -> list[CaseVerdict]:
    chosen = [case for case in load_cases() if not cases or case.id in cases]
    command = [sys.executable, str(BROKEN_PLUGIN), fault]
    patience = 0.1 if fault in SLOW else 1.0
    return [each async for each in judge_plugin(command, profile, chosen, patience_factor=patience)]


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_fault_is_found_and_named(fault: str) -> None:
    case, reason = FAULTS[fault]

    [verdict] = await verdicts(fault, case)

    assert verdict.outcome is CaseOutcome.BROKEN
    assert reason in verdict.reason


async def test_without_a_fault_every_promise_holds() -> None:
    judged = await verdicts("none")

    broken = [(each.case.id, each.reason) for each in judged if each.outcome is CaseOutcome.BROKEN]
    assert broken == []
    not_asked = {each.case.id for each in judged if each.outcome is CaseOutcome.NOT_ASKED}
    assert not_asked == {"introduces-itself", "stage-plugin-has-no-opinion", "stops-busy"}


@pytest.mark.parametrize(
    ("habit", "cases"),
    [
        ("needs-a-tool", ("starts", "ends")),
        ("no-platform", ("unknown-services",)),
        ("insists", ("ends", "again")),
    ],
)
async def test_what_a_real_agent_takes_is_no_fault(habit: str, cases: tuple[str, ...]) -> None:
    judged = await verdicts(habit, *cases)

    assert [(each.outcome, each.reason) for each in judged] == [(CaseOutcome.HOLDS, "")] * len(
        cases
    )


async def test_a_plugin_without_management_may_finish_its_stage_before_it_ends() -> None:
    """An agent asks it to stop only when its stages are over, and ends it after its own grace."""
    [verdict] = await verdicts("finishes-first", "stops-busy")

    assert verdict.outcome is CaseOutcome.NOT_ASKED
    assert "plugin management" in verdict.reason


async def test_a_stage_is_not_run_with_options_that_its_author_did_not_give() -> None:
    stage = StageProfile(name="WORK", long={"seconds": 600})
    profile = Profile(name="work", deploy_targets=({"name": "here"},), stages=(stage,))

    judged = await verdicts("none", "ends", "log", "again", "cancel", profile=profile)

    assert {(each.case.id, each.outcome) for each in judged} == {
        ("ends", CaseOutcome.NOT_ASKED),
        ("log", CaseOutcome.NOT_ASKED),
        ("again", CaseOutcome.NOT_ASKED),
        ("cancel", CaseOutcome.HOLDS),
    }
    assert "(`with`)" in judged[0].reason


async def test_a_tool_that_is_there_already_counts_as_installed(tmp_path: Path) -> None:
    (tmp_path / "tool-1").write_text("prepared")
    command = [sys.executable, str(BROKEN_PLUGIN), "needs-a-tool"]
    chosen = [case for case in load_cases() if case.id == "starts"]

    judged = [each async for each in judge_plugin(command, PROFILE, chosen, tools=tmp_path)]

    assert [each.outcome for each in judged] == [CaseOutcome.HOLDS]
    assert (tmp_path / "tool-1").read_text() == "prepared"


async def test_nothing_more_is_asked_of_a_plugin_that_does_not_start() -> None:
    first, *others = await verdicts("does-not-start")

    assert first.outcome is CaseOutcome.BROKEN
    assert {each.outcome for each in others} == {CaseOutcome.NOT_ASKED}
