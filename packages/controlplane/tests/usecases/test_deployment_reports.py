# SPDX-License-Identifier: Apache-2.0
"""Reports: forwards they move, repeats change nothing, backwards they are ignored."""

from typing import Any

import pytest

from pipecd_controlplane.usecases import deployment_reports as reports
from pipecd_model.errors import ConfigError
from pipecd_test_support.controlplane_messages import MessageBuilder
from pipecd_wire.model import common_pb2
from pipecd_wire.model import deployment_pb2 as pb
from pipecd_wire.pipecd.push import push_pb2 as push
from pipecd_wire.pipedservice import service_pb2 as pipedservice

OPEN = [
    pb.DEPLOYMENT_PENDING,
    pb.DEPLOYMENT_PLANNED,
    pb.DEPLOYMENT_RUNNING,
    pb.DEPLOYMENT_ROLLING_BACK,
]
FINAL = [pb.DEPLOYMENT_SUCCESS, pb.DEPLOYMENT_FAILURE, pb.DEPLOYMENT_CANCELLED]


def end(
    status: pb.DeploymentStatus.ValueType, **fields: Any
) -> pipedservice.ReportDeploymentCompletedRequest:
    return pipedservice.ReportDeploymentCompletedRequest(
        deployment_id="d1", status=status, completed_at=99, **fields
    )


def test_a_plan_is_taken_whole(build: MessageBuilder) -> None:
    deployment = build.deployment()

    reports.apply_plan(
        deployment,
        build.planned(
            "d1",
            build.stage("s1"),
            build.stage("s2"),
            summary="sum",
            status_reason="why",
            running_commit_hash="abc",
            running_config_filename="app.pipecd.yaml",
            versions=[common_pb2.ArtifactVersion(version="1")],
            sync_strategy=common_pb2.PIPELINE,
        ),
    )

    assert deployment.status == pb.DEPLOYMENT_PLANNED
    assert (deployment.summary, deployment.status_reason) == ("sum", "why")
    assert deployment.running_commit_hash == "abc"
    assert deployment.running_config_filename == "app.pipecd.yaml"
    assert deployment.trigger.sync_strategy == common_pb2.PIPELINE
    assert [stage.id for stage in deployment.stages] == ["s1", "s2"]
    assert [version.version for version in deployment.versions] == ["1"]


def test_versions_are_those_of_the_last_plan(build: MessageBuilder) -> None:
    """A plan whose answer was lost comes twice."""
    deployment = build.deployment()
    for version in ("1", "2", "2"):
        plan = build.planned("d1", versions=[common_pb2.ArtifactVersion(version=version)])
        reports.apply_plan(deployment, plan)

    assert [each.version for each in deployment.versions] == ["2"]


def test_a_plan_before_the_start_replaces_the_one_before(build: MessageBuilder) -> None:
    deployment = build.deployment(stages=[build.stage("old")])

    reports.apply_plan(deployment, build.planned("d1", build.stage("new")))

    assert [stage.id for stage in deployment.stages] == ["new"]


def test_an_empty_plan_replaces_too(build: MessageBuilder) -> None:
    deployment = build.deployment(stages=[build.stage("old")])

    reports.apply_plan(deployment, build.planned("d1"))

    assert list(deployment.stages) == []


def test_a_repeated_plan_does_not_undo_progress(build: MessageBuilder) -> None:
    deployment = build.deployment()
    plan = build.planned("d1", build.stage("s1"), build.stage("s2"))
    reports.apply_plan(deployment, plan)
    reports.apply_status(deployment, pb.DEPLOYMENT_RUNNING, "running")
    reports.apply_stage_status(
        deployment, build.stage_report("d1", "s1", pb.STAGE_SUCCESS, status_reason="ok"), 7
    )
    reports.merge_stage_metadata(deployment, "s1", {"saved": "yes"})
    before = pb.Deployment()
    before.CopyFrom(deployment)

    reports.apply_plan(deployment, plan)

    assert deployment == before


