# SPDX-License-Identifier: Apache-2.0
"""The ends of stage logs, read from the end: all logs at once are cut where they are long."""

import time
from typing import Final

from pipecd_model.stage import is_rollback
from pipecd_pipectl.client import Client
from pipecd_pipectl.commands.stagelogs import LogSelection
from pipecd_wire.apiservice import service_pb2
from pipecd_wire.model import deployment_pb2, logblock_pb2
from pipecd_wire.pipecd.api import logs_pb2 as pb
from pipecd_wire.rpc import CallError, call

MOST_LINES: Final = 5000
"""Of one answer."""


async def read_logs(
    client: Client,
    deployment: deployment_pb2.Deployment,
    selection: LogSelection,
    *,
    follow: bool = False,
) -> service_pb2.ListStageLogsResponse:
    """Returns the logs of all stages; only the end of each where no more is wanted.

    Raises CallError.
    """
    if selection.tail is not None:
        try:
            return await _read_tails(client, deployment, selection, selection.tail, follow=follow)
        except CallError as error:
            if error.status != "UNIMPLEMENTED":
                raise
    request = service_pb2.ListStageLogsRequest(deployment_id=deployment.id)
    return await call(client.api.ListStageLogs, request)


async def _read_tails(
    client: Client,
    deployment: deployment_pb2.Deployment,
    selection: LogSelection,
    count: int,
    *,
    follow: bool,
) -> service_pb2.ListStageLogsResponse:
    answer = service_pb2.ListStageLogsResponse()
    for stage in filter(selection.has_stage, deployment.stages):
        try:
            log = await _read_tail(client, deployment.id, stage, count)
        except CallError as error:
            if error.status != "DATA_LOSS":
                raise
            # The other logs are there, and this is said in its place.
            said = logblock_pb2.LogBlock(
                log=error.message, severity=logblock_pb2.ERROR, created_at=int(time.time())
            )
            log = service_pb2.StageLog(blocks=[said], completed=True)
        else:
            # The last lines of a stage may come when it is over: whoever follows waits for them.
            log.completed = log.completed and not follow
        if log.blocks or not is_rollback(stage):
            answer.stage_logs[stage.id].CopyFrom(log)
    return answer


async def _read_tail(
    client: Client, deployment_id: str, stage: deployment_pb2.PipelineStage, count: int
) -> service_pb2.StageLog:
    """Returns the last lines, at least one: it says where to go on."""
    wanted = max(count, 1)
    request = pb.ReadStageLogRequest(
        deployment_id=deployment_id,
        stage_id=stage.id,
        retried_count=stage.retried_count,
        count=wanted if wanted <= MOST_LINES else 1,
    )
    answer = await call(client.stage_logs.ReadStageLog, request)
    end = answer.total_lines
    if wanted > MOST_LINES:
        request.first_line, request.count = max(end - wanted + 1, 1), MOST_LINES
        answer = await call(client.stage_logs.ReadStageLog, request)
    log = service_pb2.StageLog(blocks=answer.blocks, completed=answer.completed)
    while answer.blocks and (line := answer.first_line + len(answer.blocks)) <= end:
        request.first_line = line
        answer = await call(client.stage_logs.ReadStageLog, request)
        log.blocks.extend(answer.blocks)
        log.completed = answer.completed
    return log
