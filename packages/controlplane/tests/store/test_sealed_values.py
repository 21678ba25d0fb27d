# SPDX-License-Identifier: Apache-2.0
"""Large values: in the blob store in place of a row, and no reader notices; nothing is lost."""

import asyncio
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import func, select, update
from sqlalchemy.dialects.sqlite.base import SQLiteDialect

from pipecd_controlplane.ops.objects import list_object_jobs, remove_orphans, seal_values
from pipecd_controlplane.ops.retention import DAY, Retention, purge
from pipecd_controlplane.store import schema
from pipecd_controlplane.store.blobs import blob_store
from pipecd_controlplane.store.blobs.blob_store import (
    BlobRef,
    BlobsRefusedError,
    BlobsUnavailableError,
    get_checked,
)
from pipecd_controlplane.store.blobs.folder import FolderBlobs
from pipecd_controlplane.store.blobs.mark import make_mark
from pipecd_controlplane.store.database import Database, Transaction, View
from pipecd_controlplane.store.open import DatabaseConfig, SqliteFolder, open_database
from pipecd_controlplane.store.own_blobs import open_own_blobs
from pipecd_controlplane.store.sealed_values import LostValueError
from pipecd_controlplane.store.sqlite.file import DATABASE_FILE
from pipecd_controlplane.store.stores import Stores, stores
from pipecd_controlplane.store.value_sealing import (
    KIND,
    REST_SECONDS,
    TABLES,
    ValueSealing,
    ValueTable,
)
from pipecd_controlplane.usecases import live_state
from pipecd_controlplane.usecases.ownership import Agent
from pipecd_model.errors import LostDataError, PipecdError, StateError
from pipecd_test_support.aws.lab import AwsLab, run_aws_lab
from pipecd_test_support.buckets import BucketMaker
from pipecd_test_support.controlplane_messages import MessageBuilder
from pipecd_wire.model.application_live_state_pb2 import (
    ApplicationLiveStateSnapshot as Snapshot,
)
from pipecd_wire.model.application_live_state_pb2 import (
    KubernetesResourceState,
    KubernetesResourceStateEvent,
)

NOW = MessageBuilder.NOON + 60
LARGE = bytes(range(256)) * 1024
SMALL = LARGE[1:]
AGENT = Agent(project_id="ours", piped_id="piped")


class Clock:
    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> int:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def blobs(tmp_path: Path) -> FolderBlobs:
    opened = FolderBlobs(tmp_path / "blobs")
    await opened.open()
    return opened


@pytest.fixture
def kept(database: Database, blobs: FolderBlobs, clock: Clock) -> Stores:
    return stores(database, clock, blobs=blobs)


async def put(kept: Stores, data: bytes, key: str = "key") -> None:
    await kept.shared_objects.put("ours", "app", "plugin", key, data)


async def find(kept: Stores, key: str = "key") -> bytes | None:
    return await kept.shared_objects.find("ours", "app", "plugin", key)


def make_snapshot(*names: str, timestamp: int = 10) -> Snapshot:
    """A live state of version 0 that is large."""
    snapshot = Snapshot(application_id="app", project_id="ours", piped_id="piped")
    snapshot.version.timestamp = timestamp
    for name in names:
        snapshot.kubernetes.resources.add(id=name, name=name * 300_000)
    return snapshot


def make_event(application_id: str) -> KubernetesResourceStateEvent:
    """Its id is that of the application."""
    event = KubernetesResourceStateEvent(
        id=application_id, application_id=application_id, state=KubernetesResourceState(id="new")
    )
    event.snapshot_version.timestamp = 10
    return event


async def add_live_states(
    kept: Stores, clock: Clock, build: MessageBuilder, **sizes: int
) -> list[KubernetesResourceStateEvent]:
    """Some that are at rest, by their applications; returns a change of each."""
    for application_id, size in sizes.items():
        await kept.applications.add(build.application(id=application_id))
        snapshot = make_snapshot("a")
        snapshot.application_id = application_id
        snapshot.kubernetes.resources[0].name = "a" * size
        await report(kept, clock, snapshot)
    clock.now += REST_SECONDS
    return [make_event(each) for each in sizes]


async def report(kept: Stores, clock: Clock, snapshot: Snapshot) -> None:
    await live_state.report(kept, AGENT, snapshot, clock)


async def patch(kept: Stores, name: str, timestamp: int = 10) -> list[str]:
    event = KubernetesResourceStateEvent(
        id="event", application_id="app", state=KubernetesResourceState(id=name)
    )
    event.snapshot_version.timestamp = timestamp
    return await live_state.patch(kept, AGENT, [event])