def test_a_second_plan_may_add_rollback_stages(build: MessageBuilder) -> None:
    """They are built when a deployment without them is cancelled with a forced rollback."""
    deployment = build.deployment(
        status=pb.DEPLOYMENT_RUNNING, stages=[build.stage("s1", status=pb.STAGE_RUNNING)]
    )

    reports.apply_plan(
        deployment, build.planned("d1", build.stage("s1"), build.stage("r1", rollback=True))
    )

    assert deployment.status == pb.DEPLOYMENT_RUNNING
    assert [(stage.id, stage.status) for stage in deployment.stages] == [
        ("s1", pb.STAGE_RUNNING),
        ("r1", pb.STAGE_NOT_STARTED_YET),
    ]


def test_a_late_first_plan_takes_no_stage_away(build: MessageBuilder) -> None:
    deployment = build.deployment(
        status=pb.DEPLOYMENT_ROLLING_BACK, stages=[build.stage("s1"), build.stage("r1")]
    )

    reports.apply_plan(deployment, build.planned("d1", build.stage("s1")))

    assert [stage.id for stage in deployment.stages] == ["s1", "r1"]


@pytest.mark.parametrize("status", FINAL)
def test_a_completed_deployment_takes_no_plan(
    build: MessageBuilder, status: pb.DeploymentStatus.ValueType
) -> None:
    deployment = build.deployment(status=status, stages=[build.stage("s1")])
    before = pb.Deployment()
    before.CopyFrom(deployment)

    reports.apply_plan(deployment, build.planned("d1", build.stage("s9"), summary="late"))

    assert deployment == before


@pytest.mark.parametrize("now", [*OPEN, *FINAL])
@pytest.mark.parametrize("reported", [pb.DEPLOYMENT_RUNNING, pb.DEPLOYMENT_ROLLING_BACK])
def test_a_status_never_goes_back(
    build: MessageBuilder,
    now: pb.DeploymentStatus.ValueType,
    reported: pb.DeploymentStatus.ValueType,
) -> None:
    deployment = build.deployment(status=now, status_reason="before")

    reports.apply_status(deployment, reported, "after")

    moves = now not in FINAL and reported >= now
    assert deployment.status == (reported if moves else now)
    assert deployment.status_reason == ("after" if moves else "before")


@pytest.mark.parametrize("status", OPEN)
def test_an_open_status_is_no_end(
    build: MessageBuilder, status: pb.DeploymentStatus.ValueType
) -> None:
    with pytest.raises(ConfigError, match="is not the end of a deployment"):
        reports.apply_completed(build.deployment(), end(status))


def test_the_end_brings_its_stages_along(build: MessageBuilder) -> None:
    deployment = build.deployment(
        status=pb.DEPLOYMENT_RUNNING,
        stages=[
            build.stage("done", status=pb.STAGE_SUCCESS, completed_at=5),
            build.stage("open", status=pb.STAGE_RUNNING),
            build.stage("other"),
        ],
    )

    reports.apply_completed(
        deployment,
        end(
            pb.DEPLOYMENT_CANCELLED,
            status_reason="by me",
            stage_statuses={
                "done": pb.STAGE_CANCELLED,
                "open": pb.STAGE_CANCELLED,
                "gone": pb.STAGE_CANCELLED,
            },
        ),
    )

    assert (deployment.status, deployment.completed_at) == (pb.DEPLOYMENT_CANCELLED, 99)
    assert deployment.status_reason == "by me"
    assert [(stage.status, stage.completed_at) for stage in deployment.stages] == [
        (pb.STAGE_SUCCESS, 5),
        (pb.STAGE_CANCELLED, 99),
        (pb.STAGE_NOT_STARTED_YET, 0),
    ]


@pytest.mark.parametrize("second", FINAL)
def test_the_first_end_stays(build: MessageBuilder, second: pb.DeploymentStatus.ValueType) -> None:
    deployment = build.deployment(status=pb.DEPLOYMENT_RUNNING)
    reports.apply_completed(deployment, end(pb.DEPLOYMENT_SUCCESS, status_reason="done"))

    reports.apply_completed(deployment, end(second, status_reason="late"))

    assert (deployment.status, deployment.status_reason) == (pb.DEPLOYMENT_SUCCESS, "done")


