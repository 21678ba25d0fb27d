# SPDX-License-Identifier: Apache-2.0
"""What must hold of deployments about which people and rules decide. Pure.

`stories.py` does what people do, and gathers what is judged here.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from chaos.applications import Effect
from chaos.check import is_interrupted
from chaos.controlled import CHAIN
from chaos.promises import Violation
from pipecd_wire.model import deployment_pb2
from pipecd_wire.model.deployment_pb2 import Deployment
from pipecd_wire.pipecd.control.control_pb2 import ApplicationControl, QueuedDeployment

SUCCESS = deployment_pb2.DEPLOYMENT_SUCCESS
FAILURE = deployment_pb2.DEPLOYMENT_FAILURE
CANCELLED = deployment_pb2.DEPLOYMENT_CANCELLED
SUPERSEDED = "superseded by the deployment "
CHAIN_ENDS = ("block ", "the block of the chain ")
"""How the sentences begin with which a chain ends deployments that have not begun."""
LATE = 0.05
"""Seconds: a script tells the time with a program that it has to start first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """One deployment of a story at its end."""

    deployment: Deployment
    version: int
    """Of the application file that it has deployed."""
    fails: bool = False
    """Does that version fail?"""
    effects: Sequence[Effect] = field(default=())

    @property
    def where(self) -> str:
        name = self.deployment.application_name
        return f"{name} {self.deployment.id} of version {self.version}"

    @property
    def says(self) -> str:
        status = deployment_pb2.DeploymentStatus.Name(self.deployment.status)
        return f"{self.where} is {status} ({self.deployment.status_reason!r})"

    @property
    def was_interrupted(self) -> bool:
        return any(is_interrupted(stage) for stage in self.deployment.stages)

    @property
    def is_done(self) -> bool:
        """It has succeeded, or a shim has died and it has failed for that alone."""
        if self.deployment.status == SUCCESS:
            return not self.fails
        return self.deployment.status == FAILURE and (self.fails or self.was_interrupted)


def check_alone(effects: Sequence[Effect]) -> Iterator[Violation]:
    """Does each deployment come to its end before another one does anything?

    Given are the effects of one application, or of all that name one lock.
    """
    over: set[str] = set()
    last = ""
    for each in sorted(effects, key=lambda it: it.at):
        if each.deployment != last:
            if each.deployment in over:
                sentence = f"{each.application} {each.deployment} goes on beside {last}"
                yield Violation(promise="alone", sentence=sentence)
            over.add(last)
            last = each.deployment


def check_once(told: Sequence[Told], latest: int, promise: str) -> Iterator[Violation]:
    """Is each version deployed at most once, and the newest once?"""
    counts = Counter(each.version for each in told)
    if counts[latest] != 1 or max(counts.values()) > 1:
        sentence = f"deployments by version are {dict(counts)}, and {latest} is the newest"
        yield Violation(promise=promise, sentence=sentence)


def check_superseded(told: Sequence[Told], latest: int) -> Iterator[Violation]:
    """The newest is deployed; each other one was superseded by a newer one and says so."""
    yield from check_once(told, latest, "queue")
    versions = {each.deployment.id: each.version for each in told}
    for each in told:
        if each.is_done and each.version == latest:
            continue
        if each.deployment.status == FAILURE and each.was_interrupted:
            continue
        reason = each.deployment.status_reason
        newer = reason.removeprefix(SUPERSEDED).split(" ")[0]
        is_told = reason.startswith(SUPERSEDED) and versions.get(newer, 0) > each.version
        if each.deployment.status != CANCELLED or not is_told:
            yield Violation(promise="queue", sentence=each.says)


def check_queue(told: Sequence[Told], latest: int) -> Iterator[Violation]:
    """Each is deployed, the older ones first."""
    yield from check_once(told, latest, "queue")
    for each in told:
        if not each.is_done:
            yield Violation(promise="queue", sentence=each.says)
    begun = sorted((each for each in told if each.effects), key=lambda it: it.effects[0].at)
    versions = [each.version for each in begun]
    if versions != sorted(versions):
        sentence = f"{begun[0].deployment.application_name} was deployed in the order {versions}"
        yield Violation(promise="queue", sentence=sentence)


def tells_cause(
    queued: Iterable[QueuedDeployment], deployment_id: str, causes: Collection[int]
) -> bool:
    """Does the queue say, with a sentence, that a deployment waits for one of these causes?"""
    return any(
        each.deployment_id == deployment_id and each.cause in causes and each.sentence != ""
        for each in queued
    )


def tells_rejection(sentence: str, commits: Collection[str], open_ids: Collection[str]) -> bool:
    """Does a sync state say that one of these commits waits, and for which open deployment?"""
    words = sentence.split()
    is_named = any(commit[:7] in words for commit in commits)
    return is_named and any(each in words for each in open_ids)


def check_chain(blocks: Mapping[str, Sequence[Told]], *, stopped: str) -> Iterator[Violation]:
    """Given are the deployments of each application, and which one a person has cancelled."""
    for name, told in blocks.items():
        if len(told) != 1:
            sentence = f"{name} has {len(told)} deployments in the chain"
            yield Violation(promise="chain", sentence=sentence)
    chains = {each.deployment.deployment_chain_id for told in blocks.values() for each in told}
    if len(chains) != 1 or "" in chains:
        yield Violation(promise="chain", sentence=f"there are the chains {sorted(chains)}")
        return
    before: list[Told] = []
    for index, names in enumerate(CHAIN):
        block = [each for name in names for each in blocks[name]]
        for each in block:
            if each.deployment.deployment_chain_block_index != index:
                sentence = f"{each.where} is not in block {index}"
                yield Violation(promise="chain", sentence=sentence)
            yield from _check_member(each, block, before, stopped=stopped)
        before += block


