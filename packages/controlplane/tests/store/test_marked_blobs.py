# SPDX-License-Identifier: Apache-2.0
"""A database knows its blob store by a mark: another one is neither used nor taken for its own."""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from pipecd_controlplane.http.probes import Probes
from pipecd_controlplane.ops.objects import seal_logs
from pipecd_controlplane.store.blobs.blob_store import (
    BlobMissingError,
    BlobsRefusedError,
    BlobStore,
    BlobsUnavailableError,
)
from pipecd_controlplane.store.blobs.config import BlobConfig, BlobFolder, S3Bucket
from pipecd_controlplane.store.blobs.folder import INCOMING, FolderBlobs
from pipecd_controlplane.store.blobs.mark import MARK, MARKS
from pipecd_controlplane.store.blobs.open import make_blobs, open_blobs
from pipecd_controlplane.store.database import Database
from pipecd_controlplane.store.installation_values import find_value
from pipecd_controlplane.store.log_chunks import LogKey
from pipecd_controlplane.store.marked_blobs import MarkedBlobs
from pipecd_controlplane.store.own_blobs import open_own_blobs
from pipecd_controlplane.store.sealed_logs import list_some_referred
from pipecd_controlplane.store.stores import Stores, stores
from pipecd_model.errors import UnavailableError
from pipecd_test_support.aws.lab import AwsLab, run_aws_lab
from pipecd_test_support.blob_store_contract import BlobStoreContract, find_keys
from pipecd_test_support.buckets import BucketMaker
from pipecd_test_support.controlplane_messages import MessageBuilder

NOW = MessageBuilder.NOON
KEY = LogKey(deployment_id="d1", stage_id="s")

MakeStore = Callable[[], BlobConfig]


@pytest.fixture(params=["folder", "bucket"])
def make_store(request: pytest.FixtureRequest, tmp_path: Path) -> MakeStore:
    """Describes a new, empty store of one kind."""
    if request.param == "folder":
        numbers = iter(range(10))
        return lambda: BlobFolder(folder=tmp_path / f"folder-{next(numbers)}")
    folder = tmp_path / "s3"
    folder.mkdir()
    lab: AwsLab = request.getfixturevalue("lab")
    return BucketMaker(lab.url, folder).describe


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AwsLab]:
    with run_aws_lab(tmp_path_factory.mktemp("s3")) as lab:
        yield lab


async def seal_log(database: Database, blobs: BlobStore, build: MessageBuilder) -> Stores:
    """Writes a log that is worth an object, and seals it."""
    kept = stores(database, lambda: NOW, blobs=blobs)
    await append_log(kept, build)
    assert await seal_logs(kept, blobs) == 1
    return kept


async def read_log(database: Database, blobs: BlobStore) -> int:
    """Returns how many characters of the log can be read."""
    kept = stores(database, lambda: NOW, blobs=blobs)
    parts = await kept.stage_logs.whole("ours", [KEY])
    return sum(len(block.log) for part in parts.values() for block in part.blocks)


async def append_log(kept: Stores, build: MessageBuilder) -> None:
    [block] = build.blocks(0)
    block.log = "x" * 100_000
    await kept.stage_logs.append("ours", KEY, [block], completed=True)


class TestMarkedBlobs(BlobStoreContract):
    @pytest.fixture
    async def blobs(self, database: Database, tmp_path: Path) -> MarkedBlobs:
        return await open_own_blobs(BlobFolder(folder=tmp_path / "blobs"), database)


async def test_a_database_without_objects_is_bound_to_no_store(
    database: Database, make_store: MakeStore, build: MessageBuilder
) -> None:
    """Whoever changes the filestore before anything is in it has nothing to move."""
    for _ in range(2):
        opened = await open_own_blobs(make_store(), database)
        await opened.check()
    assert await find_value(database, MARK) == ""

    await seal_log(database, opened, build)

    assert await find_value(database, MARK) != ""