async def list_resources(kept: Stores, application_id: str = "app") -> list[str]:
    found = await live_state.read_snapshot(kept, "ours", application_id)
    return [each.id for each in found.kubernetes.resources]


async def add_live_state(kept: Stores, clock: Clock, build: MessageBuilder) -> None:
    """One that is at rest."""
    await kept.applications.add(build.application())
    await report(kept, clock, make_snapshot("a"))
    clock.now += REST_SECONDS


async def list_keys(blobs: FolderBlobs) -> list[str]:
    return sorted([each.key async for each in blobs.iterate()])


async def measure(database: Database) -> int:
    """Returns the bytes of the values in all rows."""

    async def work(view: View) -> int:
        total = 0
        for table in (schema.live_state, schema.shared_object):
            row = await view.one(select(func.sum(func.length(table.c.data))))
            total += row[0] or 0 if row else 0
        return total

    return await database.read(work)


async def test_large_values_become_objects_and_read_as_before(
    kept: Stores, blobs: FolderBlobs, database: Database, clock: Clock, build: MessageBuilder
) -> None:
    await put(kept, LARGE)
    await put(kept, SMALL, "small")
    await add_live_state(kept, clock, build)
    before = await kept.live_states.find("ours", "app")

    assert await seal_values(kept, blobs) == 2

    assert await measure(database) == len(SMALL) + 2 * 32
    assert (await find(kept), await find(kept, "small")) == (LARGE, SMALL)
    assert await kept.live_states.find("ours", "app") == before
    assert await find(kept, "other") is None
    assert await kept.shared_objects.find("theirs", "app", "plugin", "key") is None
    assert await kept.live_states.find("theirs", "app") is None
    assert await seal_values(kept, blobs) == 0
    assert all(each.startswith(f"{KIND}/") for each in await list_keys(blobs))


async def test_more_values_than_one_listing_has_are_sealed(
    kept: Stores, blobs: FolderBlobs
) -> None:
    for number in range(102):
        await put(kept, LARGE, f"key {number}")

    assert await seal_values(kept, blobs) == 102


async def test_a_live_state_that_changes_all_the_time_is_never_an_object(
    kept: Stores, blobs: FolderBlobs, clock: Clock, build: MessageBuilder
) -> None:
    await kept.applications.add(build.application())
    for second in range(3):
        clock.now += REST_SECONDS - 1
        await report(kept, clock, make_snapshot("a", timestamp=second))
        assert await seal_values(kept, blobs) == 0

    assert await list_keys(blobs) == []
    assert REST_SECONDS > live_state.LATE_SECONDS


async def test_a_value_that_is_replaced_is_in_its_row_and_its_object_goes_with_the_orphans(
    kept: Stores, blobs: FolderBlobs, clock: Clock, build: MessageBuilder
) -> None:
    """A backup whose rows still refer to the object finds it meanwhile."""
    await put(kept, LARGE)
    await put(kept, LARGE, "stays")
    await add_live_state(kept, clock, build)
    assert await seal_values(kept, blobs) == 3

    await put(kept, b"new")
    await report(
        kept, clock, make_snapshot("b", timestamp=5)
    )  # older, but the other one is long ago

    assert await find(kept) == b"new"
    assert await list_resources(kept) == ["b"]
    assert len(await list_keys(blobs)) == 3
    assert await remove_orphans(kept, blobs, lambda: NOW) == 0
    assert await remove_orphans(kept, blobs, lambda: 2**40) == 2
    assert await remove_orphans(kept, blobs, lambda: 2**40) == 0
    assert await find(kept, "stays") == LARGE


async def test_the_objects_of_a_deleted_application_go_with_the_orphans(
    kept: Stores, blobs: FolderBlobs, clock: Clock, build: MessageBuilder
) -> None:
    await add_live_state(kept, clock, build)
    await put(kept, LARGE)
    await seal_values(kept, blobs)

    def delete(application: object) -> None:
        application.deleted = True  # type: ignore[attr-defined] # an Application

    await kept.applications.update("ours", "app", delete)
    await purge(kept, Retention(), lambda: NOW + 800 * DAY)

    assert await find(kept) is None
    assert await remove_orphans(kept, blobs, lambda: 2**40) == 2


async def test_changes_of_a_sealed_live_state_are_made_to_it(
    kept: Stores, blobs: FolderBlobs, clock: Clock, build: MessageBuilder
) -> None:
    await add_live_state(kept, clock, build)
    await seal_values(kept, blobs)

    assert await patch(kept, "b") == []

    assert await list_resources(kept) == ["a", "b"]
    assert await seal_values(kept, blobs) == 0, "it has just changed"
    clock.now += REST_SECONDS
    assert await seal_values(kept, blobs) == 1
    assert await list_resources(kept) == ["a", "b"]


