# SPDX-License-Identifier: Apache-2.0
"""After a move of objects alone only the target is the store of the database, if it is another."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from pipecd_controlplane.store.blobs.blob_store import BlobEntry, BlobsRefusedError
from pipecd_controlplane.store.blobs.config import BlobConfig, BlobFolder, KeyFiles
from pipecd_controlplane.store.blobs.folder import FolderBlobs
from pipecd_controlplane.store.blobs.mark import MARK, MARKS, has_mark, make_mark_key, put_mark
from pipecd_controlplane.store.blobs.open import open_blobs
from pipecd_controlplane.store.kept_objects import KEEPS_OBJECTS, YES
from pipecd_controlplane.store.move.mark import (
    add_mark,
    has_kept_objects,
    move_mark,
    part_from_original,
    read_mark,
    refuse_stranger,
    refuse_unmarked,
)
from pipecd_controlplane.store.move.open import open_source
from pipecd_controlplane.store.open import DatabaseConfig, SqliteFolder, open_database
from pipecd_controlplane.store.postgres.config import PostgresServer
from pipecd_model.errors import StateError
from pipecd_test_support.aws.lab import run_aws_lab
from pipecd_test_support.blob_store_contract import find_keys
from pipecd_test_support.buckets import BucketMaker
from pipecd_test_support.moved_databases import HeardProgress
from pipecd_test_support.postgres import shared_postgres

ID = "0123456789abcdef"


@pytest.fixture(scope="module")
def buckets(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BucketMaker]:
    folder = tmp_path_factory.mktemp("s3")
    with run_aws_lab(folder) as lab:
        yield BucketMaker(lab.url, folder)


@pytest.fixture(params=["link", "key files", "region", "prefix"])
def one_store(
    request: pytest.FixtureRequest, tmp_path: Path, buckets: BucketMaker
) -> tuple[BlobConfig, BlobConfig]:
    """Two settings of one store."""
    if request.param == "link":
        (tmp_path / "link").symlink_to(tmp_path / "blobs")
        (tmp_path / "blobs").mkdir()
        return BlobFolder(folder=tmp_path / "blobs"), BlobFolder(folder=tmp_path / "link")
    config = buckets.describe(prefix="production")
    for name in ("access", "secret"):
        (tmp_path / name).write_text("test\n")
    keys = KeyFiles(access_key=tmp_path / "access", secret_key=tmp_path / "secret")
    return config, {
        "key files": replace(config, credentials=keys),
        "region": replace(config, region="us-east-1"),
        "prefix": replace(config, prefix="production/"),
    }[request.param]


async def test_the_mark_stays_where_both_settings_lead_to_one_store(
    one_store: tuple[BlobConfig, BlobConfig],
) -> None:
    """Else the only one was deleted, and every server refused."""
    source, target = [await open_blobs(each) for each in one_store]
    await put_mark(source, ID)
    heard = HeardProgress()

    await move_mark(ID, source, target, heard)

    assert await find_keys(target, MARKS) == {make_mark_key(ID)}
    assert "are one store: its objects stay in it" in heard.lines[0]


async def test_the_mark_goes_from_one_store_to_another(
    tmp_path: Path, buckets: BucketMaker
) -> None:
    source = await open_blobs(BlobFolder(folder=tmp_path / "blobs"))
    target = await open_blobs(buckets.describe())
    await put_mark(source, ID)
    heard = HeardProgress()

    for _ in range(2):  # it goes on where it was killed
        await move_mark(ID, source, target, heard)

    assert await find_keys(source) == set()
    assert await find_keys(target) == {make_mark_key(ID)}
    assert heard.lines == []


async def test_the_mark_stays_in_a_store_that_does_not_say_what_it_has(tmp_path: Path) -> None:
    class SecretiveBlobs(FolderBlobs):
        async def find(self, key: str) -> BlobEntry | None:
            raise BlobsRefusedError(f"{self.place} refuses these credentials")

    source, target = SecretiveBlobs(tmp_path / "old"), FolderBlobs(tmp_path / "new")
    await source.open()
    await target.open()
    await put_mark(source, ID)
    heard = HeardProgress()

    await move_mark(ID, source, target, heard)

    assert await find_keys(source) == await find_keys(target) == {make_mark_key(ID)}
    assert "a server may still be started with it" in heard.lines[0]
    assert "refuses these credentials" in heard.lines[0]


async def test_the_store_with_the_mark_is_the_source_or_was_the_target(tmp_path: Path) -> None:
    old, new, other = (BlobFolder(folder=tmp_path / each) for each in ("old", "new", "other"))
    await put_mark(await open_blobs(old), ID)

    await refuse_stranger(ID, old, new)
    await refuse_stranger(ID, new, old)
    with pytest.raises(StateError, match=r"'.*other' is not where this database has its objects"):
        await refuse_stranger(ID, other, new)
    await refuse_unmarked(ID, old)
    with pytest.raises(StateError, match=r"'.*new' lacks the mark of the database"):
        await refuse_unmarked(ID, new)
    assert not other.folder.exists()


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[DatabaseConfig]:
    if request.param == "sqlite":
        yield SqliteFolder(folder=tmp_path / "data")
        return
    server = shared_postgres()
    name = server.create_database()
    yield PostgresServer(url=server.url(name))
    server.drop_database(name)


async def test_a_database_without_a_mark_gets_one_in_its_new_store(
    database: DatabaseConfig, tmp_path: Path
) -> None:
    async with open_database(database, lambda _changes: None):
        pass  # it makes the tables
    target = await open_blobs(BlobFolder(folder=tmp_path / "new"))

    async with open_source(database) as opened:
        assert await read_mark(opened) == ""
        await add_mark(opened, target)
        mark = await read_mark(opened)

    assert mark
    assert await has_mark(target, mark)


async def test_a_copy_gets_a_mark_of_its_own_and_leaves_that_of_its_original(
    database: DatabaseConfig, tmp_path: Path
) -> None:
    """Else the original had none any more, and did not start."""
    async with open_database(database, lambda _changes: None):
        pass  # it makes the tables
    source, target = [
        await open_blobs(BlobFolder(folder=tmp_path / each)) for each in ("old", "new")
    ]
    await put_mark(source, ID)
    heard = HeardProgress()

    async with open_source(database) as opened:
        await opened.write_value(MARK, ID)
        assert not await has_kept_objects(opened)
        await opened.write_value(KEEPS_OBJECTS, YES)
        for _ in range(2):  # the same command once more
            mark = await read_mark(opened)
            await part_from_original(opened, mark, source, target, heard)
        mark = await read_mark(opened)
        assert await has_kept_objects(opened)

    assert mark != ID
    assert await find_keys(source) == {make_mark_key(ID)}
    assert await find_keys(target) == {make_mark_key(mark)}
    assert "`pipecd take-over-objects`" in heard.lines[0]
