# SPDX-License-Identifier: Apache-2.0
"""Whether a deployment may begin, and whether its next stage may."""

from datetime import UTC, datetime

from google.protobuf.timestamp_pb2 import Timestamp

from pipecd_model.gate import Blocker, find_blocker, find_pause
from pipecd_wire.model.deployment_pb2 import Deployment
from pipecd_wire.pipecd.control.control_pb2 import (
    ApplicationControl,
    DeploymentRecord,
    EmergencyStop,
    Freeze,
    Override,
    Pin,
    ProjectRules,
)

NOON = datetime(2026, 11, 16, 12, tzinfo=UTC)
SINCE = Timestamp(seconds=int(NOON.timestamp()))
FREEZE = Freeze(by="ada", reason="audit", since=SINCE)
PIN = Pin(by="bob", commit_hash="0123456789", deployment_id="back", since=SINCE)
STOP = EmergencyStop(by="eve", reason="outage", since=SINCE)


def ask(
    *,
    control: ApplicationControl | None = None,
    rules: ProjectRules | None = None,
    record: DeploymentRecord | None = None,
    deployment_id: str = "d1",
) -> Blocker | None:
    return find_blocker(
        Deployment(id=deployment_id),
        labels={},
        control=control or ApplicationControl(),
        rules=rules or ProjectRules(),
        record=record or DeploymentRecord(),
        now=NOON,
    )


def test_without_rules_everything_may_begin() -> None:
    assert ask() is None
    assert find_pause(rules=ProjectRules(), record=DeploymentRecord()) is None


def test_a_freeze_says_who_since_when_and_why() -> None:
    blocker = ask(control=ApplicationControl(freeze=FREEZE))

    assert blocker is not None
    sentence = "the application is frozen by ada since 2026-11-16 12:00 UTC (audit)"
    assert blocker.sentence == sentence
    assert "lift the freeze" in blocker.hint


def test_a_pin_names_its_commit_and_lets_its_own_deployment_pass() -> None:
    control = ApplicationControl(pin=PIN)

    blocker = ask(control=control)

    assert blocker is not None
    assert blocker.sentence.startswith("the application is pinned to 0123456 after a roll-back by")
    assert blocker.other_deployment_id == "back"
    assert ask(control=control, deployment_id="back") is None


def test_an_emergency_stop_comes_first() -> None:
    blocker = ask(
        control=ApplicationControl(freeze=FREEZE, pin=PIN), rules=ProjectRules(emergency_stop=STOP)
    )

    assert blocker is not None
    assert blocker.sentence.startswith("the emergency stop by eve since 2026-11-16 12:00 UTC")


def test_a_freeze_comes_before_a_pin() -> None:
    blocker = ask(control=ApplicationControl(freeze=FREEZE, pin=PIN))

    assert blocker is not None
    assert "frozen" in blocker.sentence


def test_a_roll_back_passes_everything_and_an_override_all_but_a_pin() -> None:
    control = ApplicationControl(freeze=FREEZE, pin=PIN)
    rules = ProjectRules(emergency_stop=STOP)
    back = DeploymentRecord(type=DeploymentRecord.ROLL_BACK)
    overridden = DeploymentRecord(override=Override(by="eve"))

    assert ask(control=control, rules=rules, record=back) is None
    assert ask(control=ApplicationControl(freeze=FREEZE), rules=rules, record=overridden) is None
    blocker = ask(control=control, rules=rules, record=overridden)
    assert blocker is not None
    assert "is pinned to" in blocker.sentence


def test_only_an_emergency_stop_pauses_what_runs() -> None:
    stopped = ProjectRules(emergency_stop=STOP)

    pause = find_pause(rules=stopped, record=DeploymentRecord())

    assert pause is not None
    assert "pause before their next stage" in pause.sentence