async def test_changes_of_a_lost_live_state_are_refused_until_the_next_one_replaces_it(
    kept: Stores, blobs: FolderBlobs, clock: Clock, build: MessageBuilder
) -> None:
    await add_live_state(kept, clock, build)
    await seal_values(kept, blobs)
    [key] = await list_keys(blobs)
    await blobs.delete(key)

    assert await patch(kept, "b") == ["event"]
    with pytest.raises(LostValueError):
        await list_resources(kept)
    await report(kept, clock, make_snapshot("c", timestamp=5))

    assert await list_resources(kept) == ["c"]


@pytest.mark.parametrize("damage", [None, b"", b"short", bytes(len(LARGE)), LARGE + b"more"])
async def test_a_missing_or_damaged_object_is_said_and_never_shown_as_empty(
    kept: Stores,
    blobs: FolderBlobs,
    damage: bytes | None,
    caplog: pytest.LogCaptureFixture,
) -> None:
    await put(kept, LARGE)
    await seal_values(kept, blobs)
    [key] = await list_keys(blobs)
    if damage is None:
        await blobs.delete(key)
    else:
        await blobs.put(key, damage, replace=True)
    if damage == LARGE + b"more":
        assert await find(kept) == LARGE, "what was written is there"
        return

    with pytest.raises(LostValueError) as caught:
        await find(kept)

    assert caught.value.status == LostDataError.status == "DATA_LOSS"
    assert "the shared object 'key' of the plugin 'plugin' for 'app' is lost: " in str(caught.value)
    assert key in str(caught.value)
    [line] = caplog.records
    assert line.message == "value.lost"


class HookedBlobs(FolderBlobs):
    """Something else happens once an object is written, or before it is read."""

    async def hook(self) -> None:
        raise NotImplementedError

    async def put(self, key: str, data: bytes, *, replace: bool = False) -> None:
        await super().put(key, data, replace=replace)
        await self.hook()

    async def get_range(self, key: str, start: int, length: int) -> bytes:
        await self.hook()
        return await super().get_range(key, start, length)


@pytest.mark.parametrize("refusal", [BlobsUnavailableError, BlobsRefusedError])
async def test_a_store_that_is_away_is_asked_once_and_keeps_no_other_change_from_its_place(
    kept: Stores,
    blobs: FolderBlobs,
    database: Database,
    clock: Clock,
    build: MessageBuilder,
    tmp_path: Path,
    refusal: type[PipecdError],
) -> None:
    class AwayBlobs(HookedBlobs):
        count = 0

        async def hook(self) -> None:
            self.count += 1
            raise refusal("not now")

    events = await add_live_states(kept, clock, build, a=300_000, b=3, c=300_000, d=3)
    assert await seal_values(kept, blobs) == 2
    away = AwayBlobs(tmp_path / "blobs")

    failed = await live_state.patch(stores(database, clock, blobs=away), AGENT, events)

    assert sorted(failed) == ["a", "c"]
    assert away.count == 1
    for application_id, resources in (("a", ["a"]), ("b", ["a", "new"]), ("d", ["a", "new"])):
        assert await list_resources(kept, application_id) == resources
    assert await live_state.patch(kept, AGENT, events) == []


async def test_a_live_state_that_is_sealed_while_another_is_read_refuses_its_own_changes_alone(
    kept: Stores,
    blobs: FolderBlobs,
    database: Database,
    clock: Clock,
    build: MessageBuilder,
    tmp_path: Path,
) -> None:
    """It was found in its row, and is at rest for long enough a moment later."""

    class SealingBlobs(HookedBlobs):
        async def hook(self) -> None:
            assert await seal_values(kept, blobs) == 1

    [first] = await add_live_states(kept, clock, build, first=300_000)
    assert await seal_values(kept, blobs) == 1
    [second] = await add_live_states(kept, clock, build, second=300_000)
    sealing = stores(database, clock, blobs=SealingBlobs(tmp_path / "blobs"))

    assert await live_state.patch(sealing, AGENT, [second, first]) == ["second"]

    assert await list_resources(kept, "first") == ["a", "new"]
    assert await list_resources(kept, "second") == ["a"]


