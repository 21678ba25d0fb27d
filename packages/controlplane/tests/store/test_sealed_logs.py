# SPDX-License-Identifier: Apache-2.0
"""Sealed logs: in the blob store in place of rows, and no reader notices; nothing is lost."""

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Iterable
from pathlib import Path

import pytest
from sqlalchemy import bindparam, func, select, update

from pipecd_controlplane.ops.objects import remove_orphans, seal_logs
from pipecd_controlplane.store import schema
from pipecd_controlplane.store.blobs import blob_store
from pipecd_controlplane.store.blobs.blob_store import (
    BlobEntry,
    BlobsRefusedError,
    BlobStore,
    BlobsUnavailableError,
)
from pipecd_controlplane.store.blobs.folder import FolderBlobs
from pipecd_controlplane.store.database import Database, Transaction, View
from pipecd_controlplane.store.log_sealing import KIND, DueLog, LogSealing
from pipecd_controlplane.store.sealed_logs import LostLogError
from pipecd_controlplane.store.spaces import find_space
from pipecd_controlplane.store.stage_logs import LogKey
from pipecd_controlplane.store.stores import Stores, stores
from pipecd_model.errors import StateError
from pipecd_test_support.controlplane_messages import MessageBuilder
from pipecd_wire.model.logblock_pb2 import LogBlock
from pipecd_wire.rpc.channel import DEADLINE_SECONDS

KEY = LogKey(deployment_id="d1", stage_id="s1")
DUE = DueLog(project_id="ours", key=KEY)
NOW = MessageBuilder.NOON + 60
CHUNK_COUNT = select(func.count()).select_from(schema.stage_log_chunk)


@pytest.fixture
async def blobs(tmp_path: Path) -> FolderBlobs:
    opened = FolderBlobs(tmp_path / "blobs")
    await opened.open()
    return opened


@pytest.fixture
def kept(database: Database, blobs: FolderBlobs) -> Stores:
    return stores(database, lambda: NOW, blobs=blobs)


@pytest.fixture
def sealing(database: Database) -> LogSealing:
    """With segments of a few blocks, so that short logs have several."""
    return LogSealing(database, lambda: NOW, segment_bytes=100)


def make_blocks(indexes: Iterable[int], *, size: int = 0) -> list[LogBlock]:
    return [
        LogBlock(index=index, log=f"line {index} {'x' * size}".strip(), created_at=1)
        for index in indexes
    ]


async def append(
    kept: Stores,
    indexes: Iterable[int],
    *,
    completed: bool = False,
    size: int = 0,
    key: LogKey = KEY,
    reopen: bool = False,
) -> None:
    blocks = make_blocks(indexes, size=size)
    await kept.stage_logs.append("ours", key, blocks, completed=completed, reopen=reopen)


async def write_log(kept: Stores, count: int = 40, key: LogKey = KEY) -> None:
    """A log of chunks with four blocks, completed."""
    for start in range(0, count, 4):
        await append(kept, range(start, start + 4), key=key)
    await append(kept, [], completed=True, key=key)


async def read_parts(kept: Stores, after: int = 0, from_index: int = -(2**63)) -> list[int]:
    found: list[int] = []
    while True:
        part = await kept.stage_logs.part("ours", KEY, after=after, from_index=from_index)
        found += [block.index for block in part.blocks]
        after = part.position
        if part.at_end:
            return found


async def read_lines(kept: Stores, first: int, count: int) -> list[int]:
    found = await kept.log_lines.read_range("ours", KEY, first_line=first, count=count)
    return [block.index for block in found.blocks]


async def count_chunks(database: Database) -> int:
    async def work(view: View) -> int:
        row = await view.one(CHUNK_COUNT)
        return int(row[0]) if row else 0

    return await database.read(work)


async def list_objects(blobs: BlobStore) -> list[BlobEntry]:
    return [each async for each in blobs.iterate()]


