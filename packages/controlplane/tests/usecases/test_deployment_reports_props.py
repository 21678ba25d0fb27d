# SPDX-License-Identifier: Apache-2.0
"""Whatever comes in whatever order: no status goes back, and a repeat changes nothing."""

from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st

from pipecd_controlplane.usecases import deployment_reports as reports
from pipecd_model import deployment as deployments
from pipecd_model import stage as stages
from pipecd_wire.model import deployment_pb2 as pb
from pipecd_wire.pipedservice import service_pb2 as pipedservice

Report = Callable[[pb.Deployment], None]

STAGES = ("s1", "s2", "r1")


def planned(ids: list[str]) -> Report:
    request = pipedservice.ReportDeploymentPlannedRequest(
        deployment_id="d1", stages=[pb.PipelineStage(id=each, name="X") for each in ids]
    )
    return lambda deployment: reports.apply_plan(deployment, request)


def moved(status: pb.DeploymentStatus.ValueType) -> Report:
    return lambda deployment: reports.apply_status(deployment, status, "")


def ended(status: pb.DeploymentStatus.ValueType) -> Report:
    request = pipedservice.ReportDeploymentCompletedRequest(
        deployment_id="d1",
        status=status,
        completed_at=9,
        stage_statuses=dict.fromkeys(STAGES, pb.STAGE_CANCELLED),
    )
    return lambda deployment: reports.apply_completed(deployment, request)


def stage_moved(stage_id: str, status: pb.StageStatus.ValueType) -> Report:
    request = pipedservice.ReportStageStatusChangedRequest(
        deployment_id="d1", stage_id=stage_id, status=status, completed_at=5
    )

    def report(deployment: pb.Deployment) -> None:
        if any(stage.id == stage_id for stage in deployment.stages):
            reports.apply_stage_status(deployment, request, 7)

    return report


REPORTS = st.one_of(
    st.lists(st.sampled_from(STAGES), unique=True).map(planned),
    st.sampled_from([pb.DEPLOYMENT_RUNNING, pb.DEPLOYMENT_ROLLING_BACK]).map(moved),
    st.sampled_from(sorted(deployments.COMPLETED)).map(ended),
    st.builds(stage_moved, st.sampled_from(STAGES), st.sampled_from(pb.StageStatus.values())),
)


def rank(status: pb.StageStatus.ValueType) -> int:
    """Not started, running, over: and over is one rank, whichever way."""
    return 2 if stages.is_completed(status) else int(status)


@settings(max_examples=300, deadline=None)
@given(st.lists(REPORTS, max_size=25))
def test_no_status_goes_back_and_a_repeat_changes_nothing(told: list[Report]) -> None:
    deployment = pb.Deployment(id="d1")
    for report in told:
        before = pb.Deployment()
        before.CopyFrom(deployment)

        report(deployment)

        if deployments.is_completed(before.status):
            assert deployment.status == before.status
        assert deployments.is_completed(deployment.status) or deployment.status >= before.status
        now = {stage.id: stage.status for stage in deployment.stages}
        for stage in before.stages:
            if stage.id in now:
                assert rank(now[stage.id]) >= rank(stage.status)
                assert not stages.is_completed(stage.status) or now[stage.id] == stage.status
            else:
                assert before.status not in reports.BEGUN
        once = pb.Deployment()
        once.CopyFrom(deployment)
        report(deployment)
        assert deployment == once
