# SPDX-License-Identifier: Apache-2.0
"""A made-up violation of each promise about people and rules is found, none in what is right."""

from collections.abc import Iterable, Sequence

import pytest

from chaos import story_check
from chaos.applications import Effect
from chaos.check import Ended
from chaos.controlled import APPLICATIONS, CHAIN
from chaos.promises import Violation
from chaos.story_check import Told
from pipecd_wire.model import deployment_pb2 as pb
from pipecd_wire.model.deployment_pb2 import Deployment, PipelineStage
from pipecd_wire.pipecd.control.control_pb2 import ApplicationControl, Hold

DONE, FAILED, STOPPED = pb.DEPLOYMENT_SUCCESS, pb.DEPLOYMENT_FAILURE, pb.DEPLOYMENT_CANCELLED
INTERRUPTED = "the script was interrupted: it had been started"


def effect(at: float, event: str, deployment_id: str, index: int = 0) -> Effect:
    return Effect(event=event, deployment=deployment_id, index=index, pid=1, at=at)


def told(
    id: str,
    version: int = 1,
    status: pb.DeploymentStatus.ValueType = DONE,
    reason: str = "",
    *,
    name: str = "held",
    ran: Sequence[float] = (),
    fails: bool = False,
    is_interrupted: bool = False,
    block: int = 0,
    chain: str = "",
) -> Told:
    """A deployment whose one script began and ended, over and over, at some times."""
    made = Deployment(
        id=id,
        application_name=name,
        status=status,
        status_reason=reason,
        deployment_chain_id=chain,
        deployment_chain_block_index=block,
    )
    if is_interrupted:
        made.stages.append(PipelineStage(status=pb.STAGE_FAILURE, status_reason=INTERRUPTED))
    events = ["begin", "end"] * len(ran)
    effects = [effect(at, event, id) for at, event in zip(ran, events, strict=False)]
    return Told(deployment=made, version=version, fails=fails, effects=effects)


def promises(found: Iterable[Violation]) -> set[str]:
    return {each.promise for each in found}


def test_two_at_once_are_found() -> None:
    one = [effect(1, "begin", "a"), effect(2, "end", "a"), effect(3, "undo", "a")]
    two = [effect(4, "begin", "b"), effect(5, "end", "b")]
    assert promises(story_check.check_alone([*two, *one])) == set()
    beside = [effect(1.5, "begin", "b"), effect(2.5, "end", "b")]
    assert promises(story_check.check_alone([*one, *beside])) == {"alone"}


def superseded(id: str, version: int, by: str, status: int = STOPPED) -> Told:
    reason = f"superseded by the deployment {by} of abcdefg before SCRIPT_RUN; rolled back"
    return told(id, version, pb.DeploymentStatus.ValueType(status), reason)


@pytest.mark.parametrize(
    ("found", "is_right"),
    [
        ([superseded("a", 1, "c"), superseded("b", 2, "c"), told("c", 3)], True),
        ([told("a", 1, FAILED, is_interrupted=True), told("c", 3)], True),
        ([superseded("a", 1, "b"), superseded("b", 2, "c")], False),
        ([told("a", 1), told("c", 3)], False),
        ([superseded("a", 1, "c", FAILED), told("c", 3)], False),
        ([told("a", 1, STOPPED, "cancelled"), told("c", 3)], False),
        ([superseded("a", 1, "x"), told("c", 3)], False),
        ([superseded("b", 2, "a"), superseded("a", 1, "c"), told("c", 3)], False),
        ([told("c", 3), told("d", 3)], False),
        ([told("c", 3, STOPPED, "cancelled")], False),
    ],
    ids=[
        "all",
        "interrupted",
        "lost",
        "went on",
        "failed",
        "no sentence",
        "by nobody",
        "by an older one",
        "twice",
        "newest cancelled",
    ],
)
def test_what_is_superseded_wrongly_is_found(found: list[Told], is_right: bool) -> None:
    assert promises(story_check.check_superseded(found, 3)) == (set() if is_right else {"queue"})