async def test_a_sealed_log_reads_as_before_in_every_way(
    kept: Stores, sealing: LogSealing, blobs: FolderBlobs, database: Database
) -> None:
    await write_log(kept)
    positions = [(await kept.stage_logs.part("ours", KEY)).position, 3, 0]
    before = [
        [await read_parts(kept, after=position) for position in positions],
        [await read_parts(kept, from_index=index) for index in (0, 7, 39, 99)],
        [await read_lines(kept, first, 9) for first in (0, 1, 2, 33, 40, 41)],
        await kept.log_lines.read_range("ours", KEY, first_line=5, count=3),
        await kept.log_lines.search("ours", KEY, lambda log: "3" in log, first_line=4, most=5),
        await kept.log_lines.search(
            "ours", KEY, lambda _: True, first_line=1, most=9, max_bytes=30
        ),
        await kept.stage_logs.whole("ours", [KEY]),
        await kept.stage_logs.whole("ours", [KEY], most=200),
    ]

    assert await sealing.seal(blobs, DUE)

    assert await count_chunks(database) == 0
    assert before == [
        [await read_parts(kept, after=position) for position in positions],
        [await read_parts(kept, from_index=index) for index in (0, 7, 39, 99)],
        [await read_lines(kept, first, 9) for first in (0, 1, 2, 33, 40, 41)],
        await kept.log_lines.read_range("ours", KEY, first_line=5, count=3),
        await kept.log_lines.search("ours", KEY, lambda log: "3" in log, first_line=4, most=5),
        await kept.log_lines.search(
            "ours", KEY, lambda _: True, first_line=1, most=9, max_bytes=30
        ),
        await kept.stage_logs.whole("ours", [KEY]),
        await kept.stage_logs.whole("ours", [KEY], most=200),
    ]
    assert len(await list_objects(blobs)) == 1


async def test_a_log_that_is_not_complete_is_not_sealed(
    kept: Stores, sealing: LogSealing, blobs: FolderBlobs
) -> None:
    await append(kept, range(4))

    assert not await sealing.seal(blobs, DUE)
    assert await list_objects(blobs) == []


async def test_only_logs_that_are_complete_and_large_are_due(kept: Stores) -> None:
    small, large, opened = (LogKey(deployment_id="d1", stage_id=name) for name in "abc")
    await append(kept, range(10), completed=True, key=small)
    await append(kept, range(10), completed=True, key=large, size=10_000)
    await append(kept, range(10), completed=False, key=opened, size=10_000)
    retry = LogKey(deployment_id="d1", stage_id="b", retried_count=1)
    await append(kept, range(10), completed=True, key=retry, size=10_000)

    due = await kept.log_sealing.list_due()
    assert [each.key for each in due] == [large, retry]
    assert [each.key for each in await kept.log_sealing.list_due(after=large)] == [retry]
    assert await kept.log_sealing.list_due(after=retry) == []


async def test_the_job_seals_what_is_due_once(
    kept: Stores, blobs: FolderBlobs, database: Database
) -> None:
    for name in "abc":
        key = LogKey(deployment_id="d1", stage_id=name)
        await append(kept, range(10), completed=True, key=key, size=10_000)

    assert await seal_logs(kept, blobs) == 3
    assert await seal_logs(kept, blobs) == 0
    assert await count_chunks(database) == 0


async def test_a_log_that_is_opened_again_goes_on_after_its_object(
    kept: Stores, sealing: LogSealing, blobs: FolderBlobs
) -> None:
    """A stage that runs again, or an agent that was restarted, has more to say."""
    await write_log(kept)
    await sealing.seal(blobs, DUE)

    with pytest.raises(StateError, match="is complete"):
        await append(kept, [40])
    await append(kept, range(40, 44), reopen=True)
    await append(kept, range(44, 48), completed=True)

    assert await read_parts(kept) == list(range(48))
    assert await read_parts(kept, from_index=38) == list(range(38, 48))
    assert await read_lines(kept, 38, 6) == [37, 38, 39, 40, 41, 42]
    assert await read_lines(kept, 0, 3) == [45, 46, 47]
    whole = (await kept.stage_logs.whole("ours", [KEY]))[KEY]
    assert [block.index for block in whole.blocks] == list(range(48))
    found = await kept.log_lines.search("ours", KEY, lambda log: "4" in log, first_line=35, most=99)
    assert [line for line, _ in found.lines] == [35, *range(41, 49)]

    assert await sealing.seal(blobs, DUE)
    assert not await sealing.seal(blobs, DUE)
    assert await read_parts(kept) == list(range(48))
    assert await read_lines(kept, 38, 6) == [37, 38, 39, 40, 41, 42]
    assert len(await list_objects(blobs)) == 2


