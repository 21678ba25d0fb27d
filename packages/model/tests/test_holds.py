# SPDX-License-Identifier: Apache-2.0
"""What deployments do to hold and pin, and what those keep from being deployed."""

import pytest

from pipecd_model import holds
from pipecd_model.errors import StateError
from pipecd_wire.model import deployment_pb2 as model
from pipecd_wire.model.application_pb2 import ApplicationDeploymentReference
from pipecd_wire.pipecd.control import control_pb2 as pb

NONE = ApplicationDeploymentReference()
BAD, NEWER = "bad" * 14, "new" * 14


def deployment(commit: str = BAD, status: int = model.DEPLOYMENT_FAILURE) -> model.Deployment:
    return model.Deployment(
        id=f"of-{commit[:3]}",
        application_id="web",
        status=model.DeploymentStatus.ValueType(status),
        status_reason="SCRIPT_RUN failed",
        completed_at=1000,
        trigger=model.DeploymentTrigger(commit=model.Commit(hash=commit)),
    )


def held(commit: str = BAD) -> pb.ApplicationControl:
    found = holds.apply_completed(pb.ApplicationControl(), deployment(commit), None, NONE)
    assert found is not None
    return found


def pinned() -> pb.ApplicationControl:
    pin = pb.Pin(commit_hash=BAD, by="ann", reason="too slow")
    return pb.ApplicationControl(application_id="web", pin=pin)


@pytest.mark.parametrize("status", [model.DEPLOYMENT_FAILURE, model.DEPLOYMENT_CANCELLED])
def test_a_commit_whose_deployment_ends_badly_is_held(status: int) -> None:
    control = holds.apply_completed(pb.ApplicationControl(), deployment(status=status), None, NONE)

    assert control is not None
    assert control.application_id == "web"
    assert control.hold.commit_hash == BAD
    assert control.hold.deployment_id == "of-bad"
    assert control.hold.reason == "SCRIPT_RUN failed"
    assert control.hold.since.seconds == 1000


def test_one_that_a_newer_one_replaced_holds_nothing() -> None:
    record = pb.DeploymentRecord(superseded_by="newer")
    cancelled = deployment(status=model.DEPLOYMENT_CANCELLED)

    assert holds.apply_completed(pb.ApplicationControl(), cancelled, record, NONE) is None


@pytest.mark.parametrize("status", [model.DEPLOYMENT_FAILURE, model.DEPLOYMENT_CANCELLED])
def test_one_that_ends_after_a_newer_commit_was_queued_holds_nothing(status: int) -> None:
    newest = ApplicationDeploymentReference(
        deployment_id="of-new", trigger=deployment(NEWER).trigger
    )
    ended = deployment(status=status)

    assert holds.apply_completed(pb.ApplicationControl(), ended, None, newest) is None


@pytest.mark.parametrize(
    "newest",
    [
        ApplicationDeploymentReference(deployment_id="of-bad", trigger=deployment(BAD).trigger),
        ApplicationDeploymentReference(deployment_id="again", trigger=deployment(BAD).trigger),
    ],
    ids=["itself", "another deployment of the same commit"],
)
def test_a_commit_is_held_that_is_the_newest_one(newest: ApplicationDeploymentReference) -> None:
    control = holds.apply_completed(pb.ApplicationControl(), deployment(), None, newest)

    assert control is not None
    assert control.hold.commit_hash == BAD


def test_a_newer_failure_replaces_the_hold() -> None:
    control = holds.apply_completed(held(), deployment(NEWER), None, NONE)

    assert control is not None
    assert control.hold.commit_hash == NEWER


def test_a_success_ends_the_hold_and_nothing_else() -> None:
    before = held()
    before.pin.CopyFrom(pinned().pin)
    before.freeze.by = "bob"

    control = holds.apply_completed(before, deployment(status=model.DEPLOYMENT_SUCCESS), None, NONE)

    assert control is not None
    assert not control.HasField("hold")
    assert control.pin == before.pin
    assert control.freeze == before.freeze
    assert before.HasField("hold")  # what was given is left as it was


def test_a_success_without_a_hold_changes_nothing() -> None:
    success = deployment(status=model.DEPLOYMENT_SUCCESS)

    assert holds.apply_completed(pb.ApplicationControl(), success, None, NONE) is None
    assert holds.apply_completed(pinned(), success, None, NONE) is None


def test_a_deployment_of_another_commit_ends_the_hold() -> None:
    control = holds.apply_created(held(), deployment(NEWER))

    assert control is not None
    assert not control.HasField("hold")


def test_a_deployment_of_the_held_commit_leaves_the_hold_until_it_succeeds() -> None:
    assert holds.apply_created(held(), deployment(BAD)) is None


def test_a_new_deployment_leaves_a_pin() -> None:
    assert holds.apply_created(pinned(), deployment(NEWER)) is None


def test_a_held_commit_is_not_deployed_by_itself_but_others_are() -> None:
    assert "badbadb is held" in holds.find_obstacle(held(), BAD)
    assert holds.find_obstacle(held(), NEWER) == ""
    assert holds.find_obstacle(pb.ApplicationControl(), BAD) == ""


def test_while_pinned_every_commit_waits_for_a_named_person() -> None:
    sentence = holds.find_obstacle(pinned(), NEWER)

    assert "newnewn waits" in sentence
    assert "ann rolled back to badbadb, because: too slow" in sentence


def test_a_plain_sync_is_refused_while_pinned_and_allowed_while_held() -> None:
    with pytest.raises(StateError, match="'web' is pinned: ann rolled back") as caught:
        holds.check_sync(pinned(), "web")
    assert "pipectl application release" in caught.value.hint

    holds.check_sync(held(), "web")


def test_a_long_reason_is_cut() -> None:
    failed = deployment()
    failed.status_reason = "x" * 10_000

    control = holds.apply_completed(pb.ApplicationControl(), failed, None, NONE)

    assert control is not None
    assert len(control.hold.reason) == holds.MOST_REASON
