# SPDX-License-Identifier: Apache-2.0
"""Stage logs: appended in chunks, never rewritten, complete at some time, reopened if need be.

A block is identified by its index: one that arrives twice is stored once, and the first one stays.
Appending costs the same at any length, up to a limit: a script that prints for ever must not fill
the disk of every project. What is beyond the limit is dropped, and the last block says so.

The chunks of a log that is complete move from rows into an object of the blob store, see
`log_sealing`. What is added to it later is in rows again, and is read after the object.
"""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from sqlalchemy import bindparam, func, insert, select, update

from pipecd_controlplane.store.blobs.blob_store import BlobStore
from pipecd_controlplane.store.changes import Change, ChangeKind
from pipecd_controlplane.store.database import (
    Database,
    StaleReadError,
    Transaction,
    Value,
    View,
)
from pipecd_controlplane.store.log_chunks import (
    ABOVE_ALL,
    BELOW_ALL,
    CHUNKS,
    HEADS,
    LogChunk,
    LogHead,
    find_head_in,
    match_log,
)
from pipecd_controlplane.store.log_chunks import LogKey as LogKey  # noqa: PLC0414 - known from here
from pipecd_controlplane.store.log_parts import (
    EMPTY,
    NEXT_CHUNKS,
    PART_BYTES,
    LogPart,
    WholePlan,
    make_chunks,
    make_part,
    make_whole,
    plan_whole,
    say_lost,
)
from pipecd_controlplane.store.sealed_logs import (
    OBJECTS,
    LostLogError,
    SealedLogs,
    find_segments_in,
)
from pipecd_controlplane.store.sealed_segments import LogSegment
from pipecd_model.errors import StateError
from pipecd_wire.apiservice import service_pb2 as apiservice
from pipecd_wire.model import logblock_pb2

WHOLE_BYTES: Final = 8 * 1024 * 1024
"""How much several logs may have together where they are returned in one message."""

MAX_BYTES: Final = 64 * 1024 * 1024
"""How much of one attempt of a stage is stored unless the configuration says otherwise."""

MOVE_HEAD: Final = (
    update(HEADS)
    .where(
        match_log(HEADS),
        HEADS.c.project_id == bindparam("this_project"),
        # As it was read: an append adds a chunk or completes it, sealing moves chunks away.
        HEADS.c.chunks == bindparam("this_chunks"),
        HEADS.c.completed == bindparam("this_completed"),
        HEADS.c.sealed == bindparam("this_sealed"),
    )
    .values(
        chunks=bindparam("chunks"),
        last_index=bindparam("last_index"),
        completed=bindparam("completed"),
        bytes=bindparam("bytes"),
        lines=bindparam("lines"),
    )
)
NEW_CHUNK: Final = insert(CHUNKS)
HIGHEST_SEALED: Final = select(func.max(OBJECTS.c.highest_index)).where(match_log(OBJECTS))
OTHERS: Final = CHUNKS.alias()
IN_ORDER_CHUNKS: Final = (
    select(CHUNKS.c.last_index, CHUNKS.c.data)
    .where(
        match_log(CHUNKS),
        CHUNKS.c.late == 0,
        CHUNKS.c.last_index >= bindparam("from_index"),
        # They do not overlap: none after the first that reaches `to_index` can hold a wanted one.
        CHUNKS.c.last_index
        <= func.coalesce(
            select(func.min(OTHERS.c.last_index))
            .where(
                match_log(OTHERS), OTHERS.c.late == 0, OTHERS.c.last_index >= bindparam("to_index")
            )
            .scalar_subquery(),
            ABOVE_ALL,
        ),
    )
    .order_by(CHUNKS.c.last_index)
    .limit(16)
)
LATE_CHUNKS: Final = (
    select(CHUNKS.c.number, CHUNKS.c.data)
    .where(
        match_log(CHUNKS),
        CHUNKS.c.late == 1,
        CHUNKS.c.last_index >= bindparam("from_index"),
        CHUNKS.c.first_index <= bindparam("to_index"),
        CHUNKS.c.number > bindparam("after"),
    )
    .order_by(CHUNKS.c.number)
    .limit(16)
)


