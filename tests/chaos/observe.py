# SPDX-License-Identifier: Apache-2.0
"""What the control plane says over time: every status of every deployment of a round, in order."""

import asyncio
import os
import signal
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import aclosing, suppress
from typing import Any

from chaos.applications import ALL_CANCELLED
from chaos.moments import Moment
from chaos.processes import plugin_pids
from chaos.schedule import Round
from chaos.site import PATIENT, Site
from chaos.spread import SpreadMethod
from pipecd_wire.apiservice import service_pb2 as pb
from pipecd_wire.model import deployment_pb2
from pipecd_wire.model.deployment_pb2 import Deployment
from pipecd_wire.pipecd.api import api_pb2
from pipecd_wire.rpc import CallError, call, stream

COMPLETED = frozenset(
    {
        deployment_pb2.DEPLOYMENT_SUCCESS,
        deployment_pb2.DEPLOYMENT_FAILURE,
        deployment_pb2.DEPLOYMENT_CANCELLED,
    }
)
LISTED = 20
"""Deployments of an application in one answer: more than a round ever has."""
PAUSE = 0.1
"""Seconds until the next question: for a deployment that is not there yet, or a dead server."""


def backwards(before: Deployment, after: Deployment) -> list[str]:
    """What went backwards, or changed after its end, between two looks at a deployment."""
    found = []
    status = deployment_pb2.DeploymentStatus.Name
    if after.status < before.status or (
        before.status in COMPLETED and after.status != before.status
    ):
        found.append(f"the deployment from {status(before.status)} to {status(after.status)}")
    now = {stage.id: stage for stage in after.stages}
    name = deployment_pb2.StageStatus.Name
    for was in before.stages:
        stage = now.get(was.id)
        if stage is None:
            found.append(f"stage {was.index} {was.name} is gone")
            continue
        if stage.retried_count > was.retried_count:
            continue
        is_over = was.status > deployment_pb2.STAGE_RUNNING
        if stage.status < was.status or (is_over and stage.status != was.status):
            found.append(
                f"stage {was.index} {was.name} from {name(was.status)} to {name(stage.status)}"
            )
    return found


def _statuses(deployment: Deployment) -> dict[str, str]:
    found = {"deployment": deployment_pb2.DeploymentStatus.Name(deployment.status)}
    for stage in deployment.stages:
        status = deployment_pb2.StageStatus.Name(stage.status)
        found[f"stage {stage.index} {stage.name}"] = f"{status} {stage.status_reason}".strip()
    return found


