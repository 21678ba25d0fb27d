# SPDX-License-Identifier: Apache-2.0
"""Stages: which status may follow which, and what is rolled back in which order."""

from collections.abc import Sequence

import pytest

from pipecd_model import stage as stages
from pipecd_wire.model import deployment_pb2 as pb

# The seven stages of the script-run guide, with the letters of its scripts.
GUIDE = (
    "K8S_CANARY_ROLLOUT",
    "WAIT",
    "SCRIPT_RUN",
    "K8S_PRIMARY_ROLLOUT",
    "SCRIPT_RUN",
    "K8S_CANARY_CLEAN",
    "SCRIPT_RUN",
)


def planned(names: Sequence[str], *, platform_rollback: str = "K8S_ROLLBACK") -> pb.Deployment:
    """Plan as piped does: forward stages, then rollback stages sorted by index alone."""
    forward = [
        pb.PipelineStage(id=f"s{index}", name=name, index=index) for index, name in enumerate(names)
    ]
    rollback = [
        pb.PipelineStage(id=f"r{index}", name="SCRIPT_RUN_ROLLBACK", index=index, rollback=True)
        for index, name in enumerate(names)
        if name == "SCRIPT_RUN"
    ]
    platform = [index for index, name in enumerate(names) if name.startswith("K8S")]
    if platform:
        rollback.append(
            pb.PipelineStage(id="p", name=platform_rollback, index=platform[0], rollback=True)
        )
    return pb.Deployment(stages=[*forward, *sorted(rollback, key=lambda stage: stage.index)])


def stopped(deployment: pb.Deployment, at: int, status: pb.StageStatus.ValueType) -> pb.Deployment:
    for stage in deployment.stages:
        if stage.rollback or stage.index > at:
            continue
        stage.status = status if stage.index == at else pb.STAGE_SUCCESS
    return deployment


def rolled_back(deployment: pb.Deployment) -> list[str]:
    return [stage.id for stage in stages.rollback_stages(deployment)]


@pytest.mark.parametrize("status", [pb.STAGE_FAILURE, pb.STAGE_CANCELLED, pb.STAGE_RUNNING])
@pytest.mark.parametrize(
    ("at", "scripts"),
    [
        (0, []),
        (1, []),
        (2, ["r2"]),
        (3, ["r2"]),
        (4, ["r2", "r4"]),
        (5, ["r2", "r4"]),
        (6, ["r2", "r4", "r6"]),
    ],
)
def test_the_guides_pipeline_rolls_back_the_platform_and_then_the_scripts_that_had_started(
    at: int, scripts: list[str], status: pb.StageStatus.ValueType
) -> None:
    deployment = stopped(planned(GUIDE), at, status)

    assert rolled_back(deployment) == ["p", *scripts]


def test_a_script_before_the_platforms_first_stage_is_still_rolled_back_after_it() -> None:
    """Sorted by index alone the script would come first, against what the guide promises."""
    deployment = stopped(planned(("SCRIPT_RUN", "K8S_SYNC")), 1, pb.STAGE_FAILURE)

    assert rolled_back(deployment) == ["p", "r0"]


def test_a_skipped_script_has_nothing_to_undo() -> None:
    deployment = stopped(planned(GUIDE), 3, pb.STAGE_FAILURE)
    deployment.stages[2].status = pb.STAGE_SKIPPED

    assert rolled_back(deployment) == ["p"]


def test_without_planned_rollback_stages_nothing_is_rolled_back() -> None:
    deployment = stopped(planned(GUIDE), 6, pb.STAGE_FAILURE)
    forward = [stage for stage in deployment.stages if not stage.rollback]

    assert stages.rollback_stages(pb.Deployment(stages=forward)) == ()


def test_platform_rollbacks_run_by_index() -> None:
    deployment = pb.Deployment(
        stages=[
            pb.PipelineStage(id="late", name="TERRAFORM_ROLLBACK", index=3, rollback=True),
            pb.PipelineStage(id="early", name="K8S_ROLLBACK", index=1, rollback=True),
        ]
    )

    assert rolled_back(deployment) == ["early", "late"]