async def test_a_value_that_is_replaced_while_it_is_sealed_is_the_new_one(
    kept: Stores, blobs: FolderBlobs, clock: Clock, build: MessageBuilder, tmp_path: Path
) -> None:
    class ReplacingBlobs(HookedBlobs):
        count = 0

        async def hook(self) -> None:
            self.count += 1
            await put(kept, LARGE + b"new" * self.count)
            await report(kept, clock, make_snapshot("b"))

    await put(kept, LARGE)
    await add_live_state(kept, clock, build)

    assert await seal_values(kept, ReplacingBlobs(tmp_path / "blobs")) == 0

    assert await find(kept) == LARGE + b"newnew"
    assert await list_resources(kept) == ["b"]
    assert await list_keys(blobs) == []


async def test_of_two_servers_that_seal_one_value_one_does(
    kept: Stores, blobs: FolderBlobs, database: Database, tmp_path: Path
) -> None:
    class SecondBlobs(HookedBlobs):
        async def hook(self) -> None:
            assert await seal_values(kept, blobs) == 1

    await put(kept, LARGE)

    assert await seal_values(kept, SecondBlobs(tmp_path / "blobs")) == 0

    assert len(await list_keys(blobs)) == 1
    assert await find(kept) == LARGE


@pytest.mark.parametrize("replacement", [b"new", LARGE + b"new", None])
async def test_a_value_that_is_replaced_while_it_is_read_is_the_new_one(
    kept: Stores,
    blobs: FolderBlobs,
    database: Database,
    clock: Clock,
    tmp_path: Path,
    replacement: bytes | None,
) -> None:
    """Also when its object is gone at once, and the new one is sealed or purged."""

    class ReplacingBlobs(HookedBlobs):
        once = False

        async def hook(self) -> None:
            if self.once:
                return
            self.once = True
            old = await list_keys(blobs)
            if replacement is None:
                await database.write(lambda view: view.run(schema.shared_object.delete()))
            else:
                await put(kept, replacement)
            await seal_values(kept, blobs)
            for key in old:
                await blobs.delete(key)

    await put(kept, LARGE)
    await seal_values(kept, blobs)
    reading = stores(database, clock, blobs=ReplacingBlobs(tmp_path / "blobs"))

    assert await find(reading) == replacement


async def test_a_sealing_that_was_killed_leaves_the_value_and_an_orphan(
    kept: Stores, blobs: FolderBlobs, tmp_path: Path
) -> None:
    class KilledError(BaseException):
        pass

    class KilledBlobs(HookedBlobs):
        async def hook(self) -> None:
            raise KilledError

    await put(kept, LARGE)
    with pytest.raises(KilledError):
        await seal_values(kept, KilledBlobs(tmp_path / "blobs"))

    assert await find(kept) == LARGE
    assert await seal_values(kept, blobs) == 1
    assert len(await list_keys(blobs)) == 2
    assert await remove_orphans(kept, blobs, lambda: 2**40) == 1
    assert await find(kept) == LARGE


async def test_what_a_pipecd_writes_that_knows_no_objects_counts(
    kept: Stores, blobs: FolderBlobs, database: Database, clock: Clock, build: MessageBuilder
) -> None:
    """Servers of both versions may run beside each other for a while."""
    await put(kept, LARGE)
    await add_live_state(kept, clock, build)
    await seal_values(kept, blobs)

    async def work(transaction: Transaction) -> None:
        older = make_snapshot("older").SerializeToString()
        await transaction.run(update(schema.live_state).values(data=older))
        await transaction.run(update(schema.shared_object).values(data=b""))

    await database.write(work)

    assert await find(kept) == b""
    assert await list_resources(kept) == ["older"]
    assert await patch(kept, "b") == []
    assert await list_resources(kept) == ["older", "b"]


async def test_a_store_that_does_not_answer_keeps_values_where_they_are(
    kept: Stores, blobs: FolderBlobs, tmp_path: Path
) -> None:
    await put(kept, LARGE, "sealed")
    await seal_values(kept, blobs)
    (tmp_path / "blobs").rename(tmp_path / "away")

    await put(kept, LARGE)
    with pytest.raises(BlobsUnavailableError):
        await seal_values(kept, blobs)

    assert await find(kept) == LARGE
    with pytest.raises(BlobsUnavailableError):
        await find(kept, "sealed")
    (tmp_path / "away").rename(tmp_path / "blobs")
    assert await seal_values(kept, blobs) == 1
    assert await find(kept) == await find(kept, "sealed") == LARGE