async def test_a_long_log_has_several_objects(
    kept: Stores, sealing: LogSealing, blobs: FolderBlobs
) -> None:
    await write_log(kept, 80)

    written = 0
    while await sealing.seal(blobs, DUE, most=300):
        written += 1
        assert await read_parts(kept) == list(range(80))
        assert await read_lines(kept, 2, 70) == list(range(1, 71))
    assert written == len(await list_objects(blobs)) > 2


async def test_blocks_that_arrive_again_after_sealing_are_stored_once(
    kept: Stores, sealing: LogSealing, blobs: FolderBlobs
) -> None:
    await write_log(kept)
    await sealing.seal(blobs, DUE)

    await append(kept, range(40), completed=True)
    await append(kept, [3, 17, 17, 39], reopen=True)
    assert await read_parts(kept) == list(range(40))

    await append(kept, [*range(30, 45)], reopen=True)
    await append(kept, [*range(42, 50), 5], completed=True)
    assert await read_parts(kept) == list(range(50))
    await sealing.seal(blobs, DUE)
    await append(kept, range(60), reopen=True)
    assert await read_parts(kept) == list(range(60))


async def test_a_late_block_that_the_object_lacks_is_kept(
    kept: Stores, sealing: LogSealing, blobs: FolderBlobs
) -> None:
    await append(kept, [10, 12, 14], completed=True)
    await sealing.seal(blobs, DUE)

    await append(kept, [12, 13, 11], reopen=True)

    assert await read_parts(kept) == [10, 12, 14, 13, 11]


async def test_one_of_two_that_seal_at_once_wins_and_the_other_leaves_nothing(
    kept: Stores, sealing: LogSealing, blobs: FolderBlobs
) -> None:
    await write_log(kept)

    done = await asyncio.gather(*(sealing.seal(blobs, DUE) for _ in range(3)))

    assert sorted(done) == [False, False, True]
    assert len(await list_objects(blobs)) == 1
    assert await read_parts(kept) == list(range(40))


class KilledError(Exception):
    """A kill, as far as a store can tell."""


class InterruptedBlobs(FolderBlobs):
    """Writes the object, and does something before it returns."""

    kept: Stores
    step = "kill"

    async def put_parts(self, key: str, parts: AsyncIterator[bytes]) -> int:
        size = await super().put_parts(key, parts)
        if self.step == "kill":
            raise KilledError
        await append(self.kept, [40, 41], reopen=True)
        return size


async def test_a_log_whose_sealing_was_killed_is_whole_and_its_object_is_removed_later(
    kept: Stores, sealing: LogSealing, blobs: FolderBlobs, tmp_path: Path
) -> None:
    await write_log(kept)
    interrupted = InterruptedBlobs(tmp_path / "blobs")

    with pytest.raises(KilledError):
        await sealing.seal(interrupted, DUE)

    assert await read_parts(kept) == list(range(40))
    [orphan] = await list_objects(blobs)
    assert await sealing.seal(blobs, DUE)
    assert await read_parts(kept) == list(range(40))
    assert await remove_orphans(kept, blobs, lambda: orphan.modified_at) == 0
    assert await remove_orphans(kept, blobs, lambda: orphan.modified_at + 90_000) == 1
    assert orphan not in await list_objects(blobs)
    assert await read_parts(kept) == list(range(40))


async def test_what_is_added_while_a_log_is_sealed_is_not_lost(
    kept: Stores, sealing: LogSealing, blobs: FolderBlobs, tmp_path: Path
) -> None:
    await write_log(kept)
    interrupted = InterruptedBlobs(tmp_path / "blobs")
    interrupted.kept, interrupted.step = kept, "append"

    assert not await sealing.seal(interrupted, DUE)

    assert await read_parts(kept) == list(range(42))
    assert await list_objects(blobs) == []


async def test_orphans_of_others_are_left_alone(
    kept: Stores, blobs: FolderBlobs, database: Database
) -> None:
    """Two installations may share a bucket; neither knows the objects of the other."""
    space = await find_space(database)
    assert space == await find_space(database)
    await blobs.put(f"{KIND}/{space}/d1/ours", b"")
    await blobs.put(f"{KIND}/00theirs/d1/theirs", b"")

    assert await remove_orphans(kept, blobs, lambda: 2**40) == 1

    assert [each.key for each in await list_objects(blobs)] == [f"{KIND}/00theirs/d1/theirs"]


