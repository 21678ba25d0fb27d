# SPDX-License-Identifier: Apache-2.0
"""The story of a deployment, in the order of what happened."""

from google.protobuf.timestamp_pb2 import Timestamp

from pipecd_pipectl.storyview import list_events
from pipecd_wire.model import deployment_pb2 as pb
from pipecd_wire.pipecd.control.control_pb2 import DeploymentRecord, StageAction


def stage(number: int, name: str, status: pb.StageStatus.ValueType, at: int) -> pb.PipelineStage:
    return pb.PipelineStage(
        id=f"s{number}",
        name=name,
        index=number - 1,
        status=status,
        created_at=100,
        updated_at=at,
        completed_at=at,
    )


def action(kind: StageAction.Kind.ValueType, at: int, **more: str) -> StageAction:
    return StageAction(kind=kind, at=Timestamp(seconds=at), **more)  # type: ignore[arg-type]


def test_it_tells_who_did_what_and_how_long_everything_took() -> None:
    deployment = pb.Deployment(
        created_at=100,
        completed_at=200,
        status=pb.DEPLOYMENT_CANCELLED,
        status_reason="cancelled by bob during SCRIPT_RUN; rolled back",
        stages=[
            stage(1, "WAIT_APPROVAL", pb.STAGE_SUCCESS, 130),
            stage(2, "SCRIPT_RUN", pb.STAGE_CANCELLED, 190),
            stage(3, "WAIT", pb.STAGE_NOT_STARTED_YET, 0),
        ],
    )
    record = DeploymentRecord(
        by="ann",
        reason="too slow",
        type=DeploymentRecord.ROLL_BACK,
        actions=[
            action(StageAction.APPROVED, 130, stage_id="s1", by="eve", comment="go"),
            action(StageAction.CANCELLED, 190, by="bob"),
        ],
    )

    events = list_events(deployment, record, now=300)

    assert [(each.at, each.text) for each in events] == [
        (100, "roll-back asked for by ann: too slow"),
        (130, "eve approved 1 WAIT_APPROVAL: go"),
        (130, "✔ 1 WAIT_APPROVAL SUCCESS after 30s"),
        (190, "bob cancelled it"),
        (190, "■ 2 SCRIPT_RUN CANCELLED after 1m"),
        (200, "CANCELLED after 1m40s: cancelled by bob during SCRIPT_RUN; rolled back"),
    ]


def test_what_runs_and_what_was_retried_is_said() -> None:
    running = stage(1, "SCRIPT_RUN", pb.STAGE_RUNNING, 150)
    running.retried_count = 1
    deployment = pb.Deployment(created_at=100, status=pb.DEPLOYMENT_RUNNING, stages=[running])
    retried = StageAction(
        kind=StageAction.RETRIED, at=Timestamp(seconds=149), stage_id="s1", by="ann", attempt=1
    )

    events = list_events(deployment, DeploymentRecord(actions=[retried]), now=300)

    assert [each.text for each in events] == [
        "created because of a commit",
        "ann retried 1 SCRIPT_RUN as attempt 2",
        "▶ 1 SCRIPT_RUN, attempt 2 runs since then",
    ]


def test_it_tells_what_was_refused_after_the_end() -> None:
    deployment = pb.Deployment(
        created_at=100, completed_at=200, status=pb.DEPLOYMENT_SUCCESS, status_reason="done"
    )
    record = DeploymentRecord(refusals=["the event 'a' was not registered: too long"])

    texts = [each.text for each in list_events(deployment, record, now=300)]

    assert texts[-1] == "the event 'a' was not registered: too long"


def test_that_it_was_created_comes_first_whatever_the_clock_said() -> None:
    """A second deployment of one second is created in the next one, and may be over before it."""
    deployment = pb.Deployment(
        created_at=101,
        completed_at=100,
        status=pb.DEPLOYMENT_SUCCESS,
        stages=[stage(1, "SCRIPT_RUN", pb.STAGE_SUCCESS, 100)],
    )

    first = list_events(deployment, DeploymentRecord(), now=300)[0]

    assert first.text == "created because of a commit"
