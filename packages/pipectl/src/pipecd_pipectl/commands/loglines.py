# SPDX-License-Identifier: Apache-2.0
"""Stage logs by line number: a range of lines, or those that a search finds, of any log."""

import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import click

from pipecd_pipectl.client import Client
from pipecd_pipectl.commands.stagelogs import (
    LogSelection,
    order_stages,
    print_line,
    split_blocks,
)
from pipecd_pipectl.output import echo
from pipecd_wire.model import deployment_pb2, logblock_pb2
from pipecd_wire.pipecd.api import logs_pb2 as pb
from pipecd_wire.rpc import call

NumberedBlock = tuple[int, logblock_pb2.LogBlock]


@dataclass(frozen=True, slots=True, kw_only=True)
class LineRange:
    """Numbers of lines, both ends included."""

    first: int
    last: int | None
    """None is the end of the log."""


class LineRangeType(click.ParamType[LineRange]):
    """`100-200`, `100-` or `100`."""

    name = "lines"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> LineRange:
        if isinstance(value, LineRange):
            return value
        found = re.fullmatch(r"(\d{1,12})(-(\d{1,12})?)?", str(value))
        if found is None or int(found[1]) < 1:
            self.fail(f"{value!r} is no range of lines; one is 100-200, 100- or 100", param, ctx)
        first = int(found[1])
        last = int(found[3]) if found[3] else (None if found[2] else first)
        if last is not None and last < first:
            self.fail(f"{value!r} ends before it begins", param, ctx)
        return LineRange(first=first, last=last)


async def print_found_lines(
    client: Client,
    deployment: deployment_pb2.Deployment,
    selection: LogSelection,
    *,
    pattern: str,
    lines: LineRange,
) -> None:
    """Prints lines with their numbers: those of the range that the pattern finds, if there is one.

    Raises NotFoundError for a stage that is not there.
    """
    selection.check(deployment)
    count = 0
    for stage in filter(selection.has_stage, order_stages(deployment)):
        if pattern:
            found = _search(client, deployment.id, stage, pattern, lines)
        else:
            found = _read(client, deployment.id, stage, lines)
        async for number, block in found:
            for line in split_blocks(stage, [block]):  # a block of some agents has several
                print_line(line, before=f"{number}: ")
            count += 1
    if not count:
        echo("no line of a log is there", err=True)


async def _search(
    client: Client,
    deployment_id: str,
    stage: deployment_pb2.PipelineStage,
    pattern: str,
    lines: LineRange,
) -> AsyncIterator[NumberedBlock]:
    line = lines.first
    while line and (lines.last is None or line <= lines.last):
        request = pb.SearchStageLogRequest(
            deployment_id=deployment_id,
            stage_id=stage.id,
            retried_count=stage.retried_count,
            text=pattern,
            is_regex=True,
            first_line=line,
        )
        answer = await call(client.stage_logs.SearchStageLog, request)
        for match in answer.matches:
            if lines.last is None or match.line <= lines.last:
                yield match.line, match.block
        line = answer.next_line


async def _read(
    client: Client, deployment_id: str, stage: deployment_pb2.PipelineStage, lines: LineRange
) -> AsyncIterator[NumberedBlock]:
    line = lines.first
    while lines.last is None or line <= lines.last:
        request = pb.ReadStageLogRequest(
            deployment_id=deployment_id,
            stage_id=stage.id,
            retried_count=stage.retried_count,
            first_line=line,
            count=0 if lines.last is None else min(lines.last - line + 1, 5000),
        )
        answer = await call(client.stage_logs.ReadStageLog, request)
        for number, block in enumerate(answer.blocks, start=answer.first_line):
            yield number, block
        line = answer.first_line + len(answer.blocks)
        if not answer.blocks:
            return
