# SPDX-License-Identifier: Apache-2.0
"""Stages and deployments: what holds whatever happened to them."""

from hypothesis import given
from hypothesis import strategies as st

from pipecd_model import deployment as deployments
from pipecd_model import stage as stages
from pipecd_wire.model import deployment_pb2 as pb

names = st.sampled_from(["WAIT", "SCRIPT_RUN", "K8S_SYNC", "TERRAFORM_APPLY"])
statuses = st.sampled_from(pb.StageStatus.values())


@st.composite
def deployment(draw: st.DrawFn) -> pb.Deployment:
    forward = [
        pb.PipelineStage(id=f"f{index}", name=name, index=index, status=draw(statuses))
        for index, name in enumerate(draw(st.lists(names, max_size=8)))
    ]
    rollback = [
        pb.PipelineStage(
            id=f"r{stage.index}",
            name="SCRIPT_RUN_ROLLBACK" if stage.name == "SCRIPT_RUN" else f"{stage.name}_ROLLBACK",
            index=stage.index,
            rollback=True,
        )
        for stage in forward
        if stage.name != "WAIT"
    ]
    return pb.Deployment(stages=[*forward, *draw(st.permutations(rollback))])


@given(deployment())
def test_rollback_runs_platforms_then_scripts_each_in_pipeline_order(given: pb.Deployment) -> None:
    run = stages.rollback_stages(given)

    scripts = [stage.name == "SCRIPT_RUN_ROLLBACK" for stage in run]
    assert scripts == sorted(scripts)
    for kind in (True, False):
        indexes = [stage.index for stage in run if (stage.name == "SCRIPT_RUN_ROLLBACK") is kind]
        assert indexes == sorted(indexes)


@given(deployment())
def test_a_script_is_rolled_back_exactly_when_it_had_started(given: pb.Deployment) -> None:
    run = {stage.index for stage in stages.rollback_stages(given) if "SCRIPT" in stage.name}

    assert run == {
        stage.index
        for stage in given.stages
        if stage.name == "SCRIPT_RUN"
        and stage.status not in {pb.STAGE_NOT_STARTED_YET, pb.STAGE_SKIPPED}
    }


@given(deployment())
def test_every_platform_rollback_runs(given: pb.Deployment) -> None:
    run = {stage.id for stage in stages.rollback_stages(given)}

    assert run >= {
        stage.id for stage in given.stages if stage.rollback and stage.name != "SCRIPT_RUN_ROLLBACK"
    }


@given(st.lists(statuses, max_size=20))
def test_a_stage_has_at_most_one_end(reported: list[pb.StageStatus.ValueType]) -> None:
    """Reports may come twice, late or in a wrong order."""
    status: pb.StageStatus.ValueType = pb.STAGE_NOT_STARTED_YET
    seen = [status]
    for new in reported:
        if stages.can_become(status, new):
            status = new
            seen.append(new)

    assert sum(stages.is_completed(each) for each in seen) <= 1
    assert all(not stages.is_completed(each) for each in seen[:-1])


@given(st.lists(st.sampled_from(pb.DeploymentStatus.values()), max_size=20))
def test_a_deployment_never_goes_back(reported: list[pb.DeploymentStatus.ValueType]) -> None:
    status: pb.DeploymentStatus.ValueType = pb.DEPLOYMENT_PENDING
    seen = [status]
    for new in reported:
        if deployments.can_become(status, new):
            status = new
            seen.append(new)

    assert seen == sorted(seen)
    assert sum(deployments.is_completed(each) for each in seen) <= 1