def test_a_script_that_was_superseded_in_the_middle_is_found() -> None:
    statuses = [pb.STAGE_SUCCESS, pb.STAGE_CANCELLED, *[pb.STAGE_NOT_STARTED_YET] * 3]
    plan = APPLICATIONS["superseded"].stages

    def broken(statuses: Sequence[int], *events: str) -> set[str]:
        made = Deployment(id="d", application_name="superseded", status=STOPPED)
        for index, status in enumerate(statuses):
            name = plan[index].kind
            kind = pb.StageStatus.ValueType(status)
            made.stages.append(PipelineStage(index=index, name=name, status=kind))
        effects = [effect(0, event.split()[0], "d", int(event.split()[1])) for event in events]
        ended = Ended(
            deployment=made,
            effects=effects,
            lost_shims=0,
            plan=plan,
            stops=APPLICATIONS["superseded"].stops,
        )
        return promises(ended.violations())

    ran = ["begin 0", "end 0"]
    assert broken(statuses, *ran, "undo 0") == set()
    assert broken([pb.STAGE_SUCCESS, *[pb.STAGE_NOT_STARTED_YET] * 4], *ran, "undo 0") == set()
    assert broken(statuses, *ran) == {"rollback"}
    stopped = [pb.STAGE_CANCELLED, *[pb.STAGE_NOT_STARTED_YET] * 4]
    assert "outcome" in broken(stopped, "begin 0", "undo 0")


@pytest.mark.parametrize(
    ("found", "is_right"),
    [
        ([told("a", 1, ran=[1, 2]), told("b", 2, ran=[3, 4])], True),
        ([told("b", 2, ran=[3, 4])], True),
        ([told("a", 1, ran=[5, 6]), told("b", 2, ran=[3, 4])], False),
        ([told("a", 1, ran=[1, 2])], False),
        ([told("a", 1, STOPPED, "cancelled"), told("b", 2)], False),
        ([told("a", 2, ran=[1, 2]), told("b", 2, ran=[3, 4])], False),
    ],
    ids=["in order", "seen together", "order", "lost", "cancelled", "twice"],
)
def test_a_wrong_queue_is_found(found: list[Told], is_right: bool) -> None:
    assert promises(story_check.check_queue(found, 2)) == (set() if is_right else {"queue"})


ENDED = "block 1 of its chain failed at chain-left: SCRIPT_RUN failed"


def chain(**changed: list[Told]) -> dict[str, list[Told]]:
    """One that came to its end, with some of its members as given."""
    blocks = {
        name: [member(name, ran=[10.0 * index, 10.0 * index + 5])]
        for index, names in enumerate(CHAIN)
        for name in names
    }
    return blocks | {name.replace("_", "-"): each for name, each in changed.items()}


def member(
    name: str,
    status: pb.DeploymentStatus.ValueType = DONE,
    reason: str = "",
    *,
    ran: Sequence[float] = (),
    fails: bool = False,
) -> Told:
    [block] = [index for index, names in enumerate(CHAIN) if name in names]
    return told(
        name, 1, status, reason, name=name, ran=ran, fails=fails, block=block, chain="chain"
    )


LEFT_FAILS = member("chain-left", FAILED, ran=[10, 15], fails=True)


@pytest.mark.parametrize(
    ("blocks", "stopped", "is_right"),
    [
        (chain(), "", True),
        (
            chain(chain_left=[LEFT_FAILS], chain_last=[member("chain-last", STOPPED, ENDED)]),
            "",
            True,
        ),
        (
            chain(
                chain_right=[member("chain-right", STOPPED, "cancelled by admin", ran=[10])],
                chain_last=[member("chain-last", STOPPED, ENDED)],
            ),
            "chain-right",
            True,
        ),
        (chain(chain_last=[]), "", False),
        (chain(chain_last=2 * [member("chain-last", ran=[20, 25])]), "", False),
        (chain(chain_last=[member("chain-last", ran=[12, 25])]), "", False),
        (chain(chain_left=[LEFT_FAILS]), "", False),
        (
            chain(chain_left=[LEFT_FAILS], chain_last=[member("chain-last", STOPPED, "x")]),
            "",
            False,
        ),
        (
            chain(
                chain_left=[LEFT_FAILS],
                chain_last=[member("chain-last", STOPPED, ENDED, ran=[20])],
            ),
            "",
            False,
        ),
        (chain(chain_last=[member("chain-last", STOPPED, ENDED)]), "", False),
        (chain(chain_right=[member("chain-right", STOPPED, ENDED, ran=[10])]), "", False),
        (chain(chain_first=[told("x", name="chain-first", chain="another")]), "", False),
    ],
    ids=[
        "whole",
        "fails",
        "cancelled",
        "missing",
        "twice",
        "too early",
        "after a failure",
        "no sentence",
        "begun after its end",
        "ended for nothing",
        "cancelled for nothing",
        "two chains",
    ],
)
def test_a_wrong_chain_is_found(
    blocks: dict[str, list[Told]], stopped: str, is_right: bool
) -> None:
    found = promises(story_check.check_chain(blocks, stopped=stopped))
    assert found == (set() if is_right else {"chain"})