async def test_a_store_that_lacks_the_mark_is_refused_and_left_as_it_is(
    database: Database, make_store: MakeStore, build: MessageBuilder
) -> None:
    config = make_store()
    await seal_log(database, await open_own_blobs(config, database), build)
    other = make_store()

    with pytest.raises(BlobsRefusedError, match="is not where this database has its objects") as e:
        await open_own_blobs(other, database)

    assert "lacks their mark" in str(e.value)
    assert "`pipecd move`" in e.value.hint
    if isinstance(other, BlobFolder):
        assert not other.folder.exists()
    opened = await open_own_blobs(config, database)
    assert await read_log(database, opened) == 100_000


async def test_a_store_with_other_marks_is_refused(
    database: Database, make_store: MakeStore, build: MessageBuilder
) -> None:
    await seal_log(database, await open_own_blobs(make_store(), database), build)
    other = make_store()
    theirs = await open_blobs(other)
    await theirs.put(f"{MARKS}0123456789abcdef", b"")

    with pytest.raises(BlobsRefusedError, match="it has other marks"):
        await open_own_blobs(other, database)


async def test_objects_given_up_are_gone_on_without_when_the_operator_says_so(
    database: Database, make_store: MakeStore, build: MessageBuilder, tmp_path: Path
) -> None:
    await seal_log(database, await open_own_blobs(make_store(), database), build)
    other = make_store()
    if isinstance(other, S3Bucket):
        other = replace(other, prefix="production/")
    with pytest.raises(BlobsRefusedError) as caught:
        await open_own_blobs(other, database)

    # As somebody does it who knows nothing of prefixes and keys.
    name = caught.value.hint.split("'")[1]
    if isinstance(other, S3Bucket):
        assert "the bucket 'bucket-" in str(caught.value)
        assert "with the prefix 'production/'" in str(caught.value)
        await (await open_blobs(replace(other, prefix=""))).put(name, b"")
    else:
        file = tmp_path / Path(name).relative_to(tmp_path)
        file.parent.mkdir(parents=True)
        file.write_bytes(b"")

    opened = await open_own_blobs(other, database)
    with pytest.raises(BlobMissingError):
        await opened.get((await list_some_referred(database))[0])


async def test_a_store_of_a_pipecd_without_marks_is_opened_and_gets_one(
    database: Database, make_store: MakeStore, build: MessageBuilder
) -> None:
    config = make_store()
    await seal_log(database, await open_blobs(config), build)
    assert await find_value(database, MARK) == ""
    with pytest.raises(BlobsRefusedError, match="is not where this database has its objects"):
        await open_own_blobs(make_store(), database)

    opened = await open_own_blobs(config, database)

    mark = await find_value(database, MARK)
    assert await find_keys(make_blobs(config), MARKS) == {f"{MARKS}{mark}"}
    for key in await list_some_referred(database):
        await opened.delete(key)
    await open_own_blobs(config, database)


async def test_a_bucket_without_marks_is_known_by_the_first_object_that_is_there(
    database: Database, lab: AwsLab, tmp_path: Path, build: MessageBuilder
) -> None:
    """Without s3:ListBucket it refuses to say that the mark is missing."""
    config = BucketMaker(lab.url, tmp_path).describe()
    await seal_log(database, await open_blobs(config), build)
    [key] = await list_some_referred(database)
    lab.forget()

    await open_own_blobs(config, database)

    assert lab.calls("S3:HEAD")[0]["parameters"]["path"].endswith(key)


async def test_of_servers_that_seal_the_first_logs_at_once_all_use_one_store(
    database: Database, make_store: MakeStore
) -> None:
    shared = make_store()
    same = [await open_own_blobs(shared, database) for _ in range(4)]
    async with asyncio.TaskGroup() as tasks:
        for number, each in enumerate(same):
            tasks.create_task(each.put(f"logs/{number}", b"log"))

    mark = await find_value(database, MARK)
    assert await find_keys(make_blobs(shared)) == {
        f"{MARKS}{mark}",
        *(f"logs/{number}" for number in range(4)),
    }


