# SPDX-License-Identifier: Apache-2.0
"""The story of a rule: a freeze, a window or an emergency stop comes, and goes again."""

import asyncio
import time
from collections.abc import Iterator, Sequence

from google.protobuf.duration_pb2 import Duration

from chaos import story_check
from chaos.applications import Effect
from chaos.observe import PAUSE
from chaos.promises import Violation
from chaos.story import Story
from chaos.story_check import Told
from pipecd_wire.model import deployment_pb2
from pipecd_wire.model.deployment_pb2 import Deployment
from pipecd_wire.pipecd.api import api_pb2, windows_pb2
from pipecd_wire.pipecd.control.control_pb2 import QueuedDeployment, Window

RULE = QueuedDeployment.RULE
UNHEARD_SECONDS = 10.0
"""After that a piped has no lease any more, or has heard what was decided."""


class RuleStory(Story):
    """A freeze, a window or an emergency stop comes, and goes again."""

    applications = ("ruled",)
    _since = _until = _answered_at = 0.0
    _is_stop = False

    async def prepare(self) -> None:
        await super().prepare()
        if self.plan.is_early:
            await self._begin()
            await self.until(self.waits_visibly, "why", "ruled does not say what it waits for")
            self._since = time.time()

    async def waits_visibly(self) -> bool:
        return any([await self.is_shown(each.id, RULE) for each in await self.listed("ruled")])

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
            must_know = self._site.piped.started_at > self._answered_at
            must_know = must_know or time.time() > self._answered_at + UNHEARD_SECONDS
            must_know = must_know or await self.is_shown(made.id, RULE)
            # What the control plane says now: it knows of every deployment that is planned.
            now = {each.id: each.status for each in await self.listed("ruled")}
            if now.get(made.id) != deployment_pb2.DEPLOYMENT_PENDING:
                return
            if must_know:
                self._since = time.time()
            else:
                await asyncio.sleep(PAUSE)

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
            # Of the piped that has said that it waits.
            known = self._site.agent_of("ruled")
            return [each for each in all_of_round if self._site.agent_of(each.application) is known]
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
