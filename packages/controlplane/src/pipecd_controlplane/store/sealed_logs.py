# SPDX-License-Identifier: Apache-2.0
"""Reads the sealed parts of stage logs: which segments hold something, and what is in them.

Segments are found within a unit of work, as rows are; they are fetched outside of it. Between the
two a purge may delete the log, so a segment that is missing is a loss only while its row is there.
"""

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from sqlalchemy import bindparam, select

from pipecd_controlplane.store import schema
from pipecd_controlplane.store.blobs.blob_store import (
    BlobDamagedError,
    BlobStore,
    limiting_fetch,
)
from pipecd_controlplane.store.database import Database, View
from pipecd_controlplane.store.log_chunks import LogChunk, LogKey, find_head_in, match_log
from pipecd_controlplane.store.sealed_segments import LogSegment, read_directory
from pipecd_model.errors import LostDataError, StateError
from pipecd_runtime.logs import logger

log = logger(__name__)

OBJECTS: Final = schema.stage_log_object

NEXT_OBJECT: Final = (
    select(OBJECTS.c.object_key, OBJECTS.c.last_number, OBJECTS.c.directory)
    .where(
        match_log(OBJECTS),
        OBJECTS.c.last_number > bindparam("after"),
        OBJECTS.c.highest_index >= bindparam("from_index"),
        OBJECTS.c.lowest_index <= bindparam("to_index"),
    )
    .order_by(OBJECTS.c.first_number)
    .limit(1)
)
OBJECT_OF_LINE: Final = (
    select(OBJECTS.c.object_key, OBJECTS.c.directory)
    .where(
        match_log(OBJECTS),
        OBJECTS.c.first_line <= bindparam("line"),
        OBJECTS.c.last_line >= bindparam("line"),
    )
    .limit(1)
)

SOME_REFERRED: Final = select(OBJECTS.c.object_key).limit(100)


class LostLogError(LostDataError):
    """A part of a log cannot be read any more."""

    def __init__(self, key: LogKey, lost: LostDataError) -> None:
        super().__init__(
            f"the log of the stage {key.stage_id!r} is lost: {lost}", hint=lost.hint, **lost.subject
        )


class SealedLogs:
    """The sealed parts of all logs."""

    def __init__(self, database: Database, blobs: BlobStore | None) -> None:
        self._database = database
        self._blobs = blobs

    async def fetch(
        self, project_id: str, key: LogKey, segments: Sequence[LogSegment]
    ) -> list[LogChunk] | None:
        """Returns the chunks of segments; None when the log has been deleted meanwhile.

        Raises LostLogError when an object is missing or damaged.
        """
        try:
            found: list[LogChunk] = []
            for run in _join_neighbours(segments):
                found += await self._fetch_run(run)
        except LostDataError as lost:
            if await self._is_gone(project_id, key):
                return None
            log.error(  # noqa: TRY400 - where it is lost matters, not where it was noticed
                "stage_log.lost", log=str(key), project=project_id, error=str(lost), **lost.subject
            )
            raise LostLogError(key, lost) from lost
        return found

    async def _fetch_run(self, run: Sequence[LogSegment]) -> list[LogChunk]:
        if self._blobs is None:
            raise StateError("this program has no blob store to read sealed logs from")
        first, last = run[0], run[-1]
        length = last.offset + last.length - first.offset
        try:
            async with limiting_fetch(self._blobs, "the log"):
                data = await self._blobs.get_range(first.object_key, first.offset, length)
            return await asyncio.to_thread(_read_run, run, data)
        except ValueError as error:  # also of a row whose key is none
            raise BlobDamagedError(first.object_key, self._blobs.place, str(error)) from error

    async def _is_gone(self, project_id: str, key: LogKey) -> bool:
        async def work(view: View) -> bool:
            return await find_head_in(view, project_id, key) is None

        return await self._database.read(work)


async def list_some_referred(database: Database) -> list[str]:
    """Returns keys of objects that logs refer to, not all if there are many."""

    async def work(view: View) -> list[str]:
        return [row[0] for row in await view.all(SOME_REFERRED)]

    return await database.read(work)


async def find_segments_in(
    view: View,
    key: LogKey,
    *,
    after: int,
    from_index: int,
    to_index: int,
    most: int,
) -> list[LogSegment]:
    """Returns the next segments with chunks after a number that may hold some index of a range.

    They are of one object and have about `most` bytes; at least one is returned if there is one.
    """
    while row := await view.one(
        NEXT_OBJECT, **key.parameters(), after=after, from_index=from_index, to_index=to_index
    ):
        object_key, last_number, directory = row
        wanted = (
            each
            for each in read_directory(object_key, directory)
            if each.last_number > after
            and each.highest_index >= from_index
            and each.lowest_index <= to_index
        )
        if found := _take(wanted, most):
            return found
        after = last_number
    return []


async def find_segments_of_line_in(
    view: View, key: LogKey, line: int, *, most: int
) -> list[LogSegment]:
    """Returns the segment that holds a line, and those after it; none if the line is not sealed."""
    row = await view.one(OBJECT_OF_LINE, **key.parameters(), line=line)
    if row is None:
        return []
    segments = read_directory(*row)
    start = max(place for place, each in enumerate(segments) if each.first_line <= line)
    return _take(segments[start:], most)


def _take(segments: Iterable[LogSegment], most: int) -> list[LogSegment]:
    found: list[LogSegment] = []
    size = 0
    for each in segments:
        if found and size + each.length > most:
            break
        found.append(each)
        size += each.length
    return found


def _join_neighbours(segments: Sequence[LogSegment]) -> Iterator[list[LogSegment]]:
    """Yields runs of segments that lie side by side in one object: one request for each."""
    run: list[LogSegment] = []
    for each in segments:
        is_next = run and (each.object_key, each.offset) == (
            run[-1].object_key,
            run[-1].offset + run[-1].length,
        )
        if run and not is_next:
            yield run
            run = []
        run.append(each)
    if run:
        yield run


def _read_run(run: Sequence[LogSegment], data: bytes) -> list[LogChunk]:
    start = run[0].offset
    return [
        chunk
        for each in run
        for chunk in each.read_chunks(data[each.offset - start : each.offset - start + each.length])
    ]
