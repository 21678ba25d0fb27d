# SPDX-License-Identifier: Apache-2.0
"""The judge finds what must not be: a made-up violation of each promise."""

from dataclasses import replace
from typing import Any

import pytest

from pipecd_model.deployment import WAITS_FOR_DECISION
from pipecd_wire.model import deployment_pb2 as pb
from pipecd_wire.pipecd.control.control_pb2 import ApplicationControl, Hold, QueuedDeployment
from sequences.judge import find_unsettled, find_violations
from sequences.reference import Kind, KnownApplication, Look, Reference, Version, Window

NOW = 1_800_000_000.0


def make_known(*kinds: Kind, mode: str = "queue") -> Reference:
    """One application, and a commit for each of its versions: `c0`, `c1`, …"""
    web = KnownApplication(
        name="web",
        mode=mode,
        locks=("db",),
        labels={"env": "prod"},
        versions=[Version(kind=each) for each in kinds],
    )
    commits = {f"c{number}": {"web": number} for number in range(len(kinds))}
    return Reference(applications={"web": web}, commits=commits)


def make(deployment_id: str, status: str, version: int = 0, **more: Any) -> pb.Deployment:
    return pb.Deployment(
        id=deployment_id,
        status=pb.DeploymentStatus.Value(f"DEPLOYMENT_{status}"),
        trigger=pb.DeploymentTrigger(commit=pb.Commit(hash=f"c{version}")),
        **more,
    )


def make_look(*deployments: pb.Deployment, **more: Any) -> Look:
    found = Look(
        at=NOW,
        deployments={"web": list(deployments)},
        queue={},
        controls={},
        sync_reasons={"web": ""},
        effects=(),
    )
    return replace(found, **more)


def queued(cause: "QueuedDeployment.Cause.ValueType", sentence: str, **more: Any) -> Any:
    return {"queue": {"d": QueuedDeployment(cause=cause, sentence=sentence, **more)}}


def stage(name: str, status: str = "RUNNING") -> pb.PipelineStage:
    return pb.PipelineStage(name=name, status=pb.StageStatus.Value(f"STAGE_{status}"))


def judge(known: Reference, *looks: Look) -> str:
    """All that is found wrong in looks, one after the other."""
    found = []
    for look in looks:
        found += find_violations(known, look)
        known.note_rules(look)
    return "; ".join(found)


def test_a_deployment_that_is_not_there_any_more_is_lost() -> None:
    known = make_known(Kind.GOOD)

    assert "d is lost" in judge(known, make_look(make("d", "RUNNING")), make_look())


@pytest.mark.parametrize(
    ("before", "after"), [("RUNNING", "PENDING"), ("SUCCESS", "RUNNING"), ("SUCCESS", "CANCELLED")]
)
def test_a_status_that_goes_back_is_found(before: str, after: str) -> None:
    known = make_known(Kind.GOOD)
    known.cancelled.add("d")

    assert f"to DEPLOYMENT_{after}" in judge(
        known, make_look(make("d", before)), make_look(make("d", after))
    )


def test_one_version_is_deployed_once_by_itself() -> None:
    known = make_known(Kind.FAILING)
    both = make_look(make("d", "FAILURE"), make("e", "FAILURE"))

    assert "version 0 was deployed 2 times" in judge(known, both)

    known.released.add("e")
    known.applications["web"].asked_for.add("e")
    assert judge(known, both) == ""


def test_an_older_version_does_not_begin_after_a_newer_one() -> None:
    known = make_known(Kind.GOOD, Kind.GOOD)
    newer = make("e", "SUCCESS", 1)

    assert "version 0 began after version 1" in judge(
        known, make_look(make("d", "PENDING"), newer), make_look(make("d", "RUNNING"), newer)
    )


