# SPDX-License-Identifier: Apache-2.0
"""Stage logs: appended in chunks, never rewritten, sealed when complete, reopened if need be.

A block is identified by its index: one that arrives twice is stored once, and the first one stays.
Appending costs the same at any length, up to a limit: a script that prints for ever must not fill
the disk of every project. What is beyond the limit is dropped, and the last block says so.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import ColumnElement, FromClause, bindparam, func, insert, select, update

from pipecd_controlplane.store import schema
from pipecd_controlplane.store.changes import Change, ChangeKind
from pipecd_controlplane.store.database import (
    Database,
    Row,
    StaleReadError,
    Transaction,
    Value,
    View,
)
from pipecd_model.errors import StateError
from pipecd_wire.apiservice import service_pb2 as apiservice
from pipecd_wire.model import logblock_pb2

HEADS: Final = schema.stage_log
CHUNKS: Final = schema.stage_log_chunk

BELOW_ALL: Final = -(2**63)
ABOVE_ALL: Final = 2**63 - 1

PART_BYTES: Final = 1024 * 1024
"""How much of a log is returned at once; a long one is read part by part."""

WHOLE_BYTES: Final = 8 * 1024 * 1024
"""How much several logs may have together where they are returned in one message."""


def match_log(table: FromClause) -> "ColumnElement[bool]":
    """Returns the condition for the rows of one log, given `LogKey.parameters`."""
    return (
        (table.c.deployment_id == bindparam("this_deployment"))
        & (table.c.stage_id == bindparam("this_stage"))
        & (table.c.retried_count == bindparam("this_retry"))
    )


MAX_BYTES: Final = 64 * 1024 * 1024
"""How much of one attempt of a stage is stored unless the configuration says otherwise."""

HEAD: Final = select(
    HEADS.c.chunks, HEADS.c.last_index, HEADS.c.completed, HEADS.c.bytes, HEADS.c.lines
).where(match_log(HEADS), HEADS.c.project_id == bindparam("this_project"))
MOVE_HEAD: Final = (
    update(HEADS)
    .where(
        match_log(HEADS),
        HEADS.c.project_id == bindparam("this_project"),
        # As it was read: each append adds a chunk, or only a seal.
        HEADS.c.chunks == bindparam("this_chunks"),
        HEADS.c.completed == bindparam("this_completed"),
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
NEXT_CHUNKS: Final = (
    select(CHUNKS.c.number, CHUNKS.c.data)
    .where(
        match_log(CHUNKS),
        CHUNKS.c.number > bindparam("after"),
        CHUNKS.c.last_index >= bindparam("from_index"),
    )
    .order_by(CHUNKS.c.number)
    .limit(64)
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogKey:
    """Which log: each attempt of a stage has its own."""

    deployment_id: str
    stage_id: str
    retried_count: int = 0

    def __str__(self) -> str:
        return f"{self.deployment_id}/{self.stage_id}/{self.retried_count}"

    def parameters(self) -> dict[str, Value]:
        return {
            "this_deployment": self.deployment_id,
            "this_stage": self.stage_id,
            "this_retry": self.retried_count,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPart:
    """Some blocks of a log, in the order in which they arrived."""

    blocks: list[logblock_pb2.LogBlock]
    position: int
    """Where to continue reading: the `after` of the next part."""
    at_end: bool
    """Whether the log has no more blocks now."""
    completed: bool
    """Whether the log is sealed: its writer has said that nothing will be added."""


EMPTY: Final = LogPart(blocks=[], position=0, at_end=True, completed=False)


class StageLogs:
    """The logs of all stages."""

    def __init__(self, database: Database, *, max_bytes: int = MAX_BYTES) -> None:
        self._database = database
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

        New blocks for a sealed log remove the seal with `reopen`, as for a stage that runs again;
        without it they raise StateError.
        """
        offered = list(blocks)

        async def work(transaction: Transaction) -> None:
            head = await transaction.one(HEAD, this_project=project_id, **key.parameters())
            chunks, last_index, sealed, size, lines = head or (0, BELOW_ALL, 0, 0, 0)
            new = await _find_new(transaction, key, offered, last_index)
            if sealed and new and not reopen:
                raise StateError(f"the log of the stage {key.stage_id!r} is complete")
            new, size = _fit(new, size, self._max_bytes)
            if not new and completed <= bool(sealed):
                return
            # The head first: the transaction that has moved it owns the next chunk number.
            await _move_head(
                transaction,
                project_id,
                key,
                head,
                {
                    "chunks": chunks + bool(new),
                    "last_index": max(last_index, *(block.index for block in new))
                    if new
                    else last_index,
                    "completed": int(completed),
                    "bytes": size,
                    "lines": lines + len(new),
                },
            )
            if new:
                place = _ChunkPlace(number=chunks + 1, first_line=lines + 1, last_index=last_index)
                await _add_chunk(transaction, key, place, new)
            transaction.publish(
                Change(kind=ChangeKind.STAGE_LOG, id=str(key), project_id=project_id)
            )

        await self._database.write(work)

    async def part(
        self, project_id: str, key: LogKey, *, after: int = 0, from_index: int = BELOW_ALL
    ) -> LogPart:
        """Returns the next blocks after a position. A log that does not exist is empty."""

        async def work(view: View) -> LogPart:
            return await _part_in(view, project_id, key, after=after, from_index=from_index)

        return await self._database.read(work)

    async def whole(
        self, project_id: str, keys: Iterable[LogKey], *, most: int = WHOLE_BYTES
    ) -> dict[LogKey, LogPart]:
        """Returns several logs as of one moment.

        A log that is cut, because all of them exceed `most` bytes, is not `at_end`.
        """

        async def work(view: View) -> dict[LogKey, LogPart]:
            parts: dict[LogKey, LogPart] = {}
            room = most
            for key in keys:
                parts[key], size = await _whole_in(view, project_id, key, room)
                room -= size
            return parts

        return await self._database.read(work)


