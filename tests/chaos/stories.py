# SPDX-License-Identifier: Apache-2.0
"""What people do to deployments of one round, and to rules, while things die.

Each story has applications of its own (`controlled.py`). It commits versions of them, asks the
control plane for what a person would ask, and repeats each question until it is answered, with one
idempotency key, as pipectl does. What must have come of it is judged by `story_check.py`.
"""

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from typing import Any

from google.protobuf.duration_pb2 import Duration

from chaos import controlled, story_check
from chaos.applications import Effect
from chaos.check import Ended, is_interrupted, log_violation
from chaos.moments import Moment
from chaos.observe import COMPLETED, LISTED, PAUSE, Observer
from chaos.outcome import script_log_violations, stage_log
from chaos.promises import Violation
from chaos.schedule import StoryPlan
from chaos.site import PATIENT, Site
from chaos.story_check import Told
from pipecd_model.deployment import find_stage_to_decide
from pipecd_model.holds import find_waiting
from pipecd_wire.apiservice import service_pb2 as pb
from pipecd_wire.headers import IDEMPOTENCY_KEY_HEADER
from pipecd_wire.model import deployment_pb2
from pipecd_wire.model.deployment_pb2 import Deployment
from pipecd_wire.pipecd.api import api_pb2, windows_pb2
from pipecd_wire.pipecd.control.control_pb2 import ApplicationControl, QueuedDeployment, Window
from pipecd_wire.rpc import CallError, call

SHOWN_LIMIT = 60.0
"""Seconds until something must be seen that nothing keeps from being shown."""
UNHEARD_SECONDS = 10.0
"""After that a piped has no lease any more, or has heard what was decided."""
DONE_BEFORE = frozenset({"NOT_FOUND", "FAILED_PRECONDITION"})
"""How a question is refused that was carried out when the answer got lost."""


class Story:
    """One of a round."""

    applications: tuple[str, ...] = ()

    def __init__(self, site: Site, observer: Observer, plan: StoryPlan, nonce: str) -> None:
        self.plan = plan
        self.found: list[Violation] = []
        """What was wrong at once."""
        self.interrupted = 0
        """Attempts of stages that were lost with their shims, and that the last one hides."""
        self.version = 0
        self._site = site
        self._observer = observer
        self._nonce = nonce
        self._before: set[str] = set()

    async def prepare(self) -> None:
        """Before anything can die."""
        self._before = {each.id for name in self.applications for each in await self.listed(name)}

    async def run(self) -> None:
        """All that is done; what is asked for and refused breaks a promise."""
        try:
            await self.tell()
        except CallError as error:
            sentence = f"{self.plan}: {error.method} was refused: {error}"
            self.found.append(Violation(promise="asked", sentence=sentence))

    async def tell(self) -> None:
        """What people do."""
        raise NotImplementedError

    async def judge(self, told: dict[str, list[Told]]) -> list[Violation]:
        """Returns what is wrong with the deployments, which are given by application."""
        raise NotImplementedError

    # What people do.

    def publish(self, *names: str, fails: bool = False) -> str:
        """Commit the next version of some applications."""
        self.version += 1
        version = f"{self._nonce} version {self.version}"
        documents = {
            name: controlled.document(
                name,
                self._site.effects,
                version,
                fails=fails and controlled.APPLICATIONS[name].may_fail,
            )
            for name in names
        }
        commit = self._site.publish(documents, self._nonce)
        self._observer.commits.add(commit)
        self._note(f"version {self.version} of {', '.join(names)} is {commit[:7]}")
        return commit

    async def pause(self, step: int) -> None:
        await asyncio.sleep(self.plan.pauses[step])

    async def ask(self, method: Any, request: Any, name: str, subject: str) -> Any:
        """Ask until there is an answer; None when an answer that got lost had done it."""
        key = str(uuid.uuid4())
        is_unsure = False
        self._note(f"a person asks for {name} of {subject}")
        while True:
            try:
                answer = await call(method, request, metadata=[(IDEMPOTENCY_KEY_HEADER, key)])
            except CallError as error:
                if is_unsure and error.status in DONE_BEFORE:
                    answer = None
                    break
                if not error.transient:
                    raise
                is_unsure = True
                await asyncio.sleep(PAUSE)
            else:
                break
        self._note(f"{name} of {subject} was answered")
        self._observer.answered.append((name, subject))
        return answer

    def _note(self, what: str) -> None:
        self._observer.life.append(Moment.now(f"{self.plan}: {what}"))

    # What they see.

    def application_id(self, name: str) -> str:
        return self._site.application_ids[name]

    async def listed(self, name: str) -> list[Deployment]:
        """All deployments of an application that are new in this round."""
        request = pb.ListDeploymentsRequest(
            application_ids=[self.application_id(name)], limit=LISTED
        )
        answer = await call(self._site.api.ListDeployments, request, retry=PATIENT)
        return [each for each in answer.deployments if each.id not in self._before]

    async def control(self, name: str) -> ApplicationControl:
        request = api_pb2.GetApplicationControlRequest(application_id=self.application_id(name))
        method = self._site.applications.GetApplicationControl
        answer: api_pb2.GetApplicationControlResponse = await call(method, request, retry=PATIENT)
        return answer.control

    def version_of(self, deployment: Deployment) -> tuple[int, bool]:
        """Which version a deployment has deployed, and whether it fails, as git says."""
        where = f"{deployment.trigger.commit.hash}:{deployment.application_name}/app.pipecd.yaml"
        words = self._site.git("show", where).splitlines()[0].split()
        return int(words[words.index("version") + 1]), words[-1] == "fails"

    async def found_of(self, name: str, version: int) -> Deployment:
        """Wait until a version has a deployment, which is watched from then on."""
        while True:
            for each in await self.listed(name):
                self._observer.adopt(each)
                if self.version_of(each)[0] == version:
                    return each
            await asyncio.sleep(PAUSE)

    async def made(self, name: str, deployment_id: str) -> None:
        """Wait until there is a deployment that was announced."""
        while True:
            if deployment_id in {each.id for each in await self.listed(name)}:
                return
            await asyncio.sleep(PAUSE)

    async def seen(self, deployment_id: str, holds: Callable[[Deployment], bool]) -> Deployment:
        """Wait until a deployment is as wanted, or has ended."""
        while True:
            latest = self._observer.latest.get(deployment_id)
            if latest is not None and (holds(latest) or latest.status in COMPLETED):
                return latest
            await asyncio.sleep(PAUSE / 2)

    async def ended(self, deployment_id: str) -> Deployment:
        return await self.seen(deployment_id, lambda _: False)

    async def settled(self, *names: str) -> None:
        """Wait until all deployments of applications have ended."""
        for name in names:
            for each in await self.listed(name):
                self._observer.adopt(each)
                await self.ended(each.id)

    async def until(self, ask: Callable[[], Awaitable[bool]], promise: str, sentence: str) -> bool:
        """Wait until something is shown; otherwise a promise is broken."""
        try:
            async with asyncio.timeout(SHOWN_LIMIT):
                while True:
                    if await ask():
                        return True
                    await asyncio.sleep(PAUSE)
        except TimeoutError:
            self.found.append(Violation(promise=promise, sentence=sentence))
            return False


