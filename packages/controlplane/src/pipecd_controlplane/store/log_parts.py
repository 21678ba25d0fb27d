# SPDX-License-Identifier: Apache-2.0
"""Parts of stage logs as readers get them, made of chunks: of rows, and of sealed segments.

What is read from the database is decided here, and what is made of it. Segments are fetched by
`stage_logs`, between the two.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from sqlalchemy import bindparam, select

from pipecd_controlplane.store.database import View
from pipecd_controlplane.store.log_chunks import (
    ABOVE_ALL,
    BELOW_ALL,
    CHUNKS,
    LogChunk,
    LogHead,
    LogKey,
    find_head_in,
    match_log,
)
from pipecd_controlplane.store.sealed_logs import LostLogError, find_segments_in
from pipecd_controlplane.store.sealed_segments import LogSegment
from pipecd_wire.model import logblock_pb2

PART_BYTES: Final = 1024 * 1024
"""How much of a log is returned at once; a long one is read part by part."""

NEXT_CHUNKS: Final = (
    select(CHUNKS.c.number, CHUNKS.c.first_line, CHUNKS.c.data)
    .where(
        match_log(CHUNKS),
        CHUNKS.c.number > bindparam("after"),
        CHUNKS.c.last_index >= bindparam("from_index"),
    )
    .order_by(CHUNKS.c.number)
    .limit(64)
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPart:
    """Some blocks of a log, in the order in which they arrived."""

    blocks: list[logblock_pb2.LogBlock]
    position: int
    """Where to continue reading: the `after` of the next part."""
    at_end: bool
    """Whether the log has no more blocks now."""
    completed: bool
    """Whether its writer has said that nothing will be added."""


EMPTY: Final = LogPart(blocks=[], position=0, at_end=True, completed=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class WholePlan:
    """What to show of a log: segments that are still to be fetched, then chunks."""

    segments: list[LogSegment] = field(default_factory=list)
    rows: list[LogChunk] = field(default_factory=list)
    size: int = 0
    is_cut: bool = False
    completed: bool = False


def make_chunks(rows: Iterable[tuple[int, int, bytes]]) -> list[LogChunk]:
    return [
        LogChunk(number=number, first_line=first_line, data=data)
        for number, first_line, data in rows
    ]


def make_part(head: LogHead, after: int, from_index: int, chunks: Sequence[LogChunk]) -> LogPart:
    """Returns what the chunks after a position hold, up to the size of a part."""
    blocks: list[logblock_pb2.LogBlock] = []
    size, position = 0, after
    completed = bool(head.completed)
    for chunk in chunks:
        if blocks and size + len(chunk.data) > PART_BYTES:
            return LogPart(blocks=blocks, position=position, at_end=False, completed=completed)
        blocks += [block for block in chunk.read_blocks() if block.index >= from_index]
        size, position = size + len(chunk.data), chunk.number
    at_end = not chunks or position >= head.chunks
    return LogPart(blocks=blocks, position=position, at_end=at_end, completed=completed)


async def plan_whole(view: View, project_id: str, key: LogKey, room: int) -> WholePlan:
    """Returns the start of a log, cut after the chunk with which it exceeds `room` bytes."""
    head = await find_head_in(view, project_id, key)
    if head is None:
        return WholePlan()
    segments: list[LogSegment] = []
    rows: list[LogChunk] = []
    size, after = 0, 0
    while size <= room and (
        found := await find_segments_in(
            view,
            key,
            after=after,
            from_index=BELOW_ALL,
            to_index=ABOVE_ALL,
            most=max(room - size, 0),
        )
    ):
        segments += found
        size += sum(each.length for each in found)
        after = found[-1].last_number
    after = max(after, head.sealed) if size <= room else after
    while size <= room and (
        found_rows := await view.all(
            NEXT_CHUNKS, **key.parameters(), after=after, from_index=BELOW_ALL
        )
    ):
        for chunk in make_chunks(found_rows):
            after = chunk.number
            rows.append(chunk)
            size += len(chunk.data)
            if size > room:
                break
    return WholePlan(
        segments=segments,
        rows=rows,
        size=size,
        is_cut=after < head.chunks,
        completed=bool(head.completed),
    )


def make_whole(plan: WholePlan, chunks: Iterable[LogChunk], room: int) -> tuple[LogPart, int]:
    """Returns a log from its start, cut after `room` bytes, and the bytes that it has."""
    blocks: list[logblock_pb2.LogBlock] = []
    size, position = 0, 0
    for chunk in chunks:
        position = chunk.number
        for block in chunk.read_blocks():
            size += block.ByteSize() + 4
            if size > room:
                cut = LogPart(
                    blocks=blocks, position=position, at_end=False, completed=plan.completed
                )
                return cut, size
            blocks.append(block)
    at_end = not plan.is_cut
    part = LogPart(blocks=blocks, position=position, at_end=at_end, completed=plan.completed)
    return part, size


def say_lost(plan: WholePlan, lost: LostLogError, said_at: int) -> LogPart:
    """Returns a log whose only block says why there are no others."""
    block = logblock_pb2.LogBlock(
        index=0, log=lost.with_hint(), severity=logblock_pb2.ERROR, created_at=said_at
    )
    return LogPart(blocks=[block], position=0, at_end=True, completed=plan.completed)