class StageLogs:
    """The logs of all stages."""

    def __init__(
        self, database: Database, blobs: BlobStore | None = None, *, max_bytes: int = MAX_BYTES
    ) -> None:
        self._database = database
        self._sealed = SealedLogs(database, blobs)
        self._max_bytes = max_bytes

    async def append(
        self,
        project_id: str,
        key: LogKey,
        blocks: Iterable[logblock_pb2.LogBlock],
        *,
        completed: bool,
        reopen: bool = False,
    ) -> None:
        """Adds the blocks that are not stored yet.

        New blocks for a log that is complete open it again with `reopen`, as for a stage that runs
        again; without it they raise StateError.
        """
        offered = list(blocks)
        known = _KnownSealed()
        while True:
            wanted = await self._append(
                project_id, key, offered, known, completed=completed, reopen=reopen
            )
            if wanted is None:
                return
            known = await self._find_sealed(project_id, key, wanted)

    async def _append(
        self,
        project_id: str,
        key: LogKey,
        offered: list[logblock_pb2.LogBlock],
        known: "_KnownSealed",
        *,
        completed: bool,
        reopen: bool,
    ) -> "_KnownSealed | None":
        """Adds blocks. Returns what must be known of the sealed part before, None when done."""

        async def work(transaction: Transaction) -> _KnownSealed | None:
            head = await find_head_in(transaction, project_id, key)
            was = head or LogHead()
            if was.sealed > known.up_to and (
                late := await _find_sealed_late(transaction, key, offered)
            ):
                return _KnownSealed(up_to=was.sealed, indexes=late)
            new = await _find_new(transaction, key, offered, was.last_index, known.indexes)
            if was.completed and new and not reopen:
                raise StateError(f"the log of the stage {key.stage_id!r} is complete")
            new, size = _fit(new, was.bytes, self._max_bytes)
            if not new and completed <= bool(was.completed):
                return None
            # The head first: the transaction that has moved it owns the next chunk number.
            await _move_head(
                transaction,
                project_id,
                key,
                head,
                {
                    "chunks": was.chunks + bool(new),
                    "last_index": max(was.last_index, *(block.index for block in new))
                    if new
                    else was.last_index,
                    "completed": int(completed),
                    "bytes": size,
                    "lines": was.lines + len(new),
                },
            )
            if new:
                place = _ChunkPlace(
                    number=was.chunks + 1, first_line=was.lines + 1, last_index=was.last_index
                )
                await _add_chunk(transaction, key, place, new)
            transaction.publish(
                Change(kind=ChangeKind.STAGE_LOG, id=str(key), project_id=project_id)
            )
            return None

        return await self._database.write(work)

    async def _find_sealed(
        self, project_id: str, key: LogKey, wanted: "_KnownSealed"
    ) -> "_KnownSealed":
        """Returns which of some indexes are in the sealed part of a log.

        What is lost is not known: an agent that sends it again brings it back.
        """
        low, high = min(wanted.indexes), max(wanted.indexes)
        found: set[int] = set()
        after = 0

        async def work(view: View) -> list[LogSegment]:
            return await find_segments_in(
                view, key, after=after, from_index=low, to_index=high, most=PART_BYTES
            )

        while segments := await self._database.read(work):
            after = segments[-1].last_number
            try:
                chunks = await self._sealed.fetch(project_id, key, segments)
            except LostLogError:
                continue
            found |= await asyncio.to_thread(_find_indexes, chunks or [], wanted.indexes)
        return _KnownSealed(up_to=wanted.up_to, indexes=found)

    async def part(
        self, project_id: str, key: LogKey, *, after: int = 0, from_index: int = BELOW_ALL
    ) -> LogPart:
        """Returns the next blocks after a position. A log that does not exist is empty.

        Raises LostLogError when its object is missing or damaged.
        """

        async def work(view: View) -> LogPart | tuple[LogHead, list[LogSegment]]:
            head = await find_head_in(view, project_id, key)
            if head is None:
                return EMPTY
            if after < head.sealed and (
                segments := await find_segments_in(
                    view,
                    key,
                    after=after,
                    from_index=from_index,
                    to_index=ABOVE_ALL,
                    most=PART_BYTES,
                )
            ):
                return head, segments
            rows = await view.all(
                NEXT_CHUNKS,
                **key.parameters(),
                after=max(after, head.sealed),
                from_index=from_index,
            )
            return make_part(head, after, from_index, make_chunks(rows))

        planned = await self._database.read(work)
        if isinstance(planned, LogPart):
            return planned
        head, segments = planned
        chunks = await self._sealed.fetch(project_id, key, segments)
        if chunks is None:
            return EMPTY
        return await asyncio.to_thread(
            make_part, head, after, from_index, [each for each in chunks if each.number > after]
        )

    async def whole(
        self,
        project_id: str,
        keys: Iterable[LogKey],
        *,
        most: int = WHOLE_BYTES,
        said_at: int = 1,
    ) -> dict[LogKey, LogPart]:
        """Returns several logs as of one moment.

        A log that is cut, because all of them exceed `most` bytes, is not `at_end`. One that is
        lost has a block that says so, with the time `said_at`.
        """

        async def work(view: View) -> dict[LogKey, WholePlan]:
            plans: dict[LogKey, WholePlan] = {}
            room = most
            for key in keys:
                plans[key] = await plan_whole(view, project_id, key, room)
                room -= plans[key].size
            return plans

        parts: dict[LogKey, LogPart] = {}
        room = most
        for key, plan in (await self._database.read(work)).items():
            try:
                sealed = await self._sealed.fetch(project_id, key, plan.segments)
            except LostLogError as lost:
                parts[key] = say_lost(plan, lost, said_at)
                continue
            parts[key], size = await asyncio.to_thread(
                make_whole, plan, [*(sealed or []), *plan.rows], room
            )
            room -= size
        return parts


