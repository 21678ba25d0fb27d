# SPDX-License-Identifier: Apache-2.0
"""Prints what happens on the terminal: each deployment, its stages, its log lines, drift."""

import asyncio
from contextlib import aclosing
from typing import Final

from pipecd_model.deployment import is_completed
from pipecd_model.stage import format_stage_number
from pipecd_quickstart.printing import say
from pipecd_quickstart.session import QuickstartSession
from pipecd_quickstart.suggestions import APPROVE, PIPECTL, is_waiting_for_approval
from pipecd_runtime.terminal import make_printable_line
from pipecd_wire.apiservice import service_pb2 as pb
from pipecd_wire.model import application_pb2, deployment_pb2, logblock_pb2
from pipecd_wire.model.deployment_pb2 import Deployment, PipelineStage
from pipecd_wire.pipecd.api import api_pb2
from pipecd_wire.rpc import call, stream

MARKS: Final = {
    deployment_pb2.STAGE_RUNNING: ("▶", "cyan"),
    deployment_pb2.STAGE_SUCCESS: ("✔", "green"),
    deployment_pb2.STAGE_FAILURE: ("✘", "red"),
    deployment_pb2.STAGE_CANCELLED: ("■", "yellow"),
    deployment_pb2.STAGE_SKIPPED: ("↷", "blue"),
    deployment_pb2.STAGE_EXITED: ("✔", "green"),
}


