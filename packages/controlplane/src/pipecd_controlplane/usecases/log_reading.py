# SPDX-License-Identifier: Apache-2.0
"""Stage logs by line number, for people and programs: ranges, searches, and the whole as text."""

import re
from collections.abc import AsyncGenerator, Callable
from typing import Final

from pipecd_controlplane.store.log_lines import LogRange
from pipecd_controlplane.store.stage_logs import LogKey
from pipecd_controlplane.store.stores import Stores
from pipecd_controlplane.usecases import deployments, stage_logs
from pipecd_controlplane.usecases.requester import Requester
from pipecd_model.deployment import stage as find_stage
from pipecd_model.errors import ConfigError
from pipecd_model.regex import BadRegexError, compile_regex
from pipecd_wire.pipecd.api import logs_pb2 as pb

DEFAULT_COUNT: Final = 1000
MOST_LINES: Final = 5000
DEFAULT_MATCHES: Final = 200
MOST_MATCHES: Final = 1000
LONGEST_TEXT: Final = 1000
"""Characters of what is searched for."""

ESCAPES: Final = re.compile(
    r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])"
)
"""Colour codes and other orders to a terminal."""


async def read_lines(
    stores: Stores, requester: Requester, request: pb.ReadStageLogRequest
) -> pb.ReadStageLogResponse:
    """Returns a range of lines. Raises NotFoundError without such a stage."""
    key = LogKey(
        deployment_id=request.deployment_id,
        stage_id=request.stage_id,
        retried_count=request.retried_count,
    )
    is_over = await check_stage(stores, requester, key)
    found = await stores.log_lines.read_range(
        requester.project_id,
        key,
        first_line=request.first_line,
        count=min(request.count or DEFAULT_COUNT, MOST_LINES),
    )
    return pb.ReadStageLogResponse(
        blocks=found.blocks,
        first_line=found.first_line,
        total_lines=found.state.total_lines,
        completed=is_over and found.next_line > found.state.total_lines,
        total_bytes=found.state.total_bytes,
    )


async def search_lines(
    stores: Stores, requester: Requester, request: pb.SearchStageLogRequest
) -> pb.SearchStageLogResponse:
    """Returns lines with a text. Raises NotFoundError, or ConfigError for a bad expression."""
    is_wanted = make_search(request.text, match_case=request.match_case, is_regex=request.is_regex)
    key = LogKey(
        deployment_id=request.deployment_id,
        stage_id=request.stage_id,
        retried_count=request.retried_count,
    )
    await check_stage(stores, requester, key)
    found = await stores.log_lines.search(
        requester.project_id,
        key,
        is_wanted,
        first_line=max(request.first_line, 1),
        most=min(request.most or DEFAULT_MATCHES, MOST_MATCHES),
    )
    return pb.SearchStageLogResponse(
        matches=[
            pb.SearchStageLogResponse.Match(line=line, block=block) for line, block in found.lines
        ],
        next_line=found.next_line,
        total_lines=found.total_lines,
    )


def make_search(text: str, *, match_case: bool, is_regex: bool) -> Callable[[str], bool]:
    """Returns what says whether a line holds the text. Raises ConfigError."""
    if len(text) > LONGEST_TEXT:
        raise ConfigError(f"invalid request: text: {len(text)} characters, at most {LONGEST_TEXT}")
    if is_regex:
        try:
            regex = compile_regex(text if match_case else f"(?i){text}")
        except BadRegexError as error:
            raise ConfigError(f"invalid request: text: {error}") from None
        return lambda line: regex.is_found_in(_strip(line))
    if match_case:
        return lambda line: text in _strip(line)
    wanted = text.casefold()
    return lambda line: wanted in _strip(line).casefold()


async def check_stage(stores: Stores, requester: Requester, key: LogKey) -> bool:
    """Returns whether an attempt of a stage is over. Raises NotFoundError without the stage."""
    deployment = await deployments.get(stores, requester, key.deployment_id)
    find_stage(deployment, key.stage_id)
    return stage_logs.is_over(deployment, key)


async def read_whole_text(
    stores: Stores, project_id: str, key: LogKey
) -> AsyncGenerator[str, None]:
    """Yields the log as text, part by part, without colour codes."""
    line = 1
    while True:
        found: LogRange = await stores.log_lines.read_range(
            project_id, key, first_line=line, count=MOST_LINES
        )
        if not found.blocks:
            return
        yield "".join(f"{_strip(block.log).rstrip()}\n" for block in found.blocks)
        line = found.next_line


def _strip(line: str) -> str:
    return ESCAPES.sub("", line) if "\x1b" in line else line
