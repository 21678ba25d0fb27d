# SPDX-License-Identifier: Apache-2.0
"""Stage logs as text: stored ones, and ones that are being written."""

import asyncio
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import click

from pipecd_model.deployment import is_completed
from pipecd_model.errors import NotFoundError
from pipecd_model.stage import format_stage_number, is_rollback
from pipecd_pipectl.client import Client
from pipecd_pipectl.commands.waiting import describe_progress, follow_deployment
from pipecd_pipectl.data import to_data
from pipecd_pipectl.output import echo
from pipecd_pipectl.progress import Progress, showing_progress
from pipecd_pipectl.queueview import QueueWatch, watching_queue
from pipecd_pipectl.statuses import stage_status_name, status_name
from pipecd_pipectl.times import format_clock, format_timestamp
from pipecd_wire.apiservice import service_pb2 as pb
from pipecd_wire.model import deployment_pb2, logblock_pb2
from pipecd_wire.pipecd.api import api_pb2
from pipecd_wire.rpc import CallError, Retry, stream

COLOURS = {logblock_pb2.SUCCESS: "green", logblock_pb2.ERROR: "red"}


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSelection:
    """Which lines are wanted."""

    stage: str = ""
    """The name, the number or the id of a stage; empty is all of them."""
    tail: int | None = None
    since: timedelta | None = None

    def has_stage(self, stage: deployment_pb2.PipelineStage) -> bool:
        wanted = self.stage.casefold()
        known = {stage.id.casefold(), stage.name.casefold(), format_stage_number(stage)}
        return not wanted or wanted in known

    def check(self, deployment: deployment_pb2.Deployment) -> None:
        """Raises NotFoundError when the deployment has no such stage."""
        if deployment.stages and not any(map(self.has_stage, deployment.stages)):
            known = ", ".join(
                f"{format_stage_number(each)} {each.name}" for each in deployment.stages
            )
            raise NotFoundError(
                f"the deployment {deployment.id!r} has no stage {self.stage!r}",
                hint=f"it has {known}",
            )

    def take_blocks(self, blocks: Iterable[logblock_pb2.LogBlock]) -> list[logblock_pb2.LogBlock]:
        """Returns the blocks that are new enough."""
        oldest = 0.0 if self.since is None else time.time() - self.since.total_seconds()
        return [each for each in blocks if each.created_at >= oldest]


@dataclass(frozen=True, slots=True, kw_only=True)
class StageLogLine:
    """One line of a stage's log."""

    stage: deployment_pb2.PipelineStage
    created_at: int
    severity: logblock_pb2.LogSeverity.ValueType
    text: str


def order_stages(
    deployment: deployment_pb2.Deployment,
) -> list[deployment_pb2.PipelineStage]:
    """Returns the stages in the order in which they run: those that roll back come last."""
    return sorted(deployment.stages, key=lambda stage: (is_rollback(stage), stage.index))


def order_logs(
    deployment: deployment_pb2.Deployment,
    logs: pb.ListStageLogsResponse,
    selection: LogSelection,
) -> dict[str, Any]:
    """Returns the logs as data, with upstream's fields: stages in order, with their names."""
    selection.check(deployment)
    value: dict[str, Any] = {}
    for stage in order_stages(deployment):
        if stage.id not in logs.stage_logs or not selection.has_stage(stage):
            continue
        log = pb.StageLog()
        log.CopyFrom(logs.stage_logs[stage.id])
        kept = selection.take_blocks(log.blocks)
        if selection.tail is not None:
            kept = kept[max(0, len(kept) - selection.tail) :]
        del log.blocks[:]
        log.blocks.extend(kept)
        value[stage.id] = {
            "name": stage.name,
            "number": format_stage_number(stage),
            "status_name": stage_status_name(stage.status),
            **to_data(log),
        }
    return {"stage_logs": value}


def print_logs(
    deployment: deployment_pb2.Deployment,
    logs: pb.ListStageLogsResponse,
    selection: LogSelection,
) -> None:
    """Prints the stored lines that are wanted, in the order in which stages run."""
    selection.check(deployment)
    lines = [
        line
        for stage in order_stages(deployment)
        if stage.id in logs.stage_logs and selection.has_stage(stage)
        for line in split_blocks(stage, selection.take_blocks(logs.stage_logs[stage.id].blocks))
    ]
    if selection.tail is not None:
        lines = lines[max(0, len(lines) - selection.tail) :]
    for line in lines:
        print_line(line)
    if not lines:
        echo("no line of a log is there", err=True)


def print_blocks(
    stage: deployment_pb2.PipelineStage, blocks: Iterable[logblock_pb2.LogBlock]
) -> None:
    for line in split_blocks(stage, blocks):
        print_line(line)