class Narrator:
    """Follows every deployment of the project until it is cancelled."""

    def __init__(self, session: QuickstartSession) -> None:
        self._session = session
        self._open: dict[str, Deployment] = {}
        self._told: set[str] = set()
        self._synced: dict[str, int] = {}
        """By application: what was last said of what runs."""
        self._settled = asyncio.Event()

    @property
    def open_deployments(self) -> list[Deployment]:
        """Returns the deployments that are not completed, the oldest first."""
        return list(self._open.values())

    async def wait_settled(self) -> None:
        """Waits until no deployment goes on by itself: all are completed or wait for a person."""
        await self._settled.wait()

    async def run(self) -> None:
        """Prints what happens, from now on."""
        async with asyncio.TaskGroup() as followers:
            changes = stream(self._session.project.WatchChanges, api_pb2.WatchChangesRequest())
            async with aclosing(changes):
                await self._look(followers)
                async for message in changes:
                    kinds = {change.kind for change in message.changes}
                    if api_pb2.Change.DEPLOYMENT in kinds:
                        await self._look(followers)
                    if kinds & {api_pb2.Change.APPLICATION, api_pb2.Change.LIVE_STATE}:
                        await self._look_at_drift()

    async def _look(self, followers: asyncio.TaskGroup) -> None:
        request = pb.ListDeploymentsRequest(limit=50)
        answer = await call(self._session.api.ListDeployments, request)
        for deployment in sorted(answer.deployments, key=lambda each: each.created_at):
            if deployment.id in self._told:
                continue
            self._told.add(deployment.id)
            if not is_completed(deployment.status):
                self._open[deployment.id] = deployment
                followers.create_task(self._follow(deployment.id, followers))
        if not self._open:
            self._note_settled()  # else those that follow them do, once they have told

    def _note_settled(self) -> None:
        # An application without any deployment is about to get its first.
        known = len(self._told) >= len(self._session.applications)
        if known and all(is_waiting_for_approval(each) for each in self._open.values()):
            self._settled.set()

    async def _follow(self, deployment_id: str, followers: asyncio.TaskGroup) -> None:
        request = api_pb2.WatchDeploymentRequest(deployment_id=deployment_id)
        self._tell_begin(self._open[deployment_id])
        seen: dict[str, int] = {}
        logs: dict[str, asyncio.Task[None]] = {}
        changes = stream(self._session.deployments.WatchDeployment, request)
        async with aclosing(changes):
            async for change in changes:
                deployment = change.deployment
                self._open[deployment_id] = deployment
                for stage in deployment.stages:
                    before = seen.get(stage.id, deployment_pb2.STAGE_NOT_STARTED_YET)
                    if stage.status == before:
                        continue
                    seen[stage.id] = stage.status
                    if stage.status == deployment_pb2.STAGE_RUNNING:
                        self._tell_stage(deployment, stage)
                    if stage.id not in logs:
                        log = self._follow_log(deployment, stage)
                        logs[stage.id] = followers.create_task(log)
                    if stage.status != deployment_pb2.STAGE_RUNNING:
                        await logs[stage.id]  # what it wrote comes before how it ended
                        self._tell_stage(deployment, stage)
                if is_waiting_for_approval(deployment) and "approval" not in seen:
                    seen["approval"] = 1
                    self._tell_approval(deployment)
                if is_completed(deployment.status):
                    del self._open[deployment_id]
                    self._tell_end(deployment)
                    self._note_settled()
                    return
                self._note_settled()

    def _tell_begin(self, deployment: Deployment) -> None:
        name = deployment.application_name
        message = make_printable_line(deployment.trigger.commit.message)
        say(f"{name}: deployment of {_commit(deployment)} ({message})", colour="cyan")
        for each in self._open.values():
            if each.id == deployment.id:
                return
            if each.application_id == deployment.application_id:
                what = "waits for approval" if is_waiting_for_approval(each) else "runs"
                say(
                    f"{name}: {_commit(deployment)} waits behind {_commit(each)}, which {what}",
                    colour="yellow",
                )
                return

    def _tell_stage(self, deployment: Deployment, stage: PipelineStage) -> None:
        mark, colour = MARKS[stage.status]
        reason = f": {make_printable_line(stage.status_reason)}" if stage.status_reason else ""
        number = format_stage_number(stage)
        say(f"{deployment.application_name}: {mark} {number} {stage.name}{reason}", colour=colour)

    def _tell_approval(self, deployment: Deployment) -> None:
        name = deployment.application_name
        how = f": {APPROVE}" if name == "hello" else ""
        say(f"{name}: {_commit(deployment)} waits for approval{how}", colour="yellow")

    def _tell_end(self, deployment: Deployment) -> None:
        word = deployment_pb2.DeploymentStatus.Name(deployment.status).removeprefix("DEPLOYMENT_")
        good = deployment.status == deployment_pb2.DEPLOYMENT_SUCCESS
        reason = "" if good else make_printable_line(deployment.status_reason)
        reason = f": {reason}" if reason else ""
        colour = "green" if good else "red"
        say(f"{deployment.application_name}: {word}{reason}", colour=colour)

    async def _follow_log(self, deployment: Deployment, stage: PipelineStage) -> None:
        request = api_pb2.FollowStageLogRequest(deployment_id=deployment.id, stage_id=stage.id)
        parts = stream(self._session.deployments.FollowStageLog, request)
        async with aclosing(parts):
            async for part in parts:
                for block in part.blocks:
                    colour = "red" if block.severity == logblock_pb2.ERROR else None
                    say(f"{deployment.application_name}:     {block.log}", colour=colour)

    async def _look_at_drift(self) -> None:
        """Says when what runs is no longer what was deployed, and when it is again."""
        for name, application_id in self._session.applications.items():
            request = pb.GetApplicationRequest(application_id=application_id)
            found = (await call(self._session.api.GetApplication, request)).application
            status = found.sync_state.status
            before = self._synced.get(name, application_pb2.SYNCED)
            if status == application_pb2.OUT_OF_SYNC and before == application_pb2.SYNCED:
                self._synced[name] = status
                how = f"{PIPECTL} application diff {name}"
                say(f"{name}: what runs is not what was deployed: {how}", colour="yellow")
            elif status == application_pb2.SYNCED and before == application_pb2.OUT_OF_SYNC:
                self._synced[name] = status
                say(f"{name}: what runs is what was deployed", colour="green")


def _commit(deployment: Deployment) -> str:
    return deployment.trigger.commit.hash[:7]
