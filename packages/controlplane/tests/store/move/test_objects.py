# SPDX-License-Identifier: Apache-2.0
"""The objects that rows refer to are copied, each by its checksum, or it is said which are lost."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from pipecd_controlplane.store.blobs.blob_store import BlobRef, BlobStore, get_checked
from pipecd_controlplane.store.blobs.config import FOLDER_NAME
from pipecd_controlplane.store.blobs.folder import FolderBlobs
from pipecd_controlplane.store.blobs.open import open_blobs
from pipecd_controlplane.store.move.objects import ObjectMove, list_references, measure_objects
from pipecd_controlplane.store.move.open import open_source
from pipecd_controlplane.store.move.sides import MovableDatabase
from pipecd_controlplane.store.open import SqliteFolder
from pipecd_model.errors import StateError
from pipecd_test_support.aws.lab import run_aws_lab
from pipecd_test_support.buckets import BucketMaker
from pipecd_test_support.filled_stores import SEALED_OBJECTS
from pipecd_test_support.moved_databases import HeardProgress, run_sqlite


@pytest.fixture
async def source(folder: SqliteFolder) -> BlobStore:
    blobs = FolderBlobs(folder.folder / FOLDER_NAME)
    await blobs.open()
    return blobs


@pytest.fixture
async def target(tmp_path: Path) -> BlobStore:
    blobs = FolderBlobs(tmp_path / "new")
    await blobs.open()
    return blobs


@pytest.fixture(scope="module")
def buckets(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BucketMaker]:
    folder = tmp_path_factory.mktemp("s3")
    with run_aws_lab(folder) as lab:
        yield BucketMaker(lab.url, folder)


@asynccontextmanager
async def reading(folder: SqliteFolder) -> AsyncIterator[MovableDatabase]:
    async with open_source(folder) as database, database.open_snapshot():
        yield database


async def list_all(folder: SqliteFolder) -> list[BlobRef]:
    async with reading(folder) as database:
        found = [each async for each in list_references(database)]
        size = await measure_objects(database)
    assert len(found) == size.rows == SEALED_OBJECTS
    assert sum(each.size for each in found) == size.bytes
    return found


async def move(
    folder: SqliteFolder, source: BlobStore, target: BlobStore, *, skips_lost: bool = False
) -> HeardProgress:
    progress = HeardProgress()
    work = ObjectMove(source=source, target=target, progress=progress, skips_lost=skips_lost)
    async with reading(folder) as database:
        await work.run(database)
    return progress


async def verify(folder: SqliteFolder, source: BlobStore, target: BlobStore) -> None:
    work = ObjectMove(source=source, target=target, progress=HeardProgress())
    async with reading(folder) as database:
        await work.verify(database)


async def test_objects_go_into_a_bucket_and_back(
    folder: SqliteFolder, source: BlobStore, target: BlobStore, buckets: BucketMaker
) -> None:
    bucket = await open_blobs(buckets.describe())

    progress = await move(folder, source, bucket)
    await move(folder, bucket, target)

    assert progress.rows == {"objects": SEALED_OBJECTS}
    for ref in await list_all(folder):
        assert await get_checked(bucket, ref) == await get_checked(target, ref)


async def test_an_object_that_is_there_is_not_written_again(
    folder: SqliteFolder, source: BlobStore, target: BlobStore, tmp_path: Path
) -> None:
    """A move that was killed between two objects costs a reading of the first, no writing."""
    await move(folder, source, target)
    paths = [tmp_path / "new" / each.key for each in await list_all(folder)]
    before = [path.stat().st_ino for path in paths]
    paths[1].unlink()

    await move(folder, source, target)

    after = [path.stat().st_ino for path in paths]
    assert (after[0], after[2]) == (before[0], before[2])
    await verify(folder, source, target)


@pytest.mark.parametrize("damage", [b"", b"other bytes", None])
async def test_what_is_wrong_in_the_target_is_found_and_written_anew(
    folder: SqliteFolder,
    source: BlobStore,
    target: BlobStore,
    tmp_path: Path,
    damage: bytes | None,
) -> None:
    await move(folder, source, target)
    ref = (await list_all(folder))[0]
    good = await get_checked(source, ref)
    # Of the same length, or shorter.
    wrong = good[:-1] + bytes([good[-1] ^ 1]) if damage is None else damage
    (tmp_path / "new" / ref.key).write_bytes(wrong)

    with pytest.raises(StateError, match=f"has not got 1 of {SEALED_OBJECTS} objects"):
        await verify(folder, source, target)
    await move(folder, source, target)

    await verify(folder, source, target)


async def test_objects_that_the_source_has_lost_are_named(
    folder: SqliteFolder, source: BlobStore, target: BlobStore
) -> None:
    missing, damaged, good, *_ = await list_all(folder)
    await source.delete(missing.key)
    path = folder.folder / FOLDER_NAME / damaged.key
    path.write_bytes(path.read_bytes()[:-1] + b"?")

    with pytest.raises(StateError, match=f"has lost 2 of {SEALED_OBJECTS} objects") as caught:
        await move(folder, source, target)
    progress = await move(folder, source, target, skips_lost=True)

    assert "--skip-missing" in caught.value.hint
    told = "\n".join(progress.lines)
    assert f"the object {missing.key!r} is missing in" in told
    assert f"the object {damaged.key!r} in" in told
    assert await target.find(missing.key) is None
    assert await target.find(damaged.key) is None  # nothing wrong is written
    assert len(await get_checked(target, good)) == good.size


async def test_a_value_that_an_older_pipecd_has_replaced_refers_to_no_object(
    folder: SqliteFolder, source: BlobStore, target: BlobStore
) -> None:
    """It knows of no objects, so it leaves the key in the row; the object may be gone."""
    replaced = [
        run_sqlite(
            folder.folder,
            f"UPDATE {table} SET data = x'00' WHERE object_key <> '' RETURNING object_key",  # noqa: S608 - ours
        )
        for table in ("live_state", "shared_object")
    ]
    keys = [key for rows in replaced for [key] in rows]
    assert len(keys) >= 2
    for key in keys:
        await source.delete(key)

    await move(folder, source, target)

    assert {each.key async for each in target.iterate()}.isdisjoint(keys)
    async with reading(folder) as database:
        size = await measure_objects(database)
    assert size.rows == SEALED_OBJECTS - len(keys)


async def test_a_row_that_leads_out_of_the_store_is_said(
    folder: SqliteFolder, source: BlobStore, target: BlobStore
) -> None:
    run_sqlite(
        folder.folder,
        "UPDATE stage_log_object SET object_key = '../../encryption.key' WHERE retried_count = 0",
    )

    with pytest.raises(StateError, match="refers to what is not a key of an object"):
        await move(folder, source, target, skips_lost=True)