@pytest.mark.parametrize("rule", ["freeze", "pin", "stop", "window night", "allowing 'day'"])
@pytest.mark.parametrize("exempt", ["nobody", "override", "roll-back"])
def test_what_begins_in_spite_of_a_rule_is_found(rule: str, exempt: str) -> None:
    known = make_known(Kind.GOOD)
    web = known.applications["web"]
    web.freeze = "cold" if rule == "freeze" else ""
    web.pin = "slow" if rule == "pin" else ""
    known.stop = "outage" if rule == "stop" else ""
    if rule == "window night":
        known.windows["night"] = Window(start=NOW - 1, end=NOW + 1, denies=True, label="prod")
    if rule.startswith("allowing"):
        known.windows["day"] = Window(start=NOW + 1, end=NOW + 2, denies=False, application="web")
    known.overridden |= {"d"} if exempt == "override" else set()
    known.roll_backs |= {"d": frozenset[str]()} if exempt == "roll-back" else {}

    found = judge(known, make_look(make("d", "PENDING")), make_look(make("d", "PLANNED")))

    is_allowed = exempt == "roll-back" or (exempt == "override" and rule != "pin")
    assert found == ("" if is_allowed else f"web: the deployment d began in spite of the {rule}")


def test_what_had_begun_before_a_rule_goes_on() -> None:
    known = make_known(Kind.GOOD)
    known.applications["web"].freeze = "cold"

    assert judge(known, make_look(make("d", "RUNNING")), make_look(make("d", "SUCCESS"))) == ""


def test_a_stage_that_begins_during_the_emergency_stop_is_found() -> None:
    known = make_known(Kind.APPROVAL)
    known.stop = "outage"
    running = make("d", "RUNNING")
    before = make_look(running, effects=("d one",))

    after = make_look(running, effects=("d one", "d two"))

    assert "two of d began in spite of the emergency stop" in judge(known, before, after)


def test_a_script_that_runs_twice_is_found_unless_it_was_retried() -> None:
    known = make_known(Kind.KEPT_OPEN)
    twice = make_look(make("d", "RUNNING"), effects=("d one", "d one"))

    assert "one of d ran 2 times" in judge(known, twice)

    known.retries["d"] = 1
    assert judge(known, twice) == ""


def test_two_of_one_application_do_not_run_at_the_same_time() -> None:
    known = make_known(Kind.APPROVAL, Kind.GOOD)

    assert "run at the same time" in judge(
        known, make_look(make("d", "RUNNING"), make("e", "PLANNED", 1))
    )


@pytest.mark.parametrize(
    ("kind", "status", "says"),
    [
        (Kind.GOOD, "FAILURE", "failed"),
        (Kind.FAILING, "SUCCESS", "succeeded"),
        (Kind.KEPT_OPEN, "SUCCESS", "succeeded"),
        (Kind.GOOD, "CANCELLED", "nobody asked"),
    ],
)
def test_an_end_that_nothing_explains_is_found(kind: Kind, status: str, says: str) -> None:
    assert says in judge(make_known(kind), make_look(make("d", status)))


@pytest.mark.parametrize("mode", ["queue", "supersede"])
def test_only_where_it_is_said_one_is_superseded(mode: str) -> None:
    known = make_known(Kind.GOOD, Kind.GOOD, mode=mode)
    reason = "superseded by the deployment e of c1 before it began"
    both = make_look(make("d", "CANCELLED", status_reason=reason), make("e", "SUCCESS", 1))

    assert ("nobody asked" in judge(known, both)) == (mode == "queue")


def settle(known: Reference, look: Look) -> str:
    return "; ".join(find_unsettled(known, look))


def test_a_version_without_deployment_is_to_come_or_waits_visibly() -> None:
    known = make_known(Kind.GOOD, Kind.GOOD)
    old = make("d", "SUCCESS")
    said = {"sync_reasons": {"web": "newer commits wait: because"}}

    assert "version 1 has no deployment" in settle(known, make_look(old))
    assert "version 1 has no deployment" in settle(known, make_look(old, **said))

    known.applications["web"].pin = "slow"
    assert "does not say so" in settle(known, make_look(old))
    assert settle(known, make_look(old, **said)) == ""


def test_after_a_release_of_the_pin_the_newest_version_is_deployed_again() -> None:
    known = make_known(Kind.GOOD)
    known.applications["web"].before_release = frozenset({"d"})

    assert "version 0 has no deployment" in settle(known, make_look(make("d", "SUCCESS")))


def test_one_that_was_asked_for_has_to_come() -> None:
    known = make_known(Kind.GOOD)
    known.applications["web"].asked_for.add("back")

    assert "back that was asked for is not there" in settle(known, make_look(make("d", "SUCCESS")))


