# SPDX-License-Identifier: Apache-2.0
"""What a newer deployment does to older ones, in every combination of what can be the case."""

import functools
import json
from dataclasses import replace
from datetime import UTC, datetime
from itertools import product

import pytest
from google.protobuf.duration_pb2 import Duration

from pipecd_model import holds
from pipecd_model.gate import Blocker, find_blocker, find_pause, is_exempt
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
from pipecd_wire.model.application_pb2 import ApplicationDeploymentReference
from pipecd_wire.model.deployment_pb2 import (
    DEPLOYMENT_CANCELLED,
    DEPLOYMENT_FAILURE,
    DEPLOYMENT_SUCCESS,
    Commit,
    Deployment,
    DeploymentStatus,
    DeploymentTrigger,
)
from pipecd_wire.pipecd.control.control_pb2 import (
    ApplicationControl,
    DeploymentRecord,
    EmergencyStop,
    Freeze,
    Hold,
    Override,
    Pin,
    ProjectRules,
    Window,
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

TOLD_OF = {
    "pin": "is pinned to c0",
    "freeze": "is frozen by ada",
    "stop": "the emergency stop by eve",
    "everything": "the emergency stop by eve",
}
"""What a commit is told that waits for a rule; of all of them the emergency stop comes first."""


def make_window(
    effect: Window.Effect.ValueType, starts: str, *, application: str = "", env: str = ""
) -> Window:
    """A window of two hours, every day."""
    return Window(
        name=f"{'deny' if effect == Window.DENY else 'allow'}-{starts}",
        effect=effect,
        start=f"2026-11-01T{starts}:00",
        duration=Duration(seconds=2 * 3600),
        rule="FREQ=DAILY",
        time_zone="UTC",
        application_id=application,
        labels={"env": env} if env else {},
    )


DENY, ALLOW = Window.DENY, Window.ALLOW
MINE, THEIRS = "web", "shop"
WINDOWS: dict[str, tuple[list[Window], str]] = {
    "none": ([], ""),
    "deny: project, open": ([make_window(DENY, "11:00")], "'deny-11:00' denies"),
    "deny: project, over": ([make_window(DENY, "10:00")], ""),
    "deny: project, to come": ([make_window(DENY, "12:01")], ""),
    "deny: its label, open": ([make_window(DENY, "11:00", env="prod")], "'deny-11:00' denies"),
    "deny: its label, over": ([make_window(DENY, "09:00", env="prod")], ""),
    "deny: another label, open": ([make_window(DENY, "11:00", env="test")], ""),
    "deny: it, open": ([make_window(DENY, "12:00", application=MINE)], "'deny-12:00' denies"),
    "deny: it, over": ([make_window(DENY, "08:00", application=MINE)], ""),
    "deny: another one, open": ([make_window(DENY, "11:00", application=THEIRS)], ""),
    "allow: project, open": ([make_window(ALLOW, "11:00")], ""),
    "allow: project, over": ([make_window(ALLOW, "10:00")], "only within the window 'allow-10:00'"),
    "allow: its label, open": ([make_window(ALLOW, "11:00", env="prod")], ""),
    "allow: its label, to come": (
        [make_window(ALLOW, "13:00", env="prod")],
        "only within the window 'allow-13:00'",
    ),
    "allow: another label, over": ([make_window(ALLOW, "09:00", env="test")], ""),
    "allow: it, open": ([make_window(ALLOW, "12:00", application=MINE)], ""),
    "allow: it, to come": (
        [make_window(ALLOW, "12:01", application=MINE)],
        "only within the window 'allow-12:01'",
    ),
    "allow: another one, over": ([make_window(ALLOW, "09:00", application=THEIRS)], ""),
    "allow: project over, its label open": (
        [make_window(ALLOW, "09:00"), make_window(ALLOW, "11:00", env="prod")],
        "",
    ),
    "allow: project open, another one's over": (
        [make_window(ALLOW, "11:00"), make_window(ALLOW, "09:00", application=THEIRS)],
        "",
    ),
    "both open": ([make_window(ALLOW, "11:00"), make_window(DENY, "11:30")], "'deny-11:30' denies"),
    "both closed": (
        [make_window(ALLOW, "09:00"), make_window(DENY, "13:00")],
        "only within the window 'allow-09:00'",
    ),
}
"""Windows at noon, and what a commit of the application `web` (env: prod) is told that waits."""


@pytest.mark.parametrize("window", WINDOWS)
def test_every_combination_of_rule_and_window_stops_what_it_is_to_stop(window: str) -> None:
    windows, told = WINDOWS[window]
    for rule, newer in product(RULES, NEWER):
        blocker = ask_gate(rule, window, newer)

        place = f"{rule}, {window}: {newer}"
        if rule in BLOCKED_BY[newer]:
            wanted = "is pinned to c0" if newer == "override" else TOLD_OF[rule]
        else:
            wanted = told if newer == "commit" else ""
        assert (blocker is None) == (not wanted), place
        if blocker is not None:
            assert wanted in blocker.sentence, place
            assert blocker.hint, place
            assert (blocker.until is not None) == bool(windows and wanted == told), place


@pytest.mark.parametrize("window", WINDOWS)
def test_only_the_emergency_stop_pauses_what_runs(window: str) -> None:
    """A window that begins, a freeze or a pin leave alone what has begun."""
    for rule, newer in product(RULES, NEWER):
        pause = find_pause(rules=gather_rules(rule, window), record=NEWER[newer])

        is_paused = (rule, newer) in {("stop", "commit"), ("everything", "commit")}
        assert (pause is not None) == is_paused, f"{rule}, {window}: {newer}"


def gather_rules(rule: str, window: str) -> ProjectRules:
    """The rules of the project: those of `RULES`, and the windows."""
    rules = ProjectRules()
    rules.CopyFrom(RULES[rule][1])
    rules.windows.extend(WINDOWS[window][0])
    return rules


@functools.cache
def ask_gate(rule: str, window: str, newer: str) -> Blocker | None:
    return find_blocker(
        Deployment(id="new", application_id=MINE),
        labels={"env": "prod", "team": "red"},
        control=RULES[rule][0],
        rules=gather_rules(rule, window),
        record=NEWER[newer],
        now=NOON,
    )


INTERRUPTED = {
    "nothing": Interruption.NONE,
    "planning": Interruption.NOW,
    "WAIT": Interruption.NOW,
    "WAIT_APPROVAL": Interruption.NOW,
    "ANALYSIS": Interruption.NOW,
    "SCRIPT_RUN": Interruption.BEFORE_NEXT_STAGE,
    "K8S_CANARY_ROLLOUT": Interruption.BEFORE_NEXT_STAGE,
    "rolling back": Interruption.NONE,
    "a person's roll-back": Interruption.NONE,
}
"""What happens to the one that runs when its place is taken."""

REPLACED: dict[str, dict[str, set[str]]] = {
    "waits its turn": {"nobody": set(), "one": set(), "a roll-back": set(), "both": set()},
    "supersedes": {"nobody": set(), "one": {"old"}, "a roll-back": set(), "both": {"old"}},
    "goes first": {
        "nobody": set(),
        "one": {"old"},
        "a roll-back": {"back"},
        "both": {"back", "old"},
    },
}
"""By what comes, whose place it takes of those that wait."""

BEHAVES = {
    (QueueMode.QUEUE, "commit"): "waits its turn",
    (QueueMode.QUEUE, "override"): "waits its turn",
    (QueueMode.QUEUE, "roll-back"): "goes first",
    (QueueMode.SUPERSEDE, "commit"): "supersedes",
    (QueueMode.SUPERSEDE, "override"): "supersedes",
    (QueueMode.SUPERSEDE, "roll-back"): "goes first",
    (QueueMode.REJECT, "commit"): "waits its turn",
    (QueueMode.REJECT, "override"): "waits its turn",
    (QueueMode.REJECT, "roll-back"): "goes first",
}
TAKES_RUNNING = {
    ("supersedes", "nobody"),
    ("supersedes", "one"),
    ("goes first", "nobody"),
    ("goes first", "one"),
    ("goes first", "a roll-back"),
    ("goes first", "both"),
}
"""Who takes the place of what runs, and who waits meanwhile: behind a roll-back nobody does."""

CANCELLED = ("nobody", "the running one", "the old one", "the roll-back")
"""Which of the others a person has cancelled before the newer one came."""


def find_waiting(waiting: str, cancelled: str) -> str:
    """Who waits once somebody was cancelled, as `WAITING` calls it."""
    gone = {"the old one": {"one": "nobody", "both": "a roll-back"}}
    gone["the roll-back"] = {"a roll-back": "nobody", "both": "one"}
    return gone.get(cancelled, {}).get(waiting, waiting)


def view_running(running: str, cancelled: str) -> RunningView | None:
    """The one that runs, as the rules see it: once cancelled it is on its way back."""
    view = RUNNING[running]
    if view is None or cancelled != "the running one":
        return view
    return replace(view, is_rolling_back=True)


@pytest.mark.parametrize("mode", QueueMode)
@pytest.mark.parametrize("rule", RULES)
def test_every_combination_of_what_runs_waits_comes_and_was_cancelled(
    mode: QueueMode, rule: str
) -> None:
    for window, running, newer, waiting, cancelled in product(
        WINDOWS, RUNNING, NEWER, WAITING, CANCELLED
    ):
        left = find_waiting(waiting, cancelled)
        verdict = decide(
            mode,
            view_running(running, cancelled),
            WAITING[left],
            WaitingView(deployment_id="new", is_roll_back=newer == "roll-back"),
            may_begin=ask_gate(rule, window, newer) is None,
        )

        place = f"{mode}, {rule}, {window}: {newer} while {running} runs and {waiting} waits"
        behaviour = BEHAVES[mode, newer]
        assert set(verdict.superseded) == REPLACED[behaviour][left], f"{place}; {cancelled}"
        is_stopped = rule in BLOCKED_BY[newer] or (newer == "commit" and WINDOWS[window][1] != "")
        takes = (behaviour, left) in TAKES_RUNNING and not is_stopped
        spared = cancelled == "the running one" or not takes
        wanted = Interruption.NONE if spared else INTERRUPTED[running]
        assert verdict.running is wanted, f"{place}; {cancelled} was cancelled"


ENDS: dict[str, tuple[int, str, str]] = {
    "it succeeded": (DEPLOYMENT_SUCCESS, "", ""),
    "it failed": (DEPLOYMENT_FAILURE, "", "is held: its deployment failed"),
    "a person cancelled it": (DEPLOYMENT_CANCELLED, "", "is held: its deployment failed"),
    "it was superseded": (DEPLOYMENT_CANCELLED, "newer", ""),
}
"""How a deployment ends: its status, who took its place, and what keeps its commit afterwards."""


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("is_pinned", [False, True])
def test_what_may_be_deployed_by_itself_after_every_end(end: str, is_pinned: bool) -> None:
    """Whatever held or froze it before; a pin keeps everything, until a person releases it."""
    status, superseded_by, told = ENDS[end]
    for was_held, is_frozen in product(["", "c0", "c1"], [False, True]):
        control = ApplicationControl(application_id=MINE)
        if was_held:
            control.hold.CopyFrom(Hold(commit_hash=was_held))
        if is_frozen:
            control.freeze.CopyFrom(Freeze(by="ada"))
        if is_pinned:
            control.pin.CopyFrom(Pin(by="bob", commit_hash="c0", deployment_id="back"))
        deployment = Deployment(
            id="d1",
            application_id=MINE,
            status=DeploymentStatus.ValueType(status),
            trigger=DeploymentTrigger(commit=Commit(hash="c1")),
        )
        made = holds.apply_created(control, deployment) or control
        ended = holds.apply_completed(
            made,
            deployment,
            DeploymentRecord(superseded_by=superseded_by),
            ApplicationDeploymentReference(deployment_id="d1", trigger=deployment.trigger),
        )
        after = ended if ended is not None else made

        place = f"{end}; held before: {was_held or 'nothing'}, frozen: {is_frozen}"
        pinned = "bob rolled back to c0" if is_pinned else ""
        still = "is held" if end == "it was superseded" and was_held == "c1" else ""
        assert_obstacle(after, "c1", pinned or told or still, place)
        assert_obstacle(after, "c2", pinned, place)
        assert after.HasField("freeze") == is_frozen, place
        assert after.HasField("pin") == is_pinned, place


def assert_obstacle(control: ApplicationControl, commit: str, wanted: str, place: str) -> None:
    found = holds.find_obstacle(control, commit)
    assert bool(found) == bool(wanted), f"{place}: {commit} {found!r}"
    assert wanted in found, place


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
