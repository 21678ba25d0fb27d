# SPDX-License-Identifier: Apache-2.0
"""What a newer deployment does to older ones, in every combination of what can be the case."""

import json
from datetime import UTC, datetime
from itertools import product

import pytest

from pipecd_model.gate import find_blocker, is_exempt
from pipecd_model.queueing import (
    DEFAULT,
    INTERRUPTIBLE,
    QUEUE_KEY,
    Interruption,
    QueueMode,
    QueueSettings,
    RunningView,
    WaitingView,
    decide,
    describe_rejection,
    describe_supersession,
    encode_settings,
    find_left_behind,
    find_passed,
    read_settings,
)
from pipecd_wire.model.deployment_pb2 import Deployment
from pipecd_wire.pipecd.control.control_pb2 import (
    ApplicationControl,
    DeploymentRecord,
    EmergencyStop,
    Freeze,
    Hold,
    Override,
    Pin,
    ProjectRules,
)

NOON = datetime(2026, 11, 16, 12, tzinfo=UTC)

RUNNING = {
    "nothing": None,
    "planning": RunningView(),
    "WAIT": RunningView(stage="WAIT"),
    "WAIT_APPROVAL": RunningView(stage="WAIT_APPROVAL"),
    "ANALYSIS": RunningView(stage="ANALYSIS"),
    "SCRIPT_RUN": RunningView(stage="SCRIPT_RUN"),
    "K8S_CANARY_ROLLOUT": RunningView(stage="K8S_CANARY_ROLLOUT"),
    "rolling back": RunningView(stage="WAIT", is_rolling_back=True),
    "a person's roll-back": RunningView(stage="WAIT_APPROVAL", is_roll_back=True),
}
NEWER = {
    "commit": DeploymentRecord(),
    "roll-back": DeploymentRecord(type=DeploymentRecord.ROLL_BACK),
    "override": DeploymentRecord(override=Override(by="eve", reason="hotfix")),
}
WAITING = {
    "nobody": (),
    "one": (WaitingView(deployment_id="old"),),
    "a roll-back": (WaitingView(deployment_id="back", is_roll_back=True),),
    "both": (
        WaitingView(deployment_id="back", is_roll_back=True),
        WaitingView(deployment_id="old"),
    ),
}
RULES: dict[str, tuple[ApplicationControl, ProjectRules]] = {
    "none": (ApplicationControl(), ProjectRules()),
    "hold": (ApplicationControl(hold=Hold(commit_hash="c1")), ProjectRules()),
    "pin": (ApplicationControl(pin=Pin(commit_hash="c0", deployment_id="b")), ProjectRules()),
    "freeze": (ApplicationControl(freeze=Freeze(by="ada")), ProjectRules()),
    "stop": (ApplicationControl(), ProjectRules(emergency_stop=EmergencyStop(by="eve"))),
    "everything": (
        ApplicationControl(
            hold=Hold(commit_hash="c1"), pin=Pin(commit_hash="c0"), freeze=Freeze(by="ada")
        ),
        ProjectRules(emergency_stop=EmergencyStop(by="eve")),
    ),
}
BLOCKED_BY = {
    "commit": {"pin", "freeze", "stop", "everything"},
    "roll-back": set(),
    "override": {"pin", "everything"},
}
"""Which rules stop what comes: a roll-back none, an override all but a pin."""


INTERRUPTIBLE_PLACES = {
    "planning": Interruption.NOW,
    "WAIT": Interruption.NOW,
    "WAIT_APPROVAL": Interruption.NOW,
    "ANALYSIS": Interruption.NOW,
    "SCRIPT_RUN": Interruption.BEFORE_NEXT_STAGE,
    "K8S_CANARY_ROLLOUT": Interruption.BEFORE_NEXT_STAGE,
}


