# SPDX-License-Identifier: Apache-2.0
"""Prints what happens on the terminal: each deployment, its stages, its log lines."""

import asyncio
from contextlib import aclosing
from datetime import datetime
from typing import Final

import click

from pipecd_model.deployment import is_completed
from pipecd_quickstart.session import QuickstartSession
from pipecd_runtime.terminal import make_printable
from pipecd_wire.apiservice import service_pb2 as pb
from pipecd_wire.model import deployment_pb2, logblock_pb2
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


def say(text: str, *, colour: str | None = None) -> None:
    """Prints one line with the time before it."""
    at = click.style(datetime.now().astimezone().strftime("%H:%M:%S"), dim=True)
    click.echo(f"{at} {make_printable(click.style(text, fg=colour))}")


class Narrator:
    """Follows every deployment of the project until it is cancelled."""

    def __init__(self, session: QuickstartSession) -> None:
        self._session = session
        self._told: set[str] = set()
        self._waiting: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def waits_for_approval(self) -> str:
        """Waits for the first deployment that waits for a person; returns its id."""
        return await self._waiting

    async def run(self) -> None:
        async with asyncio.TaskGroup() as followers:
            changes = stream(self._session.project.WatchChanges, api_pb2.WatchChangesRequest())
            async with aclosing(changes):
                await self._look(followers)
                async for message in changes:
                    kinds = {change.kind for change in message.changes}
                    if api_pb2.Change.DEPLOYMENT in kinds:
                        await self._look(followers)

    async def _look(self, followers: asyncio.TaskGroup) -> None:
        request = pb.ListDeploymentsRequest(limit=50)
        answer = await call(self._session.api.ListDeployments, request)
        for deployment in reversed(answer.deployments):
            if deployment.id in self._told:
                continue
            self._told.add(deployment.id)
            if not is_completed(deployment.status):
                followers.create_task(self._follow(deployment.id, followers))

    async def _follow(self, deployment_id: str, followers: asyncio.TaskGroup) -> None:
        request = api_pb2.WatchDeploymentRequest(deployment_id=deployment_id)
        seen: dict[str, int] = {}
        logs: dict[str, asyncio.Task[None]] = {}
        changes = stream(self._session.deployments.WatchDeployment, request)
        async with aclosing(changes):
            async for change in changes:
                deployment = change.deployment
                name = deployment.application_name
                if deployment_id not in seen:
                    seen[deployment_id] = deployment.status
                    commit = deployment.trigger.commit
                    say(
                        f"{name}: deployment of {commit.hash[:7]} ({commit.message})", colour="cyan"
                    )
                for stage in deployment.stages:
                    before = seen.get(stage.id, deployment_pb2.STAGE_NOT_STARTED_YET)
                    if stage.status == before:
                        continue
                    seen[stage.id] = stage.status
                    if stage.status == deployment_pb2.STAGE_RUNNING:
                        self._tell_stage(deployment, stage)
                    if stage.id not in logs:
                        log = self._follow_log(deployment_id, name, stage)
                        logs[stage.id] = followers.create_task(log)
                    if stage.status != deployment_pb2.STAGE_RUNNING:
                        await logs[stage.id]  # what it wrote comes before how it ended
                        self._tell_stage(deployment, stage)
                if is_completed(deployment.status):
                    self._tell_end(deployment)

    def _tell_stage(
        self, deployment: deployment_pb2.Deployment, stage: deployment_pb2.PipelineStage
    ) -> None:
        mark, colour = MARKS[stage.status]
        name = deployment.application_name
        reason = f": {stage.status_reason}" if stage.status_reason else ""
        say(f"{name}: {mark} {stage.index + 1} {stage.name}{reason}", colour=colour)
        waits = (
            stage.available_operation == deployment_pb2.MANUAL_OPERATION_APPROVE
            and stage.status == deployment_pb2.STAGE_RUNNING
        )
        if waits and not self._waiting.done():
            self._waiting.set_result(deployment.id)

    def _tell_end(self, deployment: deployment_pb2.Deployment) -> None:
        word = deployment_pb2.DeploymentStatus.Name(deployment.status).removeprefix("DEPLOYMENT_")
        good = deployment.status == deployment_pb2.DEPLOYMENT_SUCCESS
        reason = "" if good or not deployment.status_reason else f": {deployment.status_reason}"
        colour = "green" if good else "red"
        say(f"{deployment.application_name}: {word}{reason}", colour=colour)

    async def _follow_log(
        self, deployment_id: str, name: str, stage: deployment_pb2.PipelineStage
    ) -> None:
        request = api_pb2.FollowStageLogRequest(deployment_id=deployment_id, stage_id=stage.id)
        parts = stream(self._session.deployments.FollowStageLog, request)
        async with aclosing(parts):
            async for part in parts:
                for block in part.blocks:
                    colour = "red" if block.severity == logblock_pb2.ERROR else None
                    say(f"{name}:     {block.log}", colour=colour)
