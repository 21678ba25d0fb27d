# SPDX-License-Identifier: Apache-2.0
"""Stage logs by the number of a line: any range of a long log costs the same, and so does a search.

A line is a block. Its number is its place in the order of arrival, from 1 on, and never changes.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from sqlalchemy import bindparam, select

from pipecd_controlplane.store.blobs.blob_store import BlobStore
from pipecd_controlplane.store.database import Database, View
from pipecd_controlplane.store.log_chunks import (
    CHUNKS,
    LogChunk,
    LogKey,
    find_head_in,
    match_log,
)
from pipecd_controlplane.store.sealed_logs import (
    LostLogError,
    SealedLogs,
    find_segments_of_line_in,
)
from pipecd_controlplane.store.sealed_segments import SEGMENT_BYTES, LogSegment
from pipecd_wire.model.logblock_pb2 import LogBlock

RANGE_BYTES: Final = 2 * 1024 * 1024
"""How much of a log is returned at once; fewer lines than wanted may be."""

SEARCH_BYTES: Final = 4 * 1024 * 1024
"""How much of a log one search looks at."""

FIRST_ROWS: Final = 8
NEXT_ROWS: Final = 64
"""How many chunks are read at once, at first and then."""

FETCH_BYTES: Final = 4 * SEGMENT_BYTES
"""How much of a sealed log is fetched at once, after the first segment."""

CHUNK_OF_LINE: Final = (
    select(CHUNKS.c.number)
    .where(match_log(CHUNKS), CHUNKS.c.first_line <= bindparam("line"))
    .order_by(CHUNKS.c.first_line.desc())
    .limit(1)
)
CHUNKS_FROM: Final = (
    select(CHUNKS.c.number, CHUNKS.c.first_line, CHUNKS.c.data)
    .where(match_log(CHUNKS), CHUNKS.c.number >= bindparam("from_number"))
    .order_by(CHUNKS.c.number)
    .limit(bindparam("rows"))
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogState:
    """How much there is of a log."""

    total_lines: int = 0
    total_bytes: int = 0
    completed: bool = False
    """Whether its writer has said that nothing will be added."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRange:
    """Some lines of a log, one after the other."""

    first_line: int
    blocks: list[LogBlock] = field(default_factory=list)
    state: LogState = LogState()

    @property
    def next_line(self) -> int:
        return self.first_line + len(self.blocks)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogMatches:
    """The lines in which something was found, with their numbers."""

    lines: list[tuple[int, LogBlock]]
    next_line: int
    """Where to go on; 0 at the end of the log."""
    total_lines: int