class Observer:
    """Watches the deployments of one commit until all are completed."""

    def __init__(self, site: Site, commit: str, plan: Round, *, expected: int) -> None:
        self.latest: dict[str, Deployment] = {}
        self.backwards: list[str] = []
        self.cancels = 0
        self.answered: list[tuple[str, str]] = []
        """What a person did and got an answer for: the RPC, and the deployment."""
        self.deaths: Counter[str] = Counter()
        """Of those who were killed right before a cancel."""
        self.life: list[Moment] = []
        """What was seen, and what a person did, when."""
        self.first_seen = asyncio.Event()
        self.over = asyncio.Event()
        self.commits = {commit}
        """All commits of the round."""
        self.stories: list[Callable[[], Awaitable[None]]] = []
        """What people do beside that."""
        self._told = 0
        self._site = site
        self._plan = plan
        self._expected = expected
        self._known: set[str] = set()
        self._tasks: asyncio.TaskGroup | None = None

    def in_flight(self) -> list[Deployment]:
        """Those that are begun and not completed."""
        return [each for each in self.latest.values() if each.status not in COMPLETED]

    def running_plugins(self) -> set[str]:
        """The plugins that have a stage to run just now."""
        return {
            stage.metadata["pipecd/plugin"]
            for each in self.in_flight()
            for stage in each.stages
            if stage.status == deployment_pb2.STAGE_RUNNING and "pipecd/plugin" in stage.metadata
        }

    def is_over(self) -> bool:
        is_told = self._told == len(self.stories)
        return is_told and len(self._known) >= self._expected and not self.in_flight()

    async def watch(self) -> None:
        """Until all have ended."""
        await self._watch()
        self.over.set()

    async def _watch(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            for story in self.stories:
                tasks.create_task(self._tell(story))
            while len(self._known) < self._expected:
                for each in await self.listed():
                    if each.id not in self._known:
                        self._known.add(each.id)
                        self.adopt(each)
                        if each.application_name == "approved":
                            tasks.create_task(self._approve(each.id))
                        if each.application_name in ALL_CANCELLED:
                            tasks.create_task(self._cancel(each.id))
                await asyncio.sleep(PAUSE)

    async def _tell(self, story: Callable[[], Awaitable[None]]) -> None:
        await story()
        self._told += 1

    def adopt(self, deployment: Deployment) -> None:
        """Watch one more deployment until it has ended."""
        if deployment.id not in self.latest and self._tasks is not None:
            self.latest[deployment.id] = deployment
            self.first_seen.set()
            self._tasks.create_task(self._follow(deployment.id))

    async def listed(self) -> list[Deployment]:
        """All deployments of the round's commits, as the control plane lists them, without those
        of stories.

        Each application is asked for by itself. Where a clock was ahead, deployments of its time,
        and all that follow of their applications, stand before those of others for as long.
        """
        found: list[Deployment] = []
        for name in self._site.names:
            wanted = [self._site.application_ids[name]]
            answer = await call(
                self._site.api.ListDeployments,
                pb.ListDeploymentsRequest(application_ids=wanted, limit=LISTED),
                retry=PATIENT,
            )
            found += [
                each for each in answer.deployments if each.trigger.commit.hash in self.commits
            ]
        return found

    async def _follow(self, deployment_id: str) -> None:
        request = api_pb2.WatchDeploymentRequest(deployment_id=deployment_id)
        before: Deployment | None = None
        while before is None or before.status not in COMPLETED:
            with suppress(CallError):
                changes = stream(self._site.deployments.WatchDeployment, request)
                async with aclosing(changes):
                    async for change in changes:
                        if before is not None:
                            self.backwards += [
                                f"{deployment_id} {each}"
                                for each in backwards(before, change.deployment)
                            ]
                        self._note(before, change.deployment)
                        before = self.latest[deployment_id] = change.deployment
            await asyncio.sleep(PAUSE)

    def _note(self, before: Deployment | None, after: Deployment) -> None:
        """Keep which statuses have changed."""
        was = _statuses(before) if before is not None else {}
        for what, status in _statuses(after).items():
            if was.get(what) != status:
                where = f"{after.application_name} {after.id}"
                self.life.append(Moment.now(f"seen: {where} {what} is {status}"))

    async def _approve(self, deployment_id: str) -> None:
        """Approve as soon as it is asked for, a while later, until it counts."""
        request = api_pb2.ApproveStageRequest(deployment_id=deployment_id)
        while self.latest[deployment_id].status not in COMPLETED:
            waiting = [
                stage
                for stage in self.latest[deployment_id].stages
                if stage.name == "WAIT_APPROVAL" and stage.status == deployment_pb2.STAGE_RUNNING
            ]
            if waiting:
                await asyncio.sleep(self._plan.approve_after)
                with suppress(CallError):
                    await self._order(self._site.deployments.ApproveStage, request)
                    return
            await asyncio.sleep(PAUSE)

    async def _order(self, method: Any, request: Any) -> None:
        """Ask for something once. Raises CallError."""
        await call(method, request)
        self.note_answer(method, request.deployment_id, request.deployment_id)

    def note_answer(self, method: SpreadMethod, subject: str, deployment_id: str = "") -> None:
        """Keep that a person got an answer."""
        self.answered.append((method.name, subject))
        found = self.latest.get(deployment_id)
        agent = self._site.agent_of(found.application_name if found is not None else "")
        self._site.note_answer(method, agent)

    def _has_begun(self, deployment_id: str) -> bool:
        latest = self.latest[deployment_id]
        return latest.status in COMPLETED or any(
            stage.status != deployment_pb2.STAGE_NOT_STARTED_YET for stage in latest.stages
        )

    def _kill_before_cancel(self, deployment_id: str) -> None:
        """Let those die who would carry out the cancel, while the deployment runs."""
        if not self._plan.cancel_with or self.latest[deployment_id].status in COMPLETED:
            return
        site, victims = self._site, self._plan.cancel_with.split(" and ")
        piped = site.agent_of(self.latest[deployment_id].application_name).kept
        pids = [piped.pid] if "piped" in victims else []
        if "plugin" in victims and piped.pid:
            there = plugin_pids(site.root, piped.pid)
            running = {
                stage.metadata["pipecd/plugin"]
                for stage in self.latest[deployment_id].stages
                if stage.status == deployment_pb2.STAGE_RUNNING
                and "pipecd/plugin" in stage.metadata
            }
            pids += [there[name] for name in running if name in there]
        if all(pids) and len(pids) == len(victims):
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self.deaths[f"kill {self._plan.cancel_with} before a cancel"] += 1
            self.life.append(Moment.now(f"killed {pids} before the cancel"))

    async def _cancel(self, deployment_id: str) -> None:
        """Cancel a while after it has begun, whatever it does just then."""
        while not self._plan.cancel_early and not self._has_begun(deployment_id):  # noqa: ASYNC110 - it is polled
            await asyncio.sleep(PAUSE)
        await asyncio.sleep(self._plan.cancel_after)
        self._kill_before_cancel(deployment_id)
        request = api_pb2.CancelDeploymentRequest(deployment_id=deployment_id)
        while self.latest[deployment_id].status not in COMPLETED:
            with suppress(CallError):
                self.life.append(Moment.now(f"a person cancels {deployment_id}"))
                await self._order(self._site.deployments.CancelDeployment, request)
                self.cancels += 1
                return
            await asyncio.sleep(PAUSE)
