# SPDX-License-Identifier: Apache-2.0
"""Stage logs by the number of a line: any range of a long log costs the same, and so does a search.

A line is a block. Its number is its place in the order of arrival, from 1 on, and never changes.
"""

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Final

from sqlalchemy import bindparam, select

from pipecd_controlplane.store.database import Database, View
from pipecd_controlplane.store.stage_logs import CHUNKS, HEAD, LogKey, match_log, read_blocks
from pipecd_wire.model.logblock_pb2 import LogBlock

RANGE_BYTES: Final = 2 * 1024 * 1024
"""How much of a log is returned at once; fewer lines than wanted may be."""

SEARCH_BYTES: Final = 4 * 1024 * 1024
"""How much of a log one search looks at."""

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
    .limit(64)
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogState:
    """How much there is of a log."""

    total_lines: int = 0
    total_bytes: int = 0
    completed: bool = False
    """Whether it is sealed: its writer has said that nothing will be added."""


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

    def __init__(self, database: Database) -> None:
        self._database = database

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
        """

        async def work(view: View) -> LogRange:
            state = await _read_state(view, project_id, key)
            first = first_line or max(state.total_lines - count + 1, 1)
            found = LogRange(first_line=first, state=state)
            size = 0
            async for number, block in _iterate(view, key, state, first):
                size += block.ByteSize()
                if number >= first + count or (found.blocks and size > max_bytes):
                    break
                found.blocks.append(block)
            return found

        return await self._database.read(work)

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
        """

        async def work(view: View) -> LogMatches:
            state = await _read_state(view, project_id, key)
            lines: list[tuple[int, LogBlock]] = []
            size = 0
            next_line = 0
            async for number, block in _iterate(view, key, state, first_line):
                if len(lines) >= most or size > max_bytes:
                    next_line = number
                    break
                size += block.ByteSize()
                if is_wanted(block.log):
                    lines.append((number, block))
            return LogMatches(lines=lines, next_line=next_line, total_lines=state.total_lines)

        return await self._database.read(work)


async def _read_state(view: View, project_id: str, key: LogKey) -> LogState:
    head = await view.one(HEAD, this_project=project_id, **key.parameters())
    if head is None:
        return LogState()
    _chunks, _last_index, completed, size, lines = head
    return LogState(total_lines=lines, total_bytes=size, completed=bool(completed))


async def _iterate(
    view: View, key: LogKey, state: LogState, first_line: int
) -> AsyncIterator[tuple[int, LogBlock]]:
    """Yields lines with their numbers from a number on; reads a few chunks at a time."""
    if first_line > state.total_lines:
        return
    row = await view.one(CHUNK_OF_LINE, **key.parameters(), line=first_line)
    next_chunk = row[0] if row else 1
    while rows := await view.all(CHUNKS_FROM, **key.parameters(), from_number=next_chunk):
        for chunk_number, first_of_chunk, data in rows:
            next_chunk = chunk_number + 1
            for number, block in enumerate(read_blocks(data), start=first_of_chunk):
                if number >= first_line:
                    yield number, block