async def _move_head(
    transaction: Transaction,
    project_id: str,
    key: LogKey,
    head: Row | None,
    state: dict[str, Value],
) -> None:
    """Writes the head of a log. Raises StaleReadError when it has changed since it was read."""
    if head is None:
        moved = await transaction.insert_if_absent(
            HEADS, **_key_columns(key), project_id=project_id, **state
        )
    else:
        moved = (
            await transaction.run(
                MOVE_HEAD,
                **key.parameters(),
                this_project=project_id,
                this_chunks=head[0],
                this_completed=head[2],
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
        **_key_columns(key),
        number=place.number,
        first_index=first_of_new,
        last_index=max(block.index for block in blocks),
        late=int(first_of_new <= place.last_index),
        first_line=place.first_line,
        data=apiservice.StageLog(blocks=blocks).SerializeToString(),
    )


async def _part_in(
    view: View, project_id: str, key: LogKey, *, after: int = 0, from_index: int = BELOW_ALL
) -> LogPart:
    head = await view.one(HEAD, this_project=project_id, **key.parameters())
    if head is None:
        return EMPTY
    last_chunk, _, completed, _, _ = head
    rows = await view.all(NEXT_CHUNKS, **key.parameters(), after=after, from_index=from_index)
    blocks: list[logblock_pb2.LogBlock] = []
    size, position = 0, after
    for number, data in rows:
        if blocks and size + len(data) > PART_BYTES:
            return LogPart(
                blocks=blocks, position=position, at_end=False, completed=bool(completed)
            )
        blocks += [block for block in read_blocks(data) if block.index >= from_index]
        size, position = size + len(data), number
    at_end = not rows or position >= last_chunk
    return LogPart(blocks=blocks, position=position, at_end=at_end, completed=bool(completed))


async def _whole_in(view: View, project_id: str, key: LogKey, room: int) -> tuple[LogPart, int]:
    """Returns a log from its start, cut after `room` bytes, and the bytes that were read."""
    blocks: list[logblock_pb2.LogBlock] = []
    size = 0
    part = EMPTY
    while True:
        part = await _part_in(view, project_id, key, after=part.position)
        cut = False
        for block in part.blocks:
            size += block.ByteSize() + 4
            if size > room:
                cut = True
                break
            blocks.append(block)
        if cut or part.at_end:
            whole = LogPart(
                blocks=blocks, position=part.position, at_end=not cut, completed=part.completed
            )
            return whole, size


async def _find_new(
    view: View, key: LogKey, offered: list[logblock_pb2.LogBlock], last_index: int
) -> list[logblock_pb2.LogBlock]:
    """Returns the offered blocks that are not stored yet."""
    known: set[int] = set()
    if late := {block.index for block in offered if block.index <= last_index}:
        known = await _find_known(view, key, late)
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
            found.update(block.index for block in read_blocks(data) if block.index in wanted)
        start = rows[-1][0] + 1
        if start > high:
            break
    after = 0
    while rows := await view.all(
        LATE_CHUNKS, **key.parameters(), from_index=low, to_index=high, after=after
    ):
        for _, data in rows:
            found.update(block.index for block in read_blocks(data) if block.index in wanted)
        after = rows[-1][0]
    return found


def read_blocks(data: bytes) -> Iterable[logblock_pb2.LogBlock]:
    """Returns the blocks of a stored chunk."""
    return apiservice.StageLog.FromString(data).blocks


def _key_columns(key: LogKey) -> dict[str, Any]:
    return {
        "deployment_id": key.deployment_id,
        "stage_id": key.stage_id,
        "retried_count": key.retried_count,
    }
