# SPDX-License-Identifier: Apache-2.0
"""Stage logs on a terminal: stored ones, and ones that are being written."""

import asyncio
from collections.abc import Iterable
from contextlib import aclosing

import click

from pipecd_model.deployment import is_completed
from pipecd_model.stage import format_stage_number
from pipecd_wire.apiservice import service_pb2 as pb
from pipecd_wire.model import deployment_pb2, logblock_pb2
from pipecd_wire.pipecd.api import api_pb2
from pipecd_wire.rpc import CallError, Retry, stream
from pipectl.client import Client
from pipectl.commands.waiting import follow_deployment, status_name
from pipectl.output import echo

COLOURS = {logblock_pb2.SUCCESS: "green", logblock_pb2.ERROR: "red"}


def print_logs(
    deployment: deployment_pb2.Deployment, logs: pb.ListStageLogsResponse, only: str
) -> None:
    for stage in deployment.stages:
        if stage.id in logs.stage_logs and only in {"", stage.id}:
            print_blocks(stage, logs.stage_logs[stage.id].blocks)


def print_blocks(
    stage: deployment_pb2.PipelineStage, blocks: Iterable[logblock_pb2.LogBlock]
) -> None:
    # Two stages of a pipeline may have the same name, so the number stands before it.
    label = click.style(f"{format_stage_number(stage)} {stage.name} | ", dim=True)
    for block in blocks:
        for line in block.log.splitlines() or [""]:
            echo(label + click.style(line, fg=COLOURS.get(block.severity)))


async def follow_logs(client: Client, deployment_id: str, only: str) -> None:
    """Print every stage's log as it is written, until the deployment is completed."""
    followed: set[str] = set()
    last = deployment_pb2.Deployment()

    async with asyncio.TaskGroup() as followers:

        def on_change(deployment: deployment_pb2.Deployment) -> bool:
            last.CopyFrom(deployment)
            for stage in deployment.stages:
                started = stage.status != deployment_pb2.STAGE_NOT_STARTED_YET
                if started and stage.id not in followed and only in {"", stage.id}:
                    followed.add(stage.id)
                    followers.create_task(_follow_stage(client, deployment_id, stage))
            return is_completed(deployment.status)

        await follow_deployment(client, deployment_id, on_change)
    reason = f": {last.status_reason}" if last.status_reason else ""
    echo(f"{status_name(last.status)}{reason}", err=True)


async def _follow_stage(
    client: Client, deployment_id: str, stage: deployment_pb2.PipelineStage
) -> None:
    next_index = 0
    retry = Retry(attempts=20, cap=2)
    attempt = 0
    while True:
        request = api_pb2.FollowStageLogRequest(
            deployment_id=deployment_id,
            stage_id=stage.id,
            retried_count=stage.retried_count,
            from_index=next_index,
        )
        try:
            async with aclosing(stream(client.deployments.FollowStageLog, request)) as parts:
                async for part in parts:
                    attempt = 0
                    print_blocks(stage, part.blocks)
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