def has_begun(deployment: Deployment) -> bool:
    return any(stage.status != deployment_pb2.STAGE_NOT_STARTED_YET for stage in deployment.stages)


class ChainStory(Story):
    """One application after the other; one of the middle fails, or a person cancels it."""

    applications = tuple(name for block in controlled.CHAIN for name in block)

    async def tell(self) -> None:
        await self.pause(0)
        self.publish(*self.applications, fails=self.plan.variant == "fails")
        made = {name: await self.found_of(name, 1) for name in self.applications}
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
        await self._approve(newest.id)
        await self.settled(name)

    async def _approve(self, deployment_id: str) -> None:
        def waits(it: Deployment) -> bool:
            return any(
                stage.name == "WAIT_APPROVAL" and stage.status == deployment_pb2.STAGE_RUNNING
                for stage in it.stages
            )

        latest = await self.seen(deployment_id, waits)
        if latest.status not in COMPLETED:
            request = api_pb2.ApproveStageRequest(deployment_id=deployment_id)
            method = self._site.deployments.ApproveStage
            await self.ask(method, request, "ApproveStage", deployment_id)

    async def judge(self, told: dict[str, list[Told]]) -> list[Violation]:
        return list(story_check.check_superseded(told["superseded"], self.version))


class LockStory(Story):
    """Two applications with one lock: one queues newer commits, the other one puts them off."""

    applications = controlled.LOCKED

    async def tell(self) -> None:
        self.publish(*self.applications)
        first = await self.found_of("locked-queue", 1)
        await self.seen(first.id, has_begun)
        for step in range(2 if self.plan.variant == "twice" else 1):
            await self.pause(step)
            self.publish(*self.applications)
        for name in self.applications:
            await self.found_of(name, self.version)
            await self.settled(name)

    async def listed(self, name: str) -> list[Deployment]:
        deployments = await super().listed(name)
        still = [each.id for each in deployments if each.status not in COMPLETED]
        if name == "locked-reject" and len(still) > 1:
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
        await self.until(self._says_why, "why", f"{name} does not say what its newest waits for")
        self._released_at = time.time()
        release = api_pb2.ReleasePinRequest(application_id=self.application_id(name))
        await self.ask(
            self._site.applications.ReleasePin, release, "ReleasePin", release.application_id
        )
        await self.found_of(name, self.version)
        await self.settled(name)

    async def _says_why(self) -> bool:
        request = pb.GetApplicationRequest(application_id=self.application_id("pinned"))
        answer = await call(self._site.api.GetApplication, request, retry=PATIENT)
        return bool(find_waiting(answer.application.sync_state))

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