async def test_a_file_that_others_put_among_objects_keeps_no_orphan(
    kept: Stores, blobs: FolderBlobs, database: Database, tmp_path: Path
) -> None:
    folder = f"{KIND}/{await find_space(database)}/d1"
    await blobs.put(f"{folder}/orphan", b"")
    foreign = tmp_path / "blobs" / folder / "Thumbs.db"
    foreign.write_bytes(b"")
    (foreign.parent / os.fsdecode(b"\xff")).write_bytes(b"")

    assert await remove_orphans(kept, blobs, lambda: 2**40) == 1

    assert await list_objects(blobs) == []
    assert foreign.exists()


async def test_a_missing_object_is_said_and_never_shown_as_an_empty_log(
    kept: Stores,
    sealing: LogSealing,
    blobs: FolderBlobs,
    caplog: pytest.LogCaptureFixture,
) -> None:
    await write_log(kept)
    other = LogKey(deployment_id="d1", stage_id="s2")
    await append(kept, [1], key=other)
    await sealing.seal(blobs, DUE)
    [entry] = await list_objects(blobs)
    await blobs.delete(entry.key)

    said = "the log of the stage 's1' is lost: the object 'stage-logs/.*' is missing in the folder"
    with caplog.at_level(logging.ERROR), pytest.raises(LostLogError, match=said) as lost:
        await read_parts(kept)
    assert lost.value.status == "DATA_LOSS"
    [line] = caplog.records
    assert line.message == "stage_log.lost"
    assert line.fields["key"] == entry.key  # type: ignore[attr-defined]
    with pytest.raises(LostLogError):
        await read_lines(kept, 1, 5)
    with pytest.raises(LostLogError):
        await kept.log_lines.search("ours", KEY, lambda _: True, first_line=1, most=9)
    whole = await kept.stage_logs.whole("ours", [KEY, other])
    assert whole[KEY].blocks[0].log.startswith("the log of the stage 's1' is lost: ")
    assert [block.index for block in whole[other].blocks] == [1]


async def test_a_row_that_leads_out_of_the_store_is_a_lost_log(
    kept: Stores, blobs: FolderBlobs, sealing: LogSealing, database: Database
) -> None:
    await write_log(kept)
    await sealing.seal(blobs, DUE)
    elsewhere = update(schema.stage_log_object).values(object_key=bindparam("elsewhere"))

    async def lead_elsewhere(transaction: Transaction) -> None:
        await transaction.run(elsewhere, elsewhere="../../encryption.key")

    await database.write(lead_elsewhere)

    with pytest.raises(LostLogError, match="not a key of an object"):
        await read_parts(kept)


async def test_a_damaged_object_is_said(kept: Stores, blobs: FolderBlobs) -> None:
    for start in range(0, 600, 10):
        await append(kept, range(start, start + 10), size=1000)
    await append(kept, [], completed=True)
    await seal_logs(kept, blobs)
    [entry] = await list_objects(blobs)
    data = bytearray(await blobs.get(entry.key))
    data[-1] ^= 1
    await blobs.put(entry.key, bytes(data), replace=True)

    with pytest.raises(LostLogError, match="is damaged: the checksum of bytes"):
        await read_parts(kept)
    assert await read_lines(kept, 1, 3) == [0, 1, 2], "what is whole can be read"

    await blobs.put(entry.key, bytes(data[:50]), replace=True)
    with pytest.raises(LostLogError, match="is damaged: it ends before byte"):
        await read_lines(kept, 20, 5)
    with pytest.raises(LostLogError, match="is damaged: it ends before byte"):
        await read_lines(kept, 590, 5)


async def test_what_was_lost_comes_back_when_an_agent_sends_it_again(
    kept: Stores, sealing: LogSealing, blobs: FolderBlobs
) -> None:
    """An agent sends a report until it is taken: a lost object must not hold it up for ever."""
    await append(kept, range(4), completed=True)
    await sealing.seal(blobs, DUE)
    [entry] = await list_objects(blobs)
    await blobs.delete(entry.key)

    await append(kept, range(6), reopen=True)

    assert await read_parts(kept, after=1) == list(range(6))