def _check_member(
    each: Told, block: Sequence[Told], before: Sequence[Told], *, stopped: str
) -> Iterator[Violation]:
    is_open = all(other.deployment.status == SUCCESS for other in before)
    others_ended = any(other.deployment.status != SUCCESS for other in block if other is not each)
    deployment = each.deployment
    is_ended_by_chain = deployment.status == CANCELLED and deployment.status_reason.startswith(
        CHAIN_ENDS
    )
    if not is_open:
        if each.effects or not is_ended_by_chain:
            sentence = (
                f"{each.says} although the chain had ended; it did {len(each.effects)} things"
            )
            yield Violation(promise="chain", sentence=sentence)
        return
    ends = [effect.at for other in before for effect in other.effects if effect.event == "end"]
    if each.effects and ends and each.effects[0].at + LATE < max(ends):
        sentence = f"{each.where} began before the block before it was over"
        yield Violation(promise="chain", sentence=sentence)
    may_be_cancelled = stopped == deployment.application_name or (
        others_ended and is_ended_by_chain and not each.effects
    )
    if not each.is_done and not (deployment.status == CANCELLED and may_be_cancelled):
        yield Violation(promise="chain", sentence=each.says)


def check_hold(
    told: Sequence[Told], *, released: str, latest: int, control: ApplicationControl
) -> Iterator[Violation]:
    """The version that fails is held; `released` is the deployment that a release made."""
    wanted = Counter({1: 2}) if released else Counter({1: 1, latest: 1})
    counts = Counter(each.version for each in told)
    if counts != wanted:
        sentence = f"held: deployments by version are {dict(counts)} instead of {dict(wanted)}"
        yield Violation(promise="hold", sentence=sentence)
    if released and released not in {each.deployment.id for each in told}:
        yield Violation(promise="hold", sentence=f"the release made no {released}")
    for each in told:
        if not each.is_done:
            yield Violation(promise="hold", sentence=each.says)
    first = [each for each in told if each.version == 1 and each.deployment.id != released]
    last = [each for each in told if each not in first]
    if last and last[0].deployment.status == SUCCESS:
        wanted_hold = ""
    else:
        wanted_hold = (last or first)[0].deployment.id if told else ""
    if control.hold.deployment_id != wanted_hold:
        sentence = f"held: the hold is for {control.hold.deployment_id!r}, not {wanted_hold!r}"
        yield Violation(promise="hold", sentence=sentence)


def check_pin(
    told: Sequence[Told], *, roll_back: str, pinned_at: float, released_at: float, latest: int
) -> Iterator[Violation]:
    """Versions 1 and 2 come before the roll-back to 1, the newest one after the release."""
    others = [each for each in told if each.deployment.id != roll_back]
    back = [each for each in told if each.deployment.id == roll_back]
    if len(back) != 1 or back[0].version != 1 or not back[0].is_done:
        sentence = f"the roll-back {roll_back} became {[each.says for each in back]}"
        yield Violation(promise="pin", sentence=sentence)
    yield from check_once(others, latest, "pin")
    for each in others:
        deployment = each.deployment
        # The roll-back takes the place of what runs or waits.
        is_replaced = deployment.status == CANCELLED and deployment.status_reason.startswith(
            f"{SUPERSEDED}{roll_back} "
        )
        if not each.is_done and not (each.version == 2 and is_replaced):
            yield Violation(promise="pin", sentence=each.says)
        begun = [effect.at for effect in each.effects if effect.event == "begin"]
        if each.version == latest and begun and begun[0] < released_at:
            sentence = (
                f"{each.where} began {begun[0] - pinned_at:.2f} s after the roll-back was made,"
                f" {released_at - begun[0]:.2f} s before it was released"
            )
            yield Violation(promise="pin", sentence=sentence)


def check_retry(told: Sequence[Told], *, attempts: int, interrupted: int) -> Iterator[Violation]:
    """`attempts` were asked for, the first one included; of some the shim has died."""
    if len(told) != 1:
        yield Violation(promise="retry", sentence=f"retried has {len(told)} deployments")
        return
    [each] = told
    if each.deployment.status != SUCCESS:
        yield Violation(promise="retry", sentence=each.says)
    counted = sum(stage.retried_count + 1 for stage in each.deployment.stages if not stage.rollback)
    begun = Counter(effect.event for effect in each.effects)
    seen = f"{each.where} has {counted} attempts instead of {attempts}, and did {dict(begun)}"
    if counted != attempts:
        yield Violation(promise="retry", sentence=seen)
    for event in ("begin", "end"):
        if not attempts - interrupted <= begun[event] <= attempts:
            yield Violation(promise="retry", sentence=f"{seen}, {interrupted} were interrupted")
    if begun["undo"]:
        yield Violation(promise="rollback", sentence=seen)


def check_rule(effects: Sequence[Effect], *, since: float, until: float) -> Iterator[Violation]:
    """Given are the effects of deployments that had not begun when the rule came into force."""
    for each in effects:
        if each.event == "begin" and since < each.at < until:
            sentence = (
                f"{each.application} {each.deployment} stage {each.index} began"
                f" {each.at - since:.2f} s after the rule came into force and"
                f" {until - each.at:.2f} s before it was lifted"
            )
            yield Violation(promise="rule", sentence=sentence)