async def test_of_servers_with_other_stores_one_seals_and_the_others_say_why_not(
    database: Database, make_store: MakeStore, build: MessageBuilder, tmp_path: Path
) -> None:
    configs = [make_store() for _ in range(3)]
    opened = [await open_own_blobs(each, database) for each in configs]

    results = await asyncio.gather(
        *(each.put("logs/a", b"log") for each in opened), return_exceptions=True
    )

    wrong = [each for each, result in zip(opened, results, strict=True) if result is not None]
    assert len(wrong) == 2
    for each in wrong:
        assert await find_keys(each) == set()
        kept = stores(database, lambda: NOW, blobs=each)
        assert "is not the blob store of this database" in await Probes(kept, tmp_path).readiness()
        with pytest.raises(UnavailableError):
            await each.get("logs/a")
    await append_log(kept, build)
    with pytest.raises(UnavailableError, match="is not the blob store of this database"):
        await seal_logs(kept, wrong[0])
    assert await read_log(database, wrong[0]) == 100_000, "it is still in the database"


async def test_a_share_that_goes_away_shows_neither_missing_logs_nor_takes_new_ones(
    database: Database, tmp_path: Path, build: MessageBuilder
) -> None:
    """Also where its place was used once, and has all that is needed to write."""
    share = tmp_path / "share"
    blobs = await open_own_blobs(BlobFolder(folder=share), database)
    kept = await seal_log(database, blobs, build)
    [key] = await list_some_referred(database)
    share.rename(tmp_path / "mounted-elsewhere")
    await FolderBlobs(share).open()
    assert (share / INCOMING).is_dir()

    with pytest.raises(BlobsUnavailableError, match="is not the blob store of this database"):
        await blobs.get(key)
    with pytest.raises(BlobsUnavailableError, match="it lacks the mark") as caught:
        await blobs.put("logs/b", b"log")
    assert "mount its share" in caught.value.hint
    assert "mount its share" in await Probes(kept, tmp_path).readiness()
    with pytest.raises(BlobsRefusedError, match="lacks their mark"):
        await open_own_blobs(BlobFolder(folder=share), database)
    assert [each.name for each in share.iterdir()] == [INCOMING]

    (share / INCOMING).rmdir()
    share.rmdir()
    (tmp_path / "mounted-elsewhere").rename(share)
    assert await Probes(kept, tmp_path).readiness() == ""
    assert await blobs.get(key)


async def test_a_folder_used_before_its_share_was_mounted_counts_only_while_it_has_the_objects(
    database: Database, tmp_path: Path, build: MessageBuilder
) -> None:
    share = BlobFolder(folder=tmp_path / "share")
    await open_own_blobs(share, database)  # not mounted yet
    share.folder.rename(tmp_path / "beneath")

    await seal_log(database, await open_own_blobs(share, database), build)

    share.folder.rename(tmp_path / "mounted-elsewhere")
    (tmp_path / "beneath").rename(share.folder)
    with pytest.raises(BlobsRefusedError, match="lacks their mark"):
        await open_own_blobs(share, database)


async def test_a_bucket_that_is_to_be_made_is_not_made_in_place_of_the_right_one(
    database: Database, lab: AwsLab, tmp_path: Path, build: MessageBuilder
) -> None:
    buckets = BucketMaker(lab.url, tmp_path)
    await seal_log(database, await open_own_blobs(buckets.describe(), database), build)

    for _ in range(2):
        with pytest.raises(BlobsRefusedError, match="lacks their mark"):
            await open_own_blobs(buckets.describe(bucket="wrong"), database)
    with pytest.raises(BlobsRefusedError, match="there is no bucket 'wrong'"):
        await open_own_blobs(buckets.describe(bucket="wrong", create_bucket=False), database)