def test_a_stage_moves_and_is_dated(build: MessageBuilder) -> None:
    deployment = build.deployment(status=pb.DEPLOYMENT_RUNNING, stages=[build.stage("s1")])

    reports.apply_stage_status(
        deployment,
        build.stage_report(
            "d1",
            "s1",
            pb.STAGE_FAILURE,
            status_reason="exit 1",
            requires=["s0"],
            completed_at=50,
            visible=True,
            retried_count=2,
        ),
        77,
    )

    stage = deployment.stages[0]
    assert (stage.status, stage.status_reason) == (pb.STAGE_FAILURE, "exit 1")
    assert (stage.completed_at, stage.updated_at) == (50, 77)
    assert (list(stage.requires), stage.visible, stage.retried_count) == (["s0"], True, 2)


def test_what_a_stage_requires_is_what_the_last_report_says(build: MessageBuilder) -> None:
    deployment = build.deployment(
        status=pb.DEPLOYMENT_RUNNING, stages=[build.stage("s1", requires=["before"])]
    )
    report = build.stage_report("d1", "s1", pb.STAGE_RUNNING, requires=["s0"])

    for _ in range(2):
        reports.apply_stage_status(deployment, report, 7)

    assert list(deployment.stages[0].requires) == ["s0"]


def test_a_stage_that_has_only_begun_is_not_completed(build: MessageBuilder) -> None:
    """Every report carries a time of completion, because its rule demands one."""
    deployment = build.deployment(stages=[build.stage("s1", requires=["s0"])])

    reports.apply_stage_status(deployment, build.stage_report("d1", "s1", pb.STAGE_RUNNING), 7)

    assert deployment.stages[0].completed_at == 0
    assert list(deployment.stages[0].requires) == ["s0"]


def test_a_repeated_stage_report_changes_nothing(build: MessageBuilder) -> None:
    deployment = build.deployment(stages=[build.stage("s1")])
    report = build.stage_report("d1", "s1", pb.STAGE_RUNNING, status_reason="x")
    reports.apply_stage_status(deployment, report, 7)
    before = pb.Deployment()
    before.CopyFrom(deployment)

    reports.apply_stage_status(deployment, report, 8)

    assert deployment == before


@pytest.mark.parametrize("now", [*pb.StageStatus.values()])
@pytest.mark.parametrize("reported", [*pb.StageStatus.values()])
def test_a_stage_never_goes_back(
    build: MessageBuilder, now: pb.StageStatus.ValueType, reported: pb.StageStatus.ValueType
) -> None:
    deployment = build.deployment(stages=[build.stage("s1", status=now)])

    reports.apply_stage_status(deployment, build.stage_report("d1", "s1", reported), 7)

    is_open = now in {pb.STAGE_NOT_STARTED_YET, pb.STAGE_RUNNING}
    forward = is_open and reported >= now
    assert deployment.stages[0].status == (reported if forward else now)


def test_a_late_start_does_not_reopen_a_completed_deployment(build: MessageBuilder) -> None:
    deployment = build.deployment(status=pb.DEPLOYMENT_CANCELLED, stages=[build.stage("s1")])

    reports.apply_stage_status(deployment, build.stage_report("d1", "s1", pb.STAGE_RUNNING), 7)

    assert deployment.stages[0].status == pb.STAGE_NOT_STARTED_YET


def test_an_unknown_stage_is_the_callers_mistake(build: MessageBuilder) -> None:
    with pytest.raises(ConfigError, match="has no stage 's9'"):
        reports.apply_stage_status(
            build.deployment(), build.stage_report("d1", "s9", pb.STAGE_RUNNING), 7
        )
    with pytest.raises(ConfigError, match="has no stage 's9'"):
        reports.merge_stage_metadata(build.deployment(), "s9", {"a": "b"})


def test_metadata_is_merged_not_replaced(build: MessageBuilder) -> None:
    """Upstream's server crashes here on a deployment without any."""
    deployment = build.deployment(stages=[build.stage("s1", metadata={"old": "1"})])

    reports.merge_metadata(deployment, {"a": "1"})
    reports.merge_metadata(deployment, {"b": "2"})
    reports.merge_shared_metadata(deployment, {"c": "3"})
    reports.merge_plugin_metadata(deployment, "wait", {"d": "4"})
    reports.merge_plugin_metadata(deployment, "wait", {"d": "5", "e": "6"})
    reports.merge_stage_metadata(deployment, "s1", {"new": "2"})

    assert dict(deployment.metadata) == {"a": "1", "b": "2"}
    assert dict(deployment.metadata_v2.shared.keyValues) == {"c": "3"}
    assert dict(deployment.metadata_v2.plugins["wait"].keyValues) == {"d": "5", "e": "6"}
    assert dict(deployment.stages[0].metadata) == {"old": "1", "new": "2"}


