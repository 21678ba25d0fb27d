# SPDX-License-Identifier: Apache-2.0
"""What people do to deployments of one round, and to rules, while things die.

Each story has applications of its own (`controlled.py`). What must have come of it is judged by
`story_check.py`.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence

from chaos import controlled, story_check
from chaos.applications import Effect
from chaos.check import Ended, is_interrupted, log_violation
from chaos.observe import COMPLETED, PAUSE
from chaos.outcome import script_log_violations, stage_log
from chaos.promises import Violation
from chaos.site import Site
from chaos.story import Story, has_begun, needs_approval
from chaos.story_check import Told
from chaos.story_rule import RuleStory
from pipecd_model.deployment import find_stage_to_decide
from pipecd_wire.model import deployment_pb2
from pipecd_wire.model.deployment_pb2 import Deployment
from pipecd_wire.pipecd.api import api_pb2
from pipecd_wire.pipecd.control.control_pb2 import QueuedDeployment
from pipecd_wire.rpc import CallError

REJECTS = "locked-reject"
BEHIND = (QueuedDeployment.OTHER_DEPLOYMENT, QueuedDeployment.LOCK)
"""What one waits for whose application, or lock, is busy."""


class ChainStory(Story):
    """One application after the other; one of the middle fails, or a person cancels it."""

    applications = tuple(name for block in controlled.CHAIN for name in block)

    async def tell(self) -> None:
        await self.pause(0)
        self.publish(*self.applications, fails=self.plan.variant == "fails")
        made = {name: await self.found_of(name, 1) for name in self.applications}
        await self.explained(made["chain-last"], QueuedDeployment.CHAIN)
        if self.plan.variant == "cancelled":
            right = made["chain-right"].id
            await self.seen(right, has_begun)
            await self.pause(1)
            request = api_pb2.CancelDeploymentRequest(deployment_id=right)
            if self._observer.latest[right].status not in COMPLETED:
                await self._cancel(right, request)
        await self.settled(*self.applications)

    async def _cancel(self, deployment_id: str, request: api_pb2.CancelDeploymentRequest) -> None:
        try:
            method = self._site.deployments.CancelDeployment
            await self.ask(method, request, "CancelDeployment", deployment_id)
        except CallError as error:
            if error.status != "FAILED_PRECONDITION":
                raise  # it has ended meanwhile

    async def judge(self, told: dict[str, list[Told]]) -> list[Violation]:
        stopped = "chain-right" if self.plan.variant == "cancelled" else ""
        return list(story_check.check_chain(told, stopped=stopped))


class SupersedeStory(Story):
    """Newer commits while an older one is deployed: they take its place where they may."""

    applications = ("superseded",)

    async def tell(self) -> None:
        [name] = self.applications
        self.publish(name)
        first = await self.found_of(name, 1)
        await self.seen(first.id, has_begun)
        await self.pause(0)
        self.publish(name)
        if self.plan.variant == "twice":
            await self.pause(1)
            self.publish(name)
        newest = await self.found_of(name, self.version)
        latest = await self.seen(newest.id, needs_approval)
        if latest.status not in COMPLETED:
            await self.approve(newest.id)
        await self.settled(name)

    async def judge(self, told: dict[str, list[Told]]) -> list[Violation]:
        return list(story_check.check_superseded(told["superseded"], self.version))


class LockStory(Story):
    """Two applications with one lock: one queues newer commits, the other one puts them off.

    What the other one deploys waits for an approval, which comes when a newer commit has said
    what it waits for.
    """

    applications = controlled.LOCKED

    async def tell(self) -> None:
        self._approved: set[str] = set()
        self.publish(*self.applications)
        firsts = [await self.found_of(name, 1) for name in self.applications]
        while not any(has_begun(self._observer.latest[each.id]) for each in firsts):  # noqa: ASYNC110 - it is polled
            await asyncio.sleep(PAUSE / 2)
        commit = ""
        for step in range(2 if self.plan.variant == "twice" else 1):
            await self.pause(step)
            commit = self.publish(*self.applications)
        await self.rejection_explained(commit)
        queued = await self.found_of("locked-queue", self.version)
        await self.explained(queued, *BEHIND)
        newest = await self._approved_until(lambda _: True)
        await self.explained(newest, *BEHIND)
        await self._approved_until(lambda it: it.status in COMPLETED)
        await self.settled(*self.applications)

    async def rejection_explained(self, commit: str) -> None:
        """Wait until the application that rejects says that a commit, or a newer one, waits for
        its open deployment; or until it has none of an older version any more."""

        async def is_told() -> bool:
            still = [
                each.id
                for each in await self.listed(REJECTS)
                if each.status not in COMPLETED and self.version_of(each)[0] < self.version
            ]
            sentence = await self.waiting_sentence(REJECTS)
            since = self._site.git("rev-list", f"{commit}^..HEAD").split()
            return not still or story_check.tells_rejection(sentence, since, still)

        wrong = f"{REJECTS} does not say that {commit[:7]} waits, and for which deployment"
        await self.until(is_told, "why", wrong)

    async def _approved_until(self, holds: Callable[[Deployment], bool]) -> Deployment:
        """Approve what waits for that, until the newest version is there and as wanted."""
        while True:
            for each in await self.listed(REJECTS):
                self._observer.adopt(each)
                latest = self._observer.latest[each.id]
                if self.version_of(each)[0] == self.version and holds(latest):
                    return latest
                if needs_approval(latest) and each.id not in self._approved:
                    self._approved.add(each.id)
                    await self.approve(each.id)
            await asyncio.sleep(PAUSE)

    async def listed(self, name: str) -> list[Deployment]:
        deployments = await super().listed(name)
        still = [each.id for each in deployments if each.status not in COMPLETED]
        if name == REJECTS and len(still) > 1:
            sentence = f"{name} has the open deployments {still}"
            self.found.append(Violation(promise="queue", sentence=sentence))
        return deployments

    async def judge(self, told: dict[str, list[Told]]) -> list[Violation]:
        effects = [effect for each in told.values() for it in each for effect in it.effects]
        found = list(story_check.check_alone(effects))
        for name in self.applications:
            found += story_check.check_queue(told[name], self.version)
        return found


class HoldStory(Story):
    """A commit fails and is held, until a person releases it or a newer one comes."""

    applications = ("held",)
    _released = ""

    async def tell(self) -> None:
        [name] = self.applications
        self.publish(name, fails=True)
        first = await self.found_of(name, 1)
        await self.ended(first.id)

        async def is_held() -> bool:
            return (await self.control(name)).hold.deployment_id == first.id

        if not await self.until(is_held, "hold", f"{name} is not held after {first.id}"):
            return
        await self.pause(0)
        await self.pause(1)  # nothing happens by itself
        if self.plan.variant == "release":
            request = api_pb2.ReleaseHoldRequest(
                application_id=self.application_id(name), reason="once more"
            )
            method = self._site.applications.ReleaseHold
            answer = await self.ask(method, request, "ReleaseHold", self.application_id(name))
            self._released = answer.deployment_id
            await self.made(name, self._released)
        else:
            self.publish(name)
            await self.found_of(name, self.version)
        await self.settled(name)

    async def judge(self, told: dict[str, list[Told]]) -> list[Violation]:
        return list(
            story_check.check_hold(
                told["held"],
                released=self._released,
                latest=self.version,
                control=await self.control("held"),
            )
        )


class PinStory(Story):
    """A person rolls back, a newer commit waits, and the release deploys it."""

    applications = ("pinned",)
    _roll_back = ""
    _pinned_at = _released_at = 0.0

    async def tell(self) -> None:
        [name] = self.applications
        self.publish(name)
        first = await self.found_of(name, 1)
        await self.ended(first.id)
        self.publish(name)
        second = await self.found_of(name, 2)
        early = self.plan.variant == "early"
        await (self.seen(second.id, has_begun) if early else self.ended(second.id))
        await self.pause(0)
        request = api_pb2.RollBackApplicationRequest(
            application_id=self.application_id(name),
            commit_hash=first.trigger.commit.hash,
            reason="it was better before",
        )
        method = self._site.applications.RollBackApplication
        answer = await self.ask(method, request, "RollBackApplication", request.application_id)
        self._roll_back = answer.deployment_id
        await self.made(name, self._roll_back)
        self._pinned_at = time.time()
        # piped has heard of the pin: it made the roll-back.
        self.publish(name)
        await self.settled(name)
        await self.pause(1)
        await self.until(self.says_why, "why", f"{name} does not say what its newest waits for")
        self._released_at = time.time()
        release = api_pb2.ReleasePinRequest(application_id=self.application_id(name))
        await self.ask(
            self._site.applications.ReleasePin, release, "ReleasePin", release.application_id
        )
        await self.found_of(name, self.version)
        await self.settled(name)

    async def says_why(self) -> bool:
        return bool(await self.waiting_sentence("pinned"))

    async def judge(self, told: dict[str, list[Told]]) -> list[Violation]:
        return list(
            story_check.check_pin(
                told["pinned"],
                roll_back=self._roll_back,
                pinned_at=self._pinned_at,
                released_at=self._released_at,
                latest=self.version,
            )
        )


class RetryStory(Story):
    """A stage fails, and a person retries it: in vain at first, in some rounds."""

    applications = ("retried",)
    _asked = 0

    async def tell(self) -> None:
        [name] = self.applications
        self.publish(name)
        made = await self.found_of(name, 1)
        fails = 1 if self.plan.variant == "once" else 2
        while True:
            latest = await self.seen(made.id, self._waits)
            if latest.status in COMPLETED:
                return
            stage = find_stage_to_decide(latest)
            assert stage is not None
            self.interrupted += is_interrupted(stage)
            await self.pause(self._asked % 4)
            self._asked += 1
            if self._asked >= fails:
                controlled.fixed_file(self._site.effects, made.id).touch()
            request = api_pb2.RetryStageRequest(deployment_id=made.id, comment="once more")
            method = self._site.deployments.RetryStage
            answer = await self.ask(method, request, "RetryStage", made.id)
            if answer is not None and answer.attempt != self._asked:
                sentence = f"{name} {made.id} retries as {answer.attempt}, not {self._asked}"
                self.found.append(Violation(promise="retry", sentence=sentence))

    def _waits(self, deployment: Deployment) -> bool:
        stage = find_stage_to_decide(deployment)
        return stage is not None and stage.retried_count >= self._asked

    async def judge(self, told: dict[str, list[Told]]) -> list[Violation]:
        found = list(
            story_check.check_retry(
                told["retried"], attempts=self._asked + 1, interrupted=self.interrupted
            )
        )
        [plan] = controlled.APPLICATIONS["retried"].stages
        for each in told["retried"]:
            for stage in each.deployment.stages:
                if stage.rollback:
                    continue
                for attempt in range(stage.retried_count + 1):
                    one = deployment_pb2.PipelineStage(id=stage.id, retried_count=attempt)
                    lines, is_closed = await stage_log(self._site, each.deployment, one)
                    where = f"{each.where} attempt {attempt}: the log"
                    if not is_closed:
                        found.append(Violation(promise="logs", sentence=f"{where} is not closed"))
                    is_whole = not any("interrupted" in line for line in lines)
                    if wrong := log_violation(lines, plan.lines, is_whole=is_whole):
                        found.append(Violation(promise="logs", sentence=f"{where} {wrong}"))
        return found


KINDS: dict[str, type[Story]] = {
    "chain": ChainStory,
    "supersede": SupersedeStory,
    "locks": LockStory,
    "hold": HoldStory,
    "pin": PinStory,
    "retry": RetryStory,
    "rule": RuleStory,
}


async def violations(
    site: Site, story: Story, effects: Sequence[Effect], lost_shims: int
) -> AsyncIterator[Violation]:
    """All that a story has broken."""
    for each in story.found:
        yield each
    told: dict[str, list[Told]] = {}
    for name in story.applications:
        told[name] = [_told(story, each, effects) for each in await story.listed(name)]
        own = [effect for it in told[name] for effect in it.effects]
        for violation in story_check.check_alone(own):
            yield violation
        for it in told[name]:
            async for violation in _each(site, it, lost_shims):
                yield violation
    for violation in await story.judge(told):
        yield violation
    if isinstance(story, RuleStory):
        for violation in story.judge_round(told["ruled"], effects):
            yield violation


def _told(story: Story, deployment: Deployment, effects: Sequence[Effect]) -> Told:
    version, fails = story.version_of(deployment)
    mine = [each for each in effects if each.deployment == deployment.id]
    return Told(deployment=deployment, version=version, fails=fails, effects=mine)


async def _each(site: Site, told: Told, lost_shims: int) -> AsyncIterator[Violation]:
    """What must hold of every deployment."""
    name = told.deployment.application_name
    about = controlled.APPLICATIONS[name]
    if about.until_fixed:
        return
    plan = controlled.plan_of(name, fails=told.fails)
    ended = Ended(
        deployment=told.deployment,
        effects=told.effects,
        lost_shims=lost_shims,
        plan=plan,
        stops=about.stops,
    )
    for violation in ended.violations():
        yield violation
    async for violation in script_log_violations(site, told.deployment, plan):
        yield violation
