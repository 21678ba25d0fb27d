# SPDX-License-Identifier: Apache-2.0
"""Seals stage logs: the chunks of a log that is complete become an object of the blob store.

First the object is written, then one transaction refers to it, and deletes the rows of the chunks,
if the log is still as it was. A crash in between leaves an object that nobody refers to; those are
found by listing. The object has a key of its own, so two that seal the same log do not meet before
that transaction: one of them wins, and the other deletes what it wrote.

A small log stays where it is: a hundred thousand objects of a few lines would gain nothing, and
each costs a request to write, to read and to delete.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from typing import Final

from sqlalchemy import bindparam, delete, insert, literal_column, select, tuple_, update

from pipecd_controlplane.store import schema
from pipecd_controlplane.store.blobs.blob_store import BlobStore, make_key
from pipecd_controlplane.store.database import Database, Row, Transaction, View
from pipecd_controlplane.store.entities import Now
from pipecd_controlplane.store.log_chunks import (
    CHUNKS,
    HEADS,
    LogChunk,
    LogHead,
    LogKey,
    find_head_in,
    match_log,
)
from pipecd_controlplane.store.sealed_logs import OBJECTS
from pipecd_controlplane.store.sealed_segments import SEGMENT_BYTES, SegmentWriter
from pipecd_controlplane.store.spaces import find_space

KIND: Final = "stage-logs"
"""Which objects are logs: the first part of their keys."""

OBJECT_BYTES: Final = 64 * 1024 * 1024
"""About how large an object becomes; a longer log has several."""

READ_BYTES: Final = 1024 * 1024
"""About how much of a log is in memory at once while it is sealed."""

STEP: Final = 100

DUE: Final = (
    select(HEADS.c.project_id, HEADS.c.deployment_id, HEADS.c.stage_id, HEADS.c.retried_count)
    .where(
        schema.LOGS_TO_SEAL,
        tuple_(HEADS.c.deployment_id, HEADS.c.stage_id, HEADS.c.retried_count)
        > tuple_(bindparam("this_deployment"), bindparam("this_stage"), bindparam("this_retry")),
    )
    .order_by(HEADS.c.deployment_id, HEADS.c.stage_id, HEADS.c.retried_count)
    .limit(STEP)
)
NEXT_ROWS: Final = (
    select(
        CHUNKS.c.number,
        CHUNKS.c.first_line,
        CHUNKS.c.data,
        CHUNKS.c.first_index,
        CHUNKS.c.last_index,
    )
    .where(match_log(CHUNKS), CHUNKS.c.number > bindparam("after"))
    .order_by(CHUNKS.c.number)
    .limit(bindparam("most"))
)
MARK_SEALED: Final = (
    update(HEADS)
    .where(
        match_log(HEADS),
        HEADS.c.project_id == bindparam("this_project"),
        HEADS.c.completed == literal_column("1"),
        HEADS.c.chunks == bindparam("this_chunks"),
        HEADS.c.sealed == bindparam("this_sealed"),
    )
    .values(sealed=bindparam("sealed"), sealed_bytes=bindparam("sealed_bytes"))
)
NEW_OBJECT: Final = insert(OBJECTS)
DELETE_CHUNKS: Final = delete(CHUNKS).where(
    match_log(CHUNKS), CHUNKS.c.number <= bindparam("up_to")
)
NEXT_LINE: Final = (
    select(CHUNKS.c.first_line)
    .where(match_log(CHUNKS), CHUNKS.c.number > bindparam("after"))
    .order_by(CHUNKS.c.number)
    .limit(1)
)
REFERRED: Final = select(OBJECTS.c.object_key).where(OBJECTS.c.object_key == bindparam("this_key"))


@dataclass(frozen=True, slots=True, kw_only=True)
class DueLog:
    """A log that is to be sealed."""

    project_id: str
    key: LogKey


class LogSealing:
    """Moves logs that are complete into the blob store."""

    def __init__(self, database: Database, now: Now, *, segment_bytes: int = SEGMENT_BYTES) -> None:
        self._database = database
        self._now = now
        self._segment_bytes = segment_bytes

    async def list_due(self, after: LogKey | None = None) -> list[DueLog]:
        """Returns the next logs, in the order of their keys, that are worth an object."""
        start = after or LogKey(deployment_id="", stage_id="", retried_count=-1)

        async def work(view: View) -> list[DueLog]:
            return [
                DueLog(
                    project_id=row[0],
                    key=LogKey(deployment_id=row[1], stage_id=row[2], retried_count=row[3]),
                )
                for row in await view.all(DUE, **start.parameters())
            ]

        return await self._database.read(work)

    async def seal(self, blobs: BlobStore, due: DueLog, *, most: int = OBJECT_BYTES) -> bool:
        """Moves a log into the blob store, up to `most` bytes; returns whether it did.

        It does not if the log was opened again, or sealed by another. Raises what `blobs` raises.
        """
        project_id, key = due.project_id, due.key

        async def read_head(view: View) -> LogHead | None:
            return await find_head_in(view, project_id, key)

        head = await self._database.read(read_head)
        if head is None or not head.completed or head.chunks <= head.sealed:
            return False
        space = await find_space(self._database)
        object_key = make_key(KIND, now=self._now(), space=space)
        writer = SegmentWriter(self._segment_bytes)
        await blobs.put_parts(object_key, self._read_segments(key, head, writer, most))
        # If this raises, the end of the commit may be unknown, so the object stays.
        is_sealed = writer.last_number > head.sealed and await self._refer(
            project_id, key, head, object_key, writer
        )
        if not is_sealed:
            await blobs.delete(object_key)
        return is_sealed

    async def find_unreferred(self, keys: Iterable[str]) -> list[str]:
        """Returns those of some keys that no log refers to."""
        asked = list(keys)

        async def work(view: View) -> list[str]:
            return [each for each in asked if await view.one(REFERRED, this_key=each) is None]

        return await self._database.read(work)

    async def _read_segments(
        self, key: LogKey, head: LogHead, writer: SegmentWriter, most: int
    ) -> AsyncIterator[bytes]:
        """Yields the object, with a few chunks at a time in memory."""
        after, rows = head.sealed, 1
        while after < head.chunks and writer.size < most:
            found = await self._read_rows(key, after, min(rows, head.chunks - after))
            if not found:
                return
            size = sum(len(row[2]) for row in found)
            after = found[-1][0]
            # As many at once as fit, judged by those before.
            rows = max(1, min(256, min(READ_BYTES, most) * len(found) // max(size, 1)))
            if data := await asyncio.to_thread(_add_rows, writer, found):
                yield data
        if data := writer.finish():
            yield data

    async def _read_rows(self, key: LogKey, after: int, most: int) -> list[Row]:
        async def work(view: View) -> list[Row]:
            return await view.all(NEXT_ROWS, **key.parameters(), after=after, most=most)

        return await self._database.read(work)

    async def _refer(
        self,
        project_id: str,
        key: LogKey,
        head: LogHead,
        object_key: str,
        writer: SegmentWriter,
    ) -> bool:
        """Refers to the object in place of the rows. Returns False if the log is another now."""
        up_to = writer.last_number
        is_all = up_to == head.chunks
        sealed_bytes = head.bytes if is_all else min(head.bytes, head.sealed_bytes + writer.size)

        async def work(transaction: Transaction) -> bool:
            moved = await transaction.run(
                MARK_SEALED,
                **key.parameters(),
                this_project=project_id,
                this_chunks=head.chunks,
                this_sealed=head.sealed,
                sealed=up_to,
                sealed_bytes=sealed_bytes,
            )
            if not moved:
                return False
            following = await transaction.one(NEXT_LINE, **key.parameters(), after=up_to)
            await transaction.run(
                NEW_OBJECT,
                **key.columns(),
                first_number=head.sealed + 1,
                project_id=project_id,
                last_number=up_to,
                first_line=writer.first_line,
                last_line=following[0] - 1 if following else head.lines,
                lowest_index=writer.lowest_index,
                highest_index=writer.highest_index,
                object_key=object_key,
                size=writer.size,
                sha256=writer.sha256,
                directory=writer.directory,
            )
            await transaction.run(DELETE_CHUNKS, **key.parameters(), up_to=up_to)
            return True

        return await self._database.write(work)


def _add_rows(writer: SegmentWriter, rows: Iterable[Row]) -> bytes:
    """Returns the segments that became full."""
    return b"".join(
        writer.add(
            LogChunk(number=number, first_line=first_line, data=data),
            lowest_index=lowest,
            highest_index=highest,
        )
        for number, first_line, data, lowest, highest in rows
    )