def test_what_an_older_piped_leaves_out_is_filled_in(build: MessageBuilder) -> None:
    deployment = build.deployment(created_at=0, updated_at=0)
    reports.apply_created(deployment, 42)
    assert (deployment.created_at, deployment.updated_at) == (42, 42)

    reports.apply_plan(
        deployment,
        build.planned(
            "d1",
            build.stage("s1", name="WAIT_APPROVAL", metadata={"Approvers": "ann, bob"}),
            build.stage("s2", name="ANALYSIS"),
            build.stage("s3"),
            build.stage("s4", name="WAIT_APPROVAL", available_operation=pb.MANUAL_OPERATION_NONE),
        ),
    )

    assert [stage.available_operation for stage in deployment.stages] == [
        pb.MANUAL_OPERATION_APPROVE,
        pb.MANUAL_OPERATION_SKIP,
        pb.MANUAL_OPERATION_UNKNOWN,
        pb.MANUAL_OPERATION_NONE,
    ]
    assert list(deployment.stages[0].authorized_operators) == ["ann", "bob"]


def test_a_deployment_that_comes_with_its_stages_has_their_operations(
    build: MessageBuilder,
) -> None:
    deployment = build.deployment(stages=[build.stage("s1", name="WAIT_APPROVAL")])

    reports.apply_created(deployment, 42)

    assert deployment.stages[0].available_operation == pb.MANUAL_OPERATION_APPROVE


def stage_report(
    status: pb.StageStatus.ValueType, deployment_id: str = "d1", **fields: Any
) -> push.ProgressReport:
    report = pipedservice.ReportStageStatusChangedRequest(
        deployment_id=deployment_id, stage_id="s1", status=status, **fields
    )
    return push.ProgressReport(stage_status=report)


def status_report(
    status: pb.DeploymentStatus.ValueType, deployment_id: str = "d1"
) -> push.ProgressReport:
    report = pipedservice.ReportDeploymentStatusChangedRequest(
        deployment_id=deployment_id, status=status, status_reason="on its way"
    )
    return push.ProgressReport(deployment_status=report)


def test_several_reports_in_one_call_are_applied_in_their_order(build: MessageBuilder) -> None:
    deployment = build.deployment(id="d1", stages=[build.stage("s1")])

    reports.apply_progress(
        deployment,
        [
            status_report(pb.DEPLOYMENT_RUNNING),
            stage_report(pb.STAGE_RUNNING),
            stage_report(pb.STAGE_FAILURE, completed_at=7),
        ],
        now=9,
    )

    assert (deployment.status, deployment.status_reason) == (pb.DEPLOYMENT_RUNNING, "on its way")
    [stage] = deployment.stages
    assert (stage.status, stage.completed_at, stage.updated_at) == (pb.STAGE_FAILURE, 7, 9)


@pytest.mark.parametrize(
    ("report", "sentence"),
    [
        (stage_report(pb.STAGE_RUNNING, "d2"), "about the deployment 'd2'"),
        (status_report(pb.DEPLOYMENT_RUNNING, "d2"), "about the deployment 'd2'"),
        (push.ProgressReport(), "of an unknown kind"),
    ],
    ids=["a stage of another one", "the status of another one", "nothing"],
)
def test_a_call_with_a_report_that_does_not_belong_to_it_is_refused(
    build: MessageBuilder, report: push.ProgressReport, sentence: str
) -> None:
    deployment = build.deployment(id="d1", stages=[build.stage("s1")])

    with pytest.raises(ConfigError, match=sentence):
        reports.apply_progress(deployment, [report], now=9)


def test_a_new_attempt_of_a_stage_that_failed_runs(build: MessageBuilder) -> None:
    deployment = build.deployment(
        id="d1", stages=[build.stage("s1", status=pb.STAGE_FAILURE, completed_at=5)]
    )

    reports.apply_progress(deployment, [stage_report(pb.STAGE_RUNNING, retried_count=1)], now=9)

    [stage] = deployment.stages
    assert (stage.status, stage.retried_count) == (pb.STAGE_RUNNING, 1)