async def test_a_store_that_does_not_answer_keeps_logs_where_they_are(
    kept: Stores, blobs: FolderBlobs, tmp_path: Path
) -> None:
    await append(kept, range(10), completed=True, size=10_000)
    (tmp_path / "blobs").rename(tmp_path / "away")

    with pytest.raises(BlobsUnavailableError):
        await seal_logs(kept, blobs)

    assert await read_parts(kept) == list(range(10))
    (tmp_path / "away").rename(tmp_path / "blobs")
    assert await seal_logs(kept, blobs) == 1
    assert await read_parts(kept) == list(range(10))


async def test_a_store_that_refuses_is_asked_once_and_not_for_each_log(
    kept: Stores, tmp_path: Path
) -> None:
    class RefusingBlobs(FolderBlobs):
        asked = 0

        async def put_parts(self, key: str, parts: AsyncIterator[bytes]) -> int:
            self.asked += 1
            raise BlobsRefusedError(f"{self.place} refuses these credentials")

    for stage_id in ("s1", "s2", "s3"):
        key = LogKey(deployment_id="d1", stage_id=stage_id)
        await append(kept, range(10), completed=True, size=10_000, key=key)
    refusing = RefusingBlobs(tmp_path / "blobs")

    with pytest.raises(BlobsRefusedError, match="refuses these credentials"):
        await seal_logs(kept, refusing)

    assert refusing.asked == 1


async def test_a_silent_store_is_said_before_callers_give_up(
    kept: Stores,
    sealing: LogSealing,
    blobs: FolderBlobs,
    database: Database,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    class SilentBlobs(FolderBlobs):
        async def get_range(self, key: str, start: int, length: int) -> bytes:
            await asyncio.Event().wait()
            return b""

    await write_log(kept)
    await sealing.seal(blobs, DUE)
    silent = stores(database, lambda: NOW, blobs=SilentBlobs(tmp_path / "blobs"))
    assert blob_store.FETCH_SECONDS < DEADLINE_SECONDS
    monkeypatch.setattr(blob_store, "FETCH_SECONDS", 0.01)

    for reading in (
        silent.stage_logs.part("ours", KEY),
        silent.stage_logs.whole("ours", [KEY]),
        silent.log_lines.read_range("ours", KEY, first_line=1, count=1),
    ):
        with pytest.raises(BlobsUnavailableError, match=r"the folder '.*' does not answer within"):
            await reading


async def test_a_log_that_is_purged_while_it_is_read_is_empty_and_not_lost(
    kept: Stores, sealing: LogSealing, blobs: FolderBlobs, database: Database
) -> None:
    await write_log(kept)
    await sealing.seal(blobs, DUE)

    class PurgedBlobs(FolderBlobs):
        async def get_range(self, key: str, start: int, length: int) -> bytes:
            async def work(transaction: object) -> None:
                for table in (schema.stage_log, schema.stage_log_object):
                    await transaction.run(table.delete())  # type: ignore[attr-defined]

            await database.write(work)
            await self.delete(key)
            return await super().get_range(key, start, length)

    purging = stores(database, lambda: NOW, blobs=PurgedBlobs(blobs._folder))
    part = await purging.stage_logs.part("ours", KEY)

    assert (part.blocks, part.at_end) == ([], True)


async def test_a_range_reads_only_the_segments_that_hold_it(
    kept: Stores, blobs: FolderBlobs, database: Database
) -> None:
    for start in range(0, 2000, 10):
        await append(kept, range(start, start + 10), size=1000)
    await append(kept, [], completed=True)
    assert await seal_logs(kept, blobs) == 1
    read: list[int] = []

    class CountingBlobs(FolderBlobs):
        async def get_range(self, key: str, start: int, length: int) -> bytes:
            read.append(length)
            return await super().get_range(key, start, length)

    counted = stores(database, lambda: NOW, blobs=CountingBlobs(blobs._folder))
    assert await read_lines(counted, 1001, 3) == [1000, 1001, 1002]

    [entry] = await list_objects(blobs)
    assert entry.size > 2_000_000
    assert sum(read) < 300_000


async def test_programs_without_a_blob_store_say_so(
    kept: Stores, sealing: LogSealing, blobs: FolderBlobs, database: Database
) -> None:
    await write_log(kept)
    await sealing.seal(blobs, DUE)

    with pytest.raises(StateError, match="has no blob store"):
        await read_parts(stores(database, lambda: NOW))