@dataclass(frozen=True, slots=True, kw_only=True)
class _KnownSealed:
    """Indexes of blocks in the sealed part of a log, as of the chunk up to which it was sealed."""

    up_to: int = 0
    indexes: set[int] = field(default_factory=set)


async def _move_head(
    transaction: Transaction,
    project_id: str,
    key: LogKey,
    head: LogHead | None,
    state: dict[str, Value],
) -> None:
    """Writes the head of a log. Raises StaleReadError when it has changed since it was read."""
    if head is None:
        moved = await transaction.insert_if_absent(
            HEADS, **key.columns(), project_id=project_id, sealed=0, sealed_bytes=0, **state
        )
    else:
        moved = (
            await transaction.run(
                MOVE_HEAD,
                **key.parameters(),
                this_project=project_id,
                this_chunks=head.chunks,
                this_completed=head.completed,
                this_sealed=head.sealed,
                **state,
            )
            > 0
        )
    if not moved:
        raise StaleReadError


@dataclass(frozen=True, slots=True, kw_only=True)
class _ChunkPlace:
    """Where a chunk belongs in its log."""

    number: int
    first_line: int
    last_index: int
    """The highest index of earlier blocks."""


async def _add_chunk(
    transaction: Transaction, key: LogKey, place: _ChunkPlace, blocks: list[logblock_pb2.LogBlock]
) -> None:
    """Writes new blocks as one chunk."""
    first_of_new = min(block.index for block in blocks)
    await transaction.run(
        NEW_CHUNK,
        **key.columns(),
        number=place.number,
        first_index=first_of_new,
        last_index=max(block.index for block in blocks),
        late=int(first_of_new <= place.last_index),
        first_line=place.first_line,
        data=apiservice.StageLog(blocks=blocks).SerializeToString(),
    )


async def _find_sealed_late(
    view: View, key: LogKey, offered: Iterable[logblock_pb2.LogBlock]
) -> set[int]:
    """Returns the offered indexes that may be in the sealed part of a log."""
    row = await view.one(HIGHEST_SEALED, **key.parameters())
    highest = row[0] if row and row[0] is not None else BELOW_ALL
    return {block.index for block in offered if block.index <= highest}


def _find_indexes(chunks: Iterable[LogChunk], wanted: set[int]) -> set[int]:
    return {
        block.index for chunk in chunks for block in chunk.read_blocks() if block.index in wanted
    }


async def _find_new(
    view: View,
    key: LogKey,
    offered: list[logblock_pb2.LogBlock],
    last_index: int,
    sealed: set[int],
) -> list[logblock_pb2.LogBlock]:
    """Returns the offered blocks that are not stored yet, nor in the sealed part."""
    known = set(sealed)
    if late := {block.index for block in offered if block.index <= last_index} - sealed:
        known |= await _find_known(view, key, late)
    new = []
    for block in offered:
        if block.index not in known:
            known.add(block.index)
            new.append(block)
    return new


def _fit(
    new: list[logblock_pb2.LogBlock], size: int, most: int
) -> tuple[list[logblock_pb2.LogBlock], int]:
    """Returns the new blocks that fit into `most` bytes, and the size of the log with them.

    When the limit is reached, the last block is a message that says so.
    """
    for position, block in enumerate(new):
        if size >= most:
            return new[:position], size
        size += block.ByteSize()
        if size > most:
            end = logblock_pb2.LogBlock(
                index=block.index,
                created_at=block.created_at,
                severity=logblock_pb2.ERROR,
                log=f"This log has reached its limit of {most} bytes: what follows is not kept."
                " Print less, or raise spec.retention.stageLogMebibytes of the control plane.",
            )
            return [*new[:position], end], most
    return new, size


async def _find_known(view: View, key: LogKey, wanted: set[int]) -> set[int]:
    """Returns which of the wanted indexes are stored already.

    Only chunks that can hold them are read, a few at a time: a whole log that is sent again costs
    as much as it did the first time.
    """
    found: set[int] = set()
    low, high = min(wanted), max(wanted)
    start = low
    while rows := await view.all(
        IN_ORDER_CHUNKS, **key.parameters(), from_index=start, to_index=high
    ):
        for _, data in rows:
            found |= _find_indexes([LogChunk(number=0, first_line=0, data=data)], wanted)
        start = rows[-1][0] + 1
        if start > high:
            break
    after = 0
    while rows := await view.all(
        LATE_CHUNKS, **key.parameters(), from_index=low, to_index=high, after=after
    ):
        for _, data in rows:
            found |= _find_indexes([LogChunk(number=0, first_line=0, data=data)], wanted)
        after = rows[-1][0]
    return found