def print_line(line: StageLogLine, *, before: str = "") -> None:
    """Prints a line behind its time and its stage, and behind what comes before those.

    Two stages of a pipeline may have the same name, so the number stands before it. A terminal
    gets the time of day, a file the whole time.
    """
    moment = format_clock if sys.stdout.isatty() else format_timestamp
    number = format_stage_number(line.stage)
    label = click.style(
        f"{before}{moment(line.created_at)} {number} {line.stage.name} | ", dim=True
    )
    echo(label + click.style(line.text, fg=COLOURS.get(line.severity)))


def split_blocks(
    stage: deployment_pb2.PipelineStage, blocks: Iterable[logblock_pb2.LogBlock]
) -> Iterator[StageLogLine]:
    for block in blocks:
        for text in block.log.splitlines() or [""]:
            yield StageLogLine(
                stage=stage, created_at=block.created_at, severity=block.severity, text=text
            )


async def follow_logs(
    client: Client,
    deployment: deployment_pb2.Deployment,
    logs: pb.ListStageLogsResponse,
    selection: LogSelection,
) -> None:
    """Print the stored lines, then each one as it is written, until the deployment is completed.

    What it waits for meanwhile is shown on stderr. Raises CallError when retries do not help.
    """
    selection.check(deployment)
    if logs.stage_logs:
        print_logs(deployment, logs, selection)
    failure: Exception | None = None
    async with showing_progress() as progress:
        follower = LogFollower(client, logs, selection, progress)
        try:
            async with watching_queue(client, progress) as queue:
                await follower.run(deployment.id, queue)
        except* CallError as lost:
            failure = lost.exceptions[0]
    if failure is not None:
        raise failure
    last = follower.last
    reason = f": {last.status_reason}" if last.status_reason else ""
    echo(f"{status_name(last.status)}{reason}", err=True)


class LogFollower:
    """Follows the logs of all stages of a deployment at once, each from where it was printed."""

    def __init__(
        self,
        client: Client,
        logs: pb.ListStageLogsResponse,
        selection: LogSelection,
        progress: Progress,
    ) -> None:
        self._client = client
        self._selection = selection
        self._progress = progress
        self._whole = {stage_id for stage_id, log in logs.stage_logs.items() if log.completed}
        self._next_index = {
            stage_id: log.blocks[-1].index + 1
            for stage_id, log in logs.stage_logs.items()
            if log.blocks
        }
        self._followed: set[str] = set()
        self.last = deployment_pb2.Deployment()

    async def run(self, deployment_id: str, queue: QueueWatch) -> None:
        """Print until the deployment is completed. Raises an ExceptionGroup of CallErrors."""
        async with asyncio.TaskGroup() as tasks:

            def on_change(changed: deployment_pb2.Deployment) -> bool:
                self.last.CopyFrom(changed)
                for stage in changed.stages:
                    if self._is_due(stage):
                        self._followed.add(stage.id)
                        tasks.create_task(self._follow_stage(changed.id, stage))
                over = is_completed(changed.status)
                if not over:
                    self._progress.update(describe_progress(changed))
                queue.note(self.last)
                return over

            await follow_deployment(self._client, deployment_id, on_change)

    def _is_due(self, stage: deployment_pb2.PipelineStage) -> bool:
        return (
            stage.status != deployment_pb2.STAGE_NOT_STARTED_YET
            and stage.id not in self._followed
            and stage.id not in self._whole
            and self._selection.has_stage(stage)
        )

    async def _follow_stage(self, deployment_id: str, stage: deployment_pb2.PipelineStage) -> None:
        next_index = self._next_index.get(stage.id, 0)
        retry = Retry(attempts=20, cap_seconds=2)
        attempt = 0
        while True:
            request = api_pb2.FollowStageLogRequest(
                deployment_id=deployment_id,
                stage_id=stage.id,
                retried_count=stage.retried_count,
                from_index=next_index,
            )
            following = stream(self._client.deployments.FollowStageLog, request)
            try:
                async with aclosing(following) as parts:
                    async for part in parts:
                        attempt = 0
                        self._print(stage, part.blocks)
                        if part.blocks:
                            next_index = part.blocks[-1].index + 1
                        if part.completed:
                            return
            except CallError as lost:
                attempt += 1
                if not retry.again(lost, attempt):
                    raise
            else:
                return  # the stage is over and its log will not grow
            await asyncio.sleep(retry.pause(attempt))

    def _print(
        self, stage: deployment_pb2.PipelineStage, blocks: Sequence[logblock_pb2.LogBlock]
    ) -> None:
        if blocks:
            self._progress.clear()
            print_blocks(stage, blocks)
