# SPDX-License-Identifier: Apache-2.0
"""Commands: what is built, and what cannot or may not be asked."""

from datetime import UTC, datetime
from typing import Any

import pytest

from pipecd_model import command
from pipecd_model.errors import DeniedError, NotFoundError, StateError
from pipecd_wire.model import deployment_pb2 as pb
from pipecd_wire.model.application_pb2 import Application
from pipecd_wire.model.command_pb2 import COMMAND_SUCCEEDED, Command
from pipecd_wire.model.common_pb2 import PIPELINE

NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)


def application(**fields: Any) -> Application:
    defaults: dict[str, Any] = {"id": "a1", "name": "shop", "piped_id": "p1", "project_id": "ours"}
    return Application(**defaults | fields)


def deployment(
    *stages: pb.PipelineStage, status: pb.DeploymentStatus.ValueType = pb.DEPLOYMENT_RUNNING
) -> pb.Deployment:
    return pb.Deployment(
        id="d1",
        application_id="a1",
        piped_id="p1",
        project_id="ours",
        status=status,
        stages=stages,
    )


def approval(**fields: Any) -> pb.PipelineStage:
    defaults: dict[str, Any] = {
        "id": "s1",
        "name": "WAIT_APPROVAL",
        "status": pb.STAGE_RUNNING,
        "available_operation": pb.MANUAL_OPERATION_APPROVE,
    }
    return pb.PipelineStage(**defaults | fields)


def test_sync_asks_the_applications_piped() -> None:
    built = command.sync(application(), by="ann", at=NOON, strategy=PIPELINE)

    assert built == Command(
        id=built.id,
        type=Command.SYNC_APPLICATION,
        piped_id="p1",
        application_id="a1",
        project_id="ours",
        commander="ann",
        sync_application=Command.SyncApplication(application_id="a1", sync_strategy=PIPELINE),
        created_at=int(NOON.timestamp()),
        updated_at=int(NOON.timestamp()),
    )
    assert not command.is_handled(built)


def test_each_command_has_an_id_of_its_own() -> None:
    first, second = (command.sync(application(), by="ann", at=NOON) for _ in range(2))

    assert first.id
    assert first.id != second.id


@pytest.mark.parametrize("state", ["disabled", "deleted"])
def test_an_application_that_is_off_cannot_be_synced(state: str) -> None:
    with pytest.raises(StateError, match=f"'shop' is {state}"):
        command.sync(application(**{state: True}), by="ann", at=NOON)


def test_cancel_carries_what_was_said_about_rollback() -> None:
    built = command.cancel(deployment(), by="ann", at=NOON, force_rollback=True)

    assert built.type == Command.CANCEL_DEPLOYMENT
    assert (built.deployment_id, built.application_id) == ("d1", "a1")
    assert built.cancel_deployment == Command.CancelDeployment(
        deployment_id="d1", force_rollback=True
    )


def test_a_queued_deployment_can_be_cancelled() -> None:
    built = command.cancel(deployment(status=pb.DEPLOYMENT_PENDING), by="ann", at=NOON)

    assert built.cancel_deployment.deployment_id == "d1"


def test_a_completed_deployment_cannot_be_cancelled() -> None:
    with pytest.raises(StateError, match="over already"):
        command.cancel(deployment(status=pb.DEPLOYMENT_SUCCESS), by="ann", at=NOON)


def test_approve_names_the_stage() -> None:
    built = command.approve(deployment(approval()), "s1", by="ann", at=NOON)

    assert built.type == Command.APPROVE_STAGE
    assert built.stage_id == "s1"
    assert built.approve_stage == Command.ApproveStage(deployment_id="d1", stage_id="s1")


def test_only_those_who_are_asked_may_approve() -> None:
    waiting = deployment(approval(authorized_operators=["bob", "eve"]))

    assert command.approve(waiting, "s1", by="bob", at=NOON).commander == "bob"
    with pytest.raises(DeniedError) as denied:
        command.approve(waiting, "s1", by="ann", at=NOON)
    assert denied.value.hint == "it waits for bob, eve"


def test_older_stages_keep_their_approvers_in_metadata() -> None:
    stage = approval(
        metadata={"Approvers": "bob, eve"}, available_operation=pb.MANUAL_OPERATION_UNKNOWN
    )

    assert command.approvers(stage) == ("bob", "eve")
    with pytest.raises(DeniedError):
        command.approve(deployment(stage), "s1", by="ann", at=NOON)


def test_a_stage_that_waits_for_nobody_cannot_be_approved() -> None:
    stage = approval(name="WAIT", available_operation=pb.MANUAL_OPERATION_NONE)

    with pytest.raises(StateError, match="waits for no approval"):
        command.approve(deployment(stage), "s1", by="ann", at=NOON)


def test_a_stage_that_is_over_cannot_be_approved() -> None:
    stage = approval(status=pb.STAGE_SUCCESS)

    with pytest.raises(StateError, match="WAIT_APPROVAL is over already"):
        command.approve(deployment(stage), "s1", by="ann", at=NOON)


def test_a_stage_of_another_deployment_is_not_found() -> None:
    with pytest.raises(NotFoundError):
        command.approve(deployment(), "s1", by="ann", at=NOON)


def test_a_stage_that_offers_it_can_be_skipped() -> None:
    stage = approval(name="MINE", available_operation=pb.MANUAL_OPERATION_SKIP)

    built = command.skip(deployment(stage), "s1", by="ann", at=NOON)

    assert built.type == Command.SKIP_STAGE
    assert built.skip_stage == Command.SkipStage(deployment_id="d1", stage_id="s1")


def test_an_older_analysis_can_be_skipped_by_its_name() -> None:
    stage = approval(name="ANALYSIS", available_operation=pb.MANUAL_OPERATION_UNKNOWN)

    assert command.skip(deployment(stage), "s1", by="ann", at=NOON).stage_id == "s1"


def test_other_stages_cannot_be_skipped() -> None:
    with pytest.raises(StateError, match="cannot be skipped"):
        command.skip(deployment(approval()), "s1", by="ann", at=NOON)


def test_a_command_is_handled_once_it_has_an_outcome() -> None:
    assert command.is_handled(Command(status=COMMAND_SUCCEEDED))