@pytest.mark.parametrize("mode", QueueMode)
@pytest.mark.parametrize("rule", RULES)
def test_every_combination_of_what_runs_waits_and_comes(mode: QueueMode, rule: str) -> None:
    control, rules = RULES[rule]
    for running, newer, waiting in product(RUNNING, NEWER, WAITING):
        record = NEWER[newer]
        blocker = find_blocker(
            Deployment(id="new"),
            labels={},
            control=control,
            rules=rules,
            record=record,
            now=NOON,
        )
        verdict = decide(
            mode,
            RUNNING[running],
            WAITING[waiting],
            WaitingView(deployment_id="new", is_roll_back=newer == "roll-back"),
            may_begin=blocker is None,
        )

        place = f"{mode} {rule}: {newer} while {running} runs and {waiting} waits"
        assert (blocker is not None) == (rule in BLOCKED_BY[newer]), place
        takes_place = mode is QueueMode.SUPERSEDE or newer == "roll-back"
        replaced = {
            each.deployment_id
            for each in WAITING[waiting]
            if takes_place and (newer == "roll-back" or not each.is_roll_back)
        }
        assert set(verdict.superseded) == replaced, place
        is_next = len(replaced) == len(WAITING[waiting])
        stops = takes_place and blocker is None and is_next and running in INTERRUPTIBLE_PLACES
        assert verdict.running is (INTERRUPTIBLE_PLACES[running] if stops else Interruption.NONE), (
            place
        )


def test_only_stages_that_change_nothing_are_interrupted() -> None:
    assert frozenset({"WAIT", "WAIT_APPROVAL", "ANALYSIS"}) == INTERRUPTIBLE


@pytest.mark.parametrize("mode", QueueMode)
@pytest.mark.parametrize("open_ids", [[], ["d1"], ["d1", "d2"]])
def test_a_commit_is_rejected_only_in_that_mode_and_only_while_one_is_open(
    mode: QueueMode, open_ids: list[str]
) -> None:
    sentence = describe_rejection(mode, "0123456789", open_ids)

    assert (sentence is not None) == (mode is QueueMode.REJECT and bool(open_ids))
    if sentence is not None:
        assert "0123456" in sentence
        assert "d1" in sentence


def test_an_exempt_record_is_a_roll_back_or_has_an_override() -> None:
    assert [name for name, record in NEWER.items() if is_exempt(record)] == [
        "roll-back",
        "override",
    ]


BLOCKED = WaitingView(deployment_id="blocked", is_blocked=True)
FREE = WaitingView(deployment_id="free")
BACK = WaitingView(deployment_id="back", is_roll_back=True)
LET_IN = WaitingView(deployment_id="let in", is_overridden=True)
LET_IN_IN_VAIN = WaitingView(deployment_id="pinned", is_overridden=True, is_blocked=True)


@pytest.mark.parametrize(
    ("waiting", "passed"),
    [
        ((), set()),
        ((BLOCKED,), set()),
        ((BLOCKED, FREE), set()),
        ((BLOCKED, LET_IN_IN_VAIN), set()),
        ((BLOCKED, LET_IN), {"blocked"}),
        ((BLOCKED, LET_IN, LET_IN_IN_VAIN), {"blocked", "pinned"}),
        ((FREE, BACK, LET_IN), set()),
    ],
)
def test_an_override_passes_those_that_may_not_begin_and_nobody_else(
    waiting: tuple[WaitingView, ...], passed: set[str]
) -> None:
    assert find_passed(waiting) == passed


def test_what_began_by_an_override_leaves_behind_all_older_ones_but_a_roll_back() -> None:
    """The rules may have changed since it began: those that are free by now stay behind, too."""
    assert find_left_behind(LET_IN, [BLOCKED, FREE, BACK]) == {"blocked", "free"}
    assert find_left_behind(FREE, [BLOCKED, BACK]) == set()


def test_the_sentence_of_what_stays_behind_names_who_let_the_newer_one_begin() -> None:
    sentence = describe_supersession("d2", "0123456789", overrider="eve", reason="hotfix")

    assert sentence == "superseded by the deployment d2 of 0123456 (override by eve: hotfix)"
    assert describe_supersession("d2", "c1", overrider="").endswith("of c1 (override)")


def make_kept(text: str) -> Deployment:
    deployment = Deployment(id="d1")
    deployment.metadata_v2.shared.keyValues[QUEUE_KEY] = text
    return deployment


def test_settings_are_kept_with_the_deployment() -> None:
    kept = encode_settings("supersede", ["db", "cache", "db"])

    assert kept is not None
    assert read_settings(make_kept(kept)) == QueueSettings(
        mode=QueueMode.SUPERSEDE, locks=("cache", "db")
    )


def test_the_default_is_not_kept() -> None:
    assert encode_settings("queue", []) is None
    assert read_settings(Deployment()) == DEFAULT


@pytest.mark.parametrize(
    "text",
    ["", "x", "[]", "{}", "null", json.dumps({"mode": "later", "locks": []}), '{"mode":"queue"}'],
)
def test_what_cannot_be_read_is_the_default(text: str) -> None:
    assert read_settings(make_kept(text)) == DEFAULT