def test_an_older_stored_deployment_is_understood_by_the_names_of_its_stages() -> None:
    """There no stage is marked as rollback, and every platform's one has the same name."""
    deployment = stopped(planned(GUIDE, platform_rollback="ROLLBACK"), 4, pb.STAGE_FAILURE)
    for stage in deployment.stages:
        stage.rollback = False

    assert rolled_back(deployment) == ["p", "r2", "r4"]
    assert [stage.name for stage in stages.forward_stages(deployment)] == list(GUIDE)


def test_a_script_rollback_without_its_script_is_left_to_the_plugin() -> None:
    """The plugin keeps a mark of its own and does nothing for a script that never ran."""
    lone = pb.PipelineStage(id="r", name="SCRIPT_RUN_ROLLBACK", index=5, rollback=True)

    assert rolled_back(pb.Deployment(stages=[lone])) == ["r"]


def test_rollback_stages_that_ran_already_are_still_listed() -> None:
    """After a restart the order is the same; who runs them passes over the finished ones."""
    deployment = stopped(planned(GUIDE), 4, pb.STAGE_FAILURE)
    before = rolled_back(deployment)
    for stage in deployment.stages:
        if stage.rollback:
            stage.status = pb.STAGE_SUCCESS

    assert rolled_back(deployment) == before


@pytest.mark.parametrize("status", pb.StageStatus.values())
def test_a_stage_that_has_ended_stays_as_it_is(status: pb.StageStatus.ValueType) -> None:
    allowed = {new for new in pb.StageStatus.values() if stages.can_become(status, new)}

    if stages.is_completed(status):
        assert allowed == set()
    else:
        assert allowed >= set(pb.StageStatus.values()) - {pb.STAGE_NOT_STARTED_YET}


def test_a_running_stage_cannot_go_back_to_the_start() -> None:
    assert not stages.can_become(pb.STAGE_RUNNING, pb.STAGE_NOT_STARTED_YET)


def test_the_ends_of_a_stage_are_these() -> None:
    ends = {status for status in pb.StageStatus.values() if stages.is_completed(status)}

    assert ends == {
        pb.STAGE_SUCCESS,
        pb.STAGE_FAILURE,
        pb.STAGE_CANCELLED,
        pb.STAGE_SKIPPED,
        pb.STAGE_EXITED,
    }


def test_a_stage_has_the_number_that_people_count() -> None:
    assert stages.format_stage_number(pb.PipelineStage(name="WAIT", index=2)) == "3"
    assert (
        stages.format_stage_number(pb.PipelineStage(name="K8S_ROLLBACK", index=2, rollback=True))
        == "3r"
    )
    assert stages.format_stage_number(pb.PipelineStage(name="SCRIPT_RUN_ROLLBACK", index=1)) == "2r"
    # That of a v0 piped is for the whole deployment, and always has the index 0.
    assert stages.format_stage_number(pb.PipelineStage(name="ROLLBACK", predefined=True)) == "r"


@pytest.mark.parametrize(
    ("status", "new", "attempt", "expected"),
    [
        (pb.STAGE_RUNNING, pb.STAGE_SUCCESS, 1, True),
        (pb.STAGE_RUNNING, pb.STAGE_SUCCESS, 0, False),
        (pb.STAGE_FAILURE, pb.STAGE_RUNNING, 2, True),
        (pb.STAGE_FAILURE, pb.STAGE_RUNNING, 1, False),
        (pb.STAGE_FAILURE, pb.STAGE_RUNNING, 0, False),
        (pb.STAGE_FAILURE, pb.STAGE_RUNNING, 3, False),
        (pb.STAGE_FAILURE, pb.STAGE_SUCCESS, 2, False),
        (pb.STAGE_SUCCESS, pb.STAGE_RUNNING, 2, False),
    ],
    ids=[
        "the attempt that runs ends",
        "an earlier attempt is too late",
        "the next attempt begins",
        "this attempt has failed for good",
        "an earlier attempt is too late after a failure, too",
        "no attempt is left out",
        "an attempt begins with running",
        "what succeeded is not tried again",
    ],
)
def test_an_attempt_follows_a_failure_and_no_other_status(
    status: int, new: int, attempt: int, expected: bool
) -> None:
    known = pb.PipelineStage(status=pb.StageStatus.ValueType(status), retried_count=1)

    assert stages.can_follow(known, pb.StageStatus.ValueType(new), attempt) is expected
