# SPDX-License-Identifier: Apache-2.0
"""Deployments: which status may follow which, and what belongs to one."""

import pytest

from pipecd_model import deployment as deployments
from pipecd_model.errors import NotFoundError
from pipecd_wire.model import deployment_pb2 as pb

OPEN = (
    pb.DEPLOYMENT_PENDING,
    pb.DEPLOYMENT_PLANNED,
    pb.DEPLOYMENT_RUNNING,
    pb.DEPLOYMENT_ROLLING_BACK,
)
ENDS = (pb.DEPLOYMENT_SUCCESS, pb.DEPLOYMENT_FAILURE, pb.DEPLOYMENT_CANCELLED)


@pytest.mark.parametrize("status", OPEN)
@pytest.mark.parametrize("end", ENDS)
def test_an_open_deployment_may_end_at_any_time(
    status: pb.DeploymentStatus.ValueType, end: pb.DeploymentStatus.ValueType
) -> None:
    assert deployments.can_become(status, end)


@pytest.mark.parametrize("status", ENDS)
@pytest.mark.parametrize("new", pb.DeploymentStatus.values())
def test_a_completed_deployment_stays_as_it_is(
    status: pb.DeploymentStatus.ValueType, new: pb.DeploymentStatus.ValueType
) -> None:
    assert deployments.is_completed(status)
    assert not deployments.can_become(status, new)


def test_an_open_deployment_goes_forward_or_repeats_itself() -> None:
    allowed = {
        (status, new) for status in OPEN for new in OPEN if deployments.can_become(status, new)
    }

    assert allowed == {
        (status, new) for status in OPEN for new in OPEN if OPEN.index(status) <= OPEN.index(new)
    }


def test_a_stage_is_found_by_its_id() -> None:
    deployment = pb.Deployment(id="d", stages=[pb.PipelineStage(id="a"), pb.PipelineStage(id="b")])

    assert deployments.stage(deployment, "b") is deployment.stages[1]


def test_a_stage_that_is_not_there_is_not_found() -> None:
    with pytest.raises(NotFoundError, match="the deployment 'd' has no stage 'x'"):
        deployments.stage(pb.Deployment(id="d"), "x")