class LogLines:
    """The lines of all stage logs."""

    def __init__(self, database: Database, blobs: BlobStore | None = None) -> None:
        self._database = database
        self._sealed = SealedLogs(database, blobs)

    async def read_range(
        self,
        project_id: str,
        key: LogKey,
        *,
        first_line: int,
        count: int,
        max_bytes: int = RANGE_BYTES,
    ) -> LogRange:
        """Returns at most `count` lines from a number on; 0 is the first of the last `count`.

        A log that does not exist is empty. At least one line is returned when there is one.
        Raises LostLogError when its object is missing or damaged.
        """
        batch = await self._read_batch(project_id, key, first_line, last_of=count)
        first = batch.line
        found = LogRange(first_line=first, state=batch.state)
        size = 0

        def take(chunks: Sequence[LogChunk]) -> bool:
            """Returns whether more is wanted."""
            nonlocal size
            for number, block in _iterate_lines(chunks, found.next_line):
                size += block.ByteSize()
                if number >= first + count or (found.blocks and size > max_bytes):
                    return False
                found.blocks.append(block)
            return True

        while batch.chunks:
            wants_more = await asyncio.to_thread(take, batch.chunks)
            if not wants_more or found.next_line > min(found.state.total_lines, first + count - 1):
                break
            try:
                batch = await self._read_batch(project_id, key, found.next_line, most=FETCH_BYTES)
            except LostLogError:
                break  # what was read before it is whole; whoever goes on is told
        return found

    async def search(
        self,
        project_id: str,
        key: LogKey,
        is_wanted: Callable[[str], bool],
        *,
        first_line: int,
        most: int,
        max_bytes: int = SEARCH_BYTES,
    ) -> LogMatches:
        """Returns the lines from a number on whose text is wanted.

        It ends after `most` of them, or when it has looked at `max_bytes`.
        Raises LostLogError when its object is missing or damaged.
        """
        lines: list[tuple[int, LogBlock]] = []
        size = 0
        line = first_line

        def look_at(chunks: Sequence[LogChunk]) -> bool:
            """Returns whether more is wanted."""
            nonlocal size, line
            for number, block in _iterate_lines(chunks, line):
                line = number
                if len(lines) >= most or size > max_bytes:
                    return False
                size += block.ByteSize()
                if is_wanted(block.log):
                    lines.append((number, block))
                line = number + 1
            return True

        batch = await self._read_batch(project_id, key, line)
        total = batch.state.total_lines
        goes_on = False
        while batch.chunks:
            if not await asyncio.to_thread(look_at, batch.chunks):
                goes_on = True
                break
            if line > total:
                break
            try:
                batch = await self._read_batch(project_id, key, line, most=FETCH_BYTES)
            except LostLogError:
                goes_on = True  # to where it is told
                break
        return LogMatches(lines=lines, next_line=line if goes_on else 0, total_lines=total)

    async def _read_batch(
        self,
        project_id: str,
        key: LogKey,
        first_line: int,
        *,
        last_of: int = 0,
        most: int = SEGMENT_BYTES,
    ) -> "_LineBatch":
        """Returns chunks from a line on, a few at a time; none at the end of the log.

        The line 0 is the first of the last `last_of`. Of a sealed log about `most` bytes are
        fetched: little at first, as a few lines are all that most readers want.
        """

        async def work(view: View) -> _LineBatch:
            head = await find_head_in(view, project_id, key)
            if head is None:
                return _LineBatch(line=max(first_line, 1))
            line = first_line or max(head.lines - last_of + 1, 1)
            state = LogState(
                total_lines=head.lines, total_bytes=head.bytes, completed=bool(head.completed)
            )
            if line > head.lines:
                return _LineBatch(line=line, state=state)
            if head.sealed and (
                segments := await find_segments_of_line_in(view, key, line, most=most)
            ):
                return _LineBatch(line=line, state=state, segments=segments)
            row = await view.one(CHUNK_OF_LINE, **key.parameters(), line=line)
            rows = await view.all(
                CHUNKS_FROM,
                **key.parameters(),
                from_number=row[0] if row else head.sealed + 1,
                rows=FIRST_ROWS if most < FETCH_BYTES else NEXT_ROWS,
            )
            chunks = [
                LogChunk(number=number, first_line=first, data=data) for number, first, data in rows
            ]
            return _LineBatch(line=line, state=state, chunks=chunks)

        batch = await self._database.read(work)
        if not batch.segments:
            return batch
        chunks = await self._sealed.fetch(project_id, key, batch.segments)
        if chunks is None:
            return _LineBatch(line=batch.line)
        return replace(batch, chunks=chunks)


@dataclass(frozen=True, slots=True, kw_only=True)
class _LineBatch:
    """Some chunks of a log, from the one that holds a line."""

    line: int
    state: LogState = LogState()
    chunks: list[LogChunk] = field(default_factory=list)
    segments: list[LogSegment] = field(default_factory=list)
    """Where the chunks are still to be fetched from."""


def _iterate_lines(chunks: Sequence[LogChunk], first_line: int) -> Iterator[tuple[int, LogBlock]]:
    """Yields the lines of chunks with their numbers, from a number on."""
    for chunk in chunks:
        for number, block in enumerate(chunk.read_blocks(), start=chunk.first_line):
            if number >= first_line:
                yield number, block