class RuleStory(Story):
    """A freeze, a window or an emergency stop comes, and goes again."""

    applications = ("ruled",)
    _since = _until = _answered_at = 0.0
    _is_stop = False

    async def prepare(self) -> None:
        await super().prepare()
        if self.plan.is_early:
            await self._begin()
            await self.until(self._waits_visibly, "why", "ruled does not say what it waits for")
            self._since = time.time()

    async def _waits_visibly(self) -> bool:
        return any([await self._is_shown(each) for each in await self.listed("ruled")])

    async def _begin(self) -> None:
        await self._set()
        self._answered_at = time.time()
        self.publish("ruled")

    async def tell(self) -> None:
        if not self.plan.is_early:
            await self.pause(0)
            await self._begin()
        made = await self.found_of("ruled", 1)
        await self._wait_in_force(made)
        await self.pause(1)
        await self.pause(2)
        self._until = time.time()
        await self._lift()
        await self.settled("ruled")

    async def _wait_in_force(self, made: Deployment) -> None:
        """Wait until piped must have heard of the rule: it says so, has begun anew, or has had
        no lease since. What has begun before that was running."""
        while not self._since:
            latest = self._observer.latest[made.id]
            started = self._site.piped.started_at
            if latest.status != deployment_pb2.DEPLOYMENT_PENDING:
                return
            if started > self._answered_at:
                self._since = started
            elif time.time() > self._answered_at + UNHEARD_SECONDS or await self._is_shown(made):
                self._since = time.time()
            else:
                await asyncio.sleep(PAUSE)

    async def _is_shown(self, made: Deployment) -> bool:
        method = self._site.deployments.ListQueue
        answer = await call(method, api_pb2.ListQueueRequest(), retry=PATIENT)
        return any(
            each.queued.deployment_id == made.id
            and each.queued.cause == QueuedDeployment.RULE
            and each.queued.sentence
            for each in answer.items
        )

    async def _set(self) -> None:
        application_id = self.application_id("ruled")
        match self.plan.variant:
            case "freeze":
                await self._freeze(frozen=True)
            case "window":
                window = Window(
                    name="chaos",
                    effect=Window.DENY,
                    start="2026-01-01T00:00:00",
                    duration=Duration(seconds=24 * 3600),
                    rule="FREQ=DAILY",
                    time_zone="Europe/Berlin",
                    application_id=application_id,
                )
                request = windows_pb2.SetWindowRequest(window=window)
                await self.ask(self._site.windows.SetWindow, request, "SetWindow", "default")
            case _:
                stop = windows_pb2.StopDeploymentsRequest(reason="chaos")
                method = self._site.windows.StopDeployments
                await self.ask(method, stop, "StopDeployments", "default")

    async def _lift(self) -> None:
        match self.plan.variant:
            case "freeze":
                await self._freeze(frozen=False)
            case "window":
                request = windows_pb2.DeleteWindowRequest(name="chaos")
                await self.ask(self._site.windows.DeleteWindow, request, "DeleteWindow", "default")
            case _:
                resume = windows_pb2.ResumeDeploymentsRequest()
                method = self._site.windows.ResumeDeployments
                await self.ask(method, resume, "ResumeDeployments", "default")

    async def _freeze(self, *, frozen: bool) -> None:
        request = api_pb2.SetFreezeRequest(
            application_id=self.application_id("ruled"), frozen=frozen, reason="chaos"
        )
        method = self._site.applications.SetFreeze
        await self.ask(method, request, "SetFreeze", request.application_id)

    def judged_effects(self, told: Sequence[Told], all_of_round: Sequence[Effect]) -> list[Effect]:
        """Those of deployments that the rule is for."""
        if self.plan.variant == "stop" and self.plan.is_early:
            return list(all_of_round)
        return [effect for each in told for effect in each.effects]

    async def judge(self, told: dict[str, list[Told]]) -> list[Violation]:
        found = list(story_check.check_once(told["ruled"], self.version, "rule"))
        found += [
            Violation(promise="rule", sentence=each.says)
            for each in told["ruled"]
            if not each.is_done
        ]
        return found

    def judge_round(self, told: Sequence[Told], effects: Sequence[Effect]) -> Iterator[Violation]:
        """Has nothing begun meanwhile?"""
        if self._since:
            judged = self.judged_effects(told, effects)
            yield from story_check.check_rule(judged, since=self._since, until=self._until)


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