async def test_a_silent_store_is_said_before_callers_give_up(
    kept: Stores,
    blobs: FolderBlobs,
    database: Database,
    clock: Clock,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    class SilentBlobs(HookedBlobs):
        async def hook(self) -> None:
            await asyncio.Event().wait()

    await put(kept, LARGE)
    await seal_values(kept, blobs)
    silent = stores(database, clock, blobs=SilentBlobs(tmp_path / "blobs"))
    monkeypatch.setattr(blob_store, "FETCH_SECONDS", 0.01)

    with pytest.raises(BlobsUnavailableError, match=r"the folder '.*' does not answer within"):
        await find(silent)


async def test_programs_without_a_blob_store_say_so(
    kept: Stores, blobs: FolderBlobs, database: Database, clock: Clock
) -> None:
    await put(kept, LARGE)
    await seal_values(kept, blobs)

    with pytest.raises(StateError, match="has no blob store"):
        await find(stores(database, clock))


def test_servers_without_a_store_that_all_share_seal_nothing(kept: Stores, clock: Clock) -> None:
    def list_names(*, seals: bool) -> list[str]:
        return [job.name for job in list_object_jobs(kept, clock, seals=seals)]

    assert list_names(seals=False) == ["orphan-objects"]
    assert list_names(seals=True) == ["seal-logs", "seal-values", "orphan-objects"]


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AwsLab]:
    with run_aws_lab(tmp_path_factory.mktemp("s3")) as lab:
        yield lab


@pytest.fixture
def buckets(lab: AwsLab, tmp_path: Path) -> BucketMaker:
    return BucketMaker(lab.url, tmp_path)


async def test_values_go_into_a_bucket_and_are_read_by_the_next_server(
    store_config: DatabaseConfig, clock: Clock, build: MessageBuilder, buckets: BucketMaker
) -> None:
    config = buckets.describe()
    async with open_database(store_config, on_commit=lambda _changes: None) as database:
        bucket = await open_own_blobs(config, database)
        kept = stores(database, clock, blobs=bucket)
        await put(kept, LARGE)
        await put(kept, LARGE, "gone")
        await add_live_state(kept, clock, build)
        assert await seal_values(kept, bucket) == 3
        await put(kept, b"new", "gone")

    async with open_database(store_config, on_commit=lambda _changes: None) as database:
        bucket = await open_own_blobs(config, database)
        kept = stores(database, clock, blobs=bucket)
        assert (await find(kept), await find(kept, "gone")) == (LARGE, b"new")
        assert await list_resources(kept) == ["a"]
        assert await remove_orphans(kept, bucket, lambda: 2**40) == 1
        for entry in [each async for each in bucket.iterate()]:
            await bucket.delete(entry.key)
        with pytest.raises(LostValueError, match="is missing in the bucket"):
            await find(kept)


async def test_a_value_is_sealed_by_a_second_try_where_the_first_was_done_and_not_answered(
    database: Database, clock: Clock, lab: AwsLab, buckets: BucketMaker
) -> None:
    bucket = await open_own_blobs(buckets.describe(), database)
    await bucket.claim(make_mark())
    kept = stores(database, clock, blobs=bucket)
    await put(kept, LARGE)
    lab.break_next("S3:PUT", "lost")

    assert await seal_values(kept, bucket) == 1

    assert await find(kept) == LARGE
    assert len([each async for each in bucket.iterate()]) == 1


@pytest.mark.sqlite
@pytest.mark.parametrize("table", TABLES, ids=lambda table: "_".join(table.names))
async def test_no_search_reads_all_rows(tmp_path: Path, table: ValueTable) -> None:
    """Large values are read from the disk by nobody who looks for some."""
    async with open_database(SqliteFolder(folder=tmp_path), on_commit=lambda _changes: None):
        pass
    with closing(sqlite3.connect(tmp_path / DATABASE_FILE)) as connection:
        for statement, index in (
            (table.list_due, "_to_seal"),
            (table.find_referring, "_by_object"),
        ):
            text = str(statement.compile(dialect=SQLiteDialect(paramstyle="qmark")))
            plan = connection.execute(f"EXPLAIN QUERY PLAN {text}", ("",) * text.count("?"))
            [(step,)] = [row[3:] for row in plan.fetchall()]
            assert step.startswith("SEARCH")
            assert index in step


async def test_the_row_has_the_checksum_of_its_object(
    kept: Stores, blobs: FolderBlobs, database: Database
) -> None:
    """By it `pipecd move` and a backup know whether they have it."""
    await put(kept, LARGE)
    due = [each async for each in ValueSealing(database, lambda: NOW).iterate_due()]
    assert [await kept.value_sealing.seal(blobs, each) for each in due] == [True]

    async def work(view: View) -> BlobRef:
        c = schema.shared_object.c
        row = await view.one(select(c.object_key, c.size, c.sha256))
        assert row is not None
        return BlobRef(key=row[0], size=row[1], sha256=row[2])

    assert await get_checked(blobs, await database.read(work)) == LARGE