def held(id: str, version: int = 1) -> Told:
    return told(id, version, FAILED, fails=True)


@pytest.mark.parametrize(
    ("found", "released", "hold", "is_right"),
    [
        ([held("a"), held("b")], "b", "b", True),
        ([held("a"), told("c", 2)], "", "", True),
        ([held("a"), held("b")], "", "b", False),
        ([held("a"), held("b"), held("c")], "b", "b", False),
        ([held("a")], "b", "a", False),
        ([held("a"), held("c")], "b", "c", False),
        ([held("a"), held("b")], "b", "", False),
        ([held("a"), told("c", 2)], "", "a", False),
    ],
    ids=[
        "released",
        "newer",
        "by itself",
        "released twice",
        "not released",
        "another one",
        "not held again",
        "held for ever",
    ],
)
def test_a_wrong_hold_is_found(found: list[Told], released: str, hold: str, is_right: bool) -> None:
    control = ApplicationControl(hold=Hold(deployment_id=hold) if hold else None)
    broken = story_check.check_hold(found, released=released, latest=2, control=control)
    assert promises(broken) == (set() if is_right else {"hold"})


REPLACED = "superseded by the deployment r of abcdefg during WAIT; rolled back"


@pytest.mark.parametrize(
    ("found", "is_right"),
    [
        ([told("a", 1), told("b", 2), told("r", 1), told("c", 3, ran=[30, 31])], True),
        ([told("a", 1), told("b", 2, STOPPED, REPLACED), told("r", 1), told("c", 3)], True),
        ([told("a", 1), told("b", 2), told("r", 1), told("c", 3, ran=[15, 16])], False),
        ([told("a", 1), told("b", 2), told("c", 3)], False),
        ([told("a", 1), told("b", 2), told("r", 2), told("c", 3)], False),
        ([told("a", 1), told("x", 1), told("r", 1), told("c", 3)], False),
        ([told("a", 1), told("b", 2), told("r", 1)], False),
        ([told("a", 1), told("r", 1), told("c", 3), told("d", 3)], False),
        ([told("a", 1), told("b", 2, STOPPED, "cancelled"), told("r", 1), told("c", 3)], False),
    ],
    ids=[
        "right",
        "replaced",
        "while pinned",
        "no roll-back",
        "another version",
        "rolled back twice",
        "lost",
        "newest twice",
        "cancelled",
    ],
)
def test_a_wrong_pin_is_found(found: list[Told], is_right: bool) -> None:
    broken = story_check.check_pin(found, roll_back="r", pinned_at=10, released_at=20, latest=3)
    assert promises(broken) == (set() if is_right else {"pin"})


def retried(runs: int, attempts: int, status: pb.DeploymentStatus.ValueType = DONE) -> Told:
    made = told("a", ran=[float(at) for at in range(2 * runs)], status=status)
    made.deployment.stages.append(PipelineStage(retried_count=attempts - 1))
    return made


@pytest.mark.parametrize(
    ("found", "attempts", "interrupted", "is_right"),
    [
        ([retried(2, 2)], 2, 0, True),
        ([retried(1, 2)], 2, 1, True),
        ([retried(3, 2)], 2, 0, False),
        ([retried(1, 2)], 2, 0, False),
        ([retried(3, 3)], 2, 0, False),
        ([retried(2, 2, FAILED)], 2, 0, False),
        ([retried(2, 2), retried(2, 2)], 2, 0, False),
    ],
    ids=["once each", "interrupted", "twice", "not at all", "more", "failed", "two"],
)
def test_a_wrong_retry_is_found(
    found: list[Told], attempts: int, interrupted: int, is_right: bool
) -> None:
    broken = story_check.check_retry(found, attempts=attempts, interrupted=interrupted)
    assert promises(broken) == (set() if is_right else {"retry"})


def test_what_begins_although_a_rule_is_in_force_is_found() -> None:
    effects = [effect(5, "begin", "running"), effect(12, "end", "running")]
    assert promises(story_check.check_rule(effects, since=10, until=20)) == set()
    begun = [*effects, effect(15, "begin", "new")]
    assert promises(story_check.check_rule(begun, since=10, until=20)) == {"rule"}
    assert (
        promises(story_check.check_rule([effect(21, "begin", "new")], since=10, until=20)) == set()
    )
