# SPDX-License-Identifier: Apache-2.0
"""What every story has: versions that it commits, questions of a person, and what is seen of them.

A question is repeated until it is answered, with one idempotency key, as pipectl does it.
"""

import asyncio
import time
import uuid
from collections.abc import Awaitable, Callable
from typing import Any

from chaos import controlled, story_check
from chaos.moments import Moment
from chaos.observe import COMPLETED, LISTED, PAUSE, Observer
from chaos.promises import Violation
from chaos.schedule import StoryPlan
from chaos.site import PATIENT, Site
from chaos.story_check import Told
from pipecd_model.holds import find_waiting
from pipecd_wire.apiservice import service_pb2 as pb
from pipecd_wire.headers import IDEMPOTENCY_KEY_HEADER
from pipecd_wire.model import deployment_pb2
from pipecd_wire.model.deployment_pb2 import Deployment
from pipecd_wire.pipecd.api import api_pb2
from pipecd_wire.pipecd.control.control_pb2 import ApplicationControl
from pipecd_wire.rpc import CallError, call

SHOWN_LIMIT = 60.0
"""Seconds until something must be seen that nothing keeps from being shown."""
DONE_BEFORE = frozenset({"NOT_FOUND", "FAILED_PRECONDITION"})
"""How a question is refused that was carried out when the answer got lost."""

BUG = "the server's log has the details"
"""What an answer says whose server failed of itself; one that was cut off says something else."""


class Story:
    """One of a round."""

    applications: tuple[str, ...] = ()
    shown_seconds = SHOWN_LIMIT

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

    async def approve(self, deployment_id: str) -> None:
        request = api_pb2.ApproveStageRequest(deployment_id=deployment_id)
        method = self._site.deployments.ApproveStage
        await self.ask(method, request, "ApproveStage", deployment_id)

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
                if not error.transient or BUG in error.message:
                    raise
                is_unsure = True
                await asyncio.sleep(PAUSE)
            else:
                break
        self._note(f"{name} of {subject} was answered")
        self._observer.note_answer(method, subject)
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

    async def is_shown(self, deployment_id: str, *causes: int) -> bool:
        """Does the queue say that a deployment waits for one of these causes, and a sentence?"""
        method = self._site.deployments.ListQueue
        answer = await call(method, api_pb2.ListQueueRequest(), retry=PATIENT)
        queued = [each.queued for each in answer.items]
        return story_check.tells_cause(queued, deployment_id, causes)

    async def waiting_sentence(self, name: str) -> str:
        """Which commit of an application waits and for what, as its sync state says; empty when
        it does not."""
        request = pb.GetApplicationRequest(application_id=self.application_id(name))
        answer = await call(self._site.api.GetApplication, request, retry=PATIENT)
        return find_waiting(answer.application.sync_state)

    async def explained(self, made: Deployment, *causes: int) -> None:
        """Wait until a deployment says why it waits, or does not wait any more."""

        async def is_told() -> bool:
            has_waited = self._observer.latest[made.id].status != deployment_pb2.DEPLOYMENT_PENDING
            return has_waited or await self.is_shown(made.id, *causes)

        where = f"{made.application_name} {made.id}"
        await self.until(is_told, "why", f"{where} waits and does not say for what")

    async def until(self, ask: Callable[[], Awaitable[bool]], promise: str, sentence: str) -> bool:
        """Wait until something is shown; otherwise a promise is broken. An answer decides: it is
        asked for once at least, however slow the machine is."""
        until = time.monotonic() + self.shown_seconds
        while not await ask():
            if time.monotonic() >= until:
                self.found.append(Violation(promise=promise, sentence=sentence))
                return False
            await asyncio.sleep(PAUSE)
        return True


def has_begun(deployment: Deployment) -> bool:
    return any(stage.status != deployment_pb2.STAGE_NOT_STARTED_YET for stage in deployment.stages)


def needs_approval(deployment: Deployment) -> bool:
    return any(
        stage.name == "WAIT_APPROVAL" and stage.status == deployment_pb2.STAGE_RUNNING
        for stage in deployment.stages
    )