def test_a_rejected_version_is_not_made_while_another_one_is_open() -> None:
    known = make_known(Kind.APPROVAL, Kind.GOOD, mode="reject")

    assert "are to be rejected" in settle(
        known, make_look(make("d", "RUNNING"), make("e", "PENDING", 1))
    )


RULE, LOCK, BEHIND = (
    QueuedDeployment.RULE,
    QueuedDeployment.LOCK,
    QueuedDeployment.OTHER_DEPLOYMENT,
)


@pytest.mark.parametrize(
    ("is_frozen", "more", "says"),
    [
        (True, {}, "nobody says why"),
        (True, queued(RULE, ""), "nobody says why"),
        (True, queued(RULE, "the application is frozen (cold)"), ""),
        (False, queued(RULE, "the application is frozen (cold)"), "this is not why"),
        (True, queued(RULE, "the application is frozen (long ago)"), "this is not why"),
        (False, queued(BEHIND, "one comes first", other_deployment_id="gone"), "this is not why"),
        (False, queued(LOCK, "locked", other_deployment_id="gone", lock="db"), "this is not why"),
        (False, queued(QueuedDeployment.CONTROL_PLANE, "no lease"), "this is not why"),
    ],
)
def test_whatever_waits_says_why_and_that_is_true(
    is_frozen: bool, more: dict[str, Any], says: str
) -> None:
    known = make_known(Kind.GOOD)
    known.applications["web"].freeze = "cold" if is_frozen else ""

    found = settle(known, make_look(make("d", "PENDING"), **more))

    assert says in found
    assert bool(found) == bool(says)


def test_a_newer_one_supersedes_what_waits_and_what_waits_for_approval() -> None:
    known = make_known(Kind.APPROVAL, Kind.GOOD, mode="supersede")
    approval = make("d", "RUNNING", stages=[stage("WAIT_APPROVAL")])
    newer = make("e", "PENDING", 1)
    behind = QueuedDeployment(cause=BEHIND, sentence="waits", other_deployment_id="d")

    for older in (make("d", "PENDING"), approval):
        found = settle(known, make_look(older, newer, queue={"e": behind}))
        assert "d was to be superseded by e" in found

    known.applications["web"].mode = "queue"
    assert settle(known, make_look(approval, newer, queue={"e": behind})) == ""


def test_a_roll_back_takes_the_place_of_what_was_there_before_it() -> None:
    known = make_known(Kind.GOOD)
    known.roll_backs["back"] = frozenset({"d"})
    back = make("back", "PENDING")
    said = QueuedDeployment(cause=BEHIND, sentence="waits", other_deployment_id="back")

    for older in (make("d", "PENDING"), make("d", "RUNNING", stages=[stage("WAIT_APPROVAL")])):
        assert "d was to be superseded by back" in settle(known, make_look(older, back))
    newer = settle(known, make_look(make("e", "PENDING"), back, queue={"e": said}))
    assert "superseded" not in newer


def test_what_was_decided_has_to_happen() -> None:
    known = make_known(Kind.APPROVAL)
    approval = make_look(make("d", "RUNNING", stages=[stage("WAIT_APPROVAL")]))
    assert settle(known, approval) == ""

    known.approved.add("d")
    assert "d was approved" in settle(known, approval)
    known.cancelled.add("d")
    assert "d was to be cancelled" in settle(known, approval)


def test_one_that_is_kept_open_waits_for_its_retry() -> None:
    known = make_known(Kind.KEPT_OPEN)
    kept = make_look(
        make(
            "d",
            "RUNNING",
            stages=[stage("SCRIPT_RUN", "FAILURE")],
            status_reason=f"it failed; {WAITS_FOR_DECISION}noon",
        )
    )
    assert settle(known, kept) == ""

    known.retries["d"] = 1
    assert "d was to be retried" in settle(known, kept)


def test_a_commit_that_failed_has_to_be_held() -> None:
    known = make_known(Kind.GOOD, Kind.FAILING)
    both = (make("d", "SUCCESS"), make("e", "FAILURE", 1))
    held = ApplicationControl(hold=Hold(deployment_id="e"))

    assert "its commit is not held" in settle(known, make_look(*both))
    assert settle(known, make_look(*both, controls={"web": held})) == ""
