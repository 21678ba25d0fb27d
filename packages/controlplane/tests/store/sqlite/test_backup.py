# SPDX-License-Identifier: Apache-2.0
"""A backup is of one moment, taken beside a server that goes on; a restored folder serves it."""

import asyncio
import hashlib
import io
import json
import sqlite3
import tarfile
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from pipecd_controlplane.cli import cli
from pipecd_controlplane.ops.objects import remove_orphans, seal_logs, seal_values
from pipecd_controlplane.store import schema
from pipecd_controlplane.store.blobs.config import BlobFolder, S3Bucket
from pipecd_controlplane.store.blobs.folder import FolderBlobs
from pipecd_controlplane.store.kept_objects import keeps_objects
from pipecd_controlplane.store.log_sealing import KIND, DueLog
from pipecd_controlplane.store.open import SqliteFolder, backup_database
from pipecd_controlplane.store.own_blobs import open_own_blobs
from pipecd_controlplane.store.sealed_logs import list_some_referred
from pipecd_controlplane.store.spaces import find_space
from pipecd_controlplane.store.sqlite import backup as sqlite_backup
from pipecd_controlplane.store.sqlite.backup import MANIFEST, backup, restore
from pipecd_controlplane.store.sqlite.backup_objects import PackedObjects, pack_objects
from pipecd_controlplane.store.sqlite.database import open_sqlite
from pipecd_controlplane.store.sqlite.file import DATABASE_FILE
from pipecd_controlplane.store.stage_logs import LogKey
from pipecd_controlplane.store.stores import stores
from pipecd_model.errors import PipecdError
from pipecd_test_support.controlplane_messages import MessageBuilder
from pipecd_test_support.controlplane_server import Serve
from pipecd_test_support.served_settings import serving_with
from pipecd_test_support.waiting import Soon
from pipecd_wire.apiservice import service_pb2 as apiservice
from pipecd_wire.rpc import call

pytestmark = pytest.mark.sqlite


def refusal(work: Any, *arguments: Any, **named: Any) -> str:
    with pytest.raises(PipecdError) as caught:
        work(*arguments, **named)
    return str(caught.value)


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


async def test_a_backup_of_a_server_that_writes_is_whole_and_of_one_moment(
    tmp_path: Path, build: MessageBuilder, soon: Soon
) -> None:
    """Each transaction adds a deployment and its log: a copy has both of each, or neither."""
    archive = tmp_path / "copy.tar"
    async with open_sqlite(tmp_path / "data", on_commit=lambda _changes: None) as database:
        kept = stores(database, lambda: build.NOON)
        begun, stop = asyncio.Event(), asyncio.Event()

        async def write() -> int:
            number = 0
            while not stop.is_set():
                number += 1
                if number > 5:
                    begun.set()
                await kept.deployments.add(
                    build.deployment(id=f"d{number}", labels={"number": str(number)})
                )
            return number

        async with asyncio.TaskGroup() as tasks:
            writing = tasks.create_task(write())
            await soon(begun.wait())
            made = await asyncio.to_thread(backup, tmp_path / "data", archive, now=build.NOON)
            stop.set()
        assert writing.result() > 0

    assert restore(archive, tmp_path / "restored") == made
    with closing(sqlite3.connect(tmp_path / "restored" / DATABASE_FILE)) as copy:
        counts = [
            copy.execute(f"SELECT count(*) FROM {table}").fetchone()[0]  # noqa: S608 - ours
            for table in ("deployment", "deployment_label")
        ]
    assert counts[0] == counts[1] > 0


async def test_a_restored_folder_serves_what_was_there(
    serve: Serve, tmp_path: Path, soon: Soon
) -> None:
    async with serve(tmp_path / "data") as plane:
        agent = await plane.agent()
        application_id = await plane.application(agent)
        audited = await plane.stores.audit.list_heads()
        await asyncio.to_thread(backup, tmp_path / "data", tmp_path / "copy.tar", now=5)
        later = await plane.application(agent, name="later")

    restore(tmp_path / "copy.tar", tmp_path / "restored")

    async with serve(tmp_path / "restored") as plane:
        assert audited["default"].sequence
        assert await plane.stores.audit.list_heads() == audited
        listed = await call(plane.admin.api.ListApplications, apiservice.ListApplicationsRequest())
        assert [each.id for each in listed.applications] == [application_id]
        assert application_id != later
        again = await plane.agent_with("default", agent.id, agent.key)
        assert await plane.deployment(again, application_id)


async def test_only_its_owner_can_read_a_backup(tmp_path: Path) -> None:
    async with open_sqlite(tmp_path / "data", on_commit=lambda _changes: None):
        backup(tmp_path / "data", tmp_path / "copy.tar", now=5)
    restore(tmp_path / "copy.tar", tmp_path / "restored")

    kept = [tmp_path / "copy.tar", *(tmp_path / "restored").iterdir()]
    assert {path.stat().st_mode & 0o077 for path in kept} == {0}
    assert names(tmp_path) == {"copy.tar", "data", "restored"}


async def test_nothing_that_exists_is_overwritten(tmp_path: Path) -> None:
    async with open_sqlite(tmp_path / "data", on_commit=lambda _changes: None):
        backup(tmp_path / "data", tmp_path / "copy.tar", now=5)
        content = (tmp_path / "copy.tar").read_bytes()

        assert "exists already" in refusal(backup, tmp_path / "data", tmp_path / "copy.tar", now=6)
        assert "is in use" in refusal(restore, tmp_path / "copy.tar", tmp_path / "data")
    assert "holds a database already" in refusal(restore, tmp_path / "copy.tar", tmp_path / "data")
    assert (tmp_path / "copy.tar").read_bytes() == content


async def test_a_damaged_or_foreign_archive_is_refused_and_leaves_no_database(
    tmp_path: Path,
) -> None:
    async with open_sqlite(tmp_path / "data", on_commit=lambda _changes: None):
        backup(tmp_path / "data", tmp_path / "copy.tar", now=5)
    content = bytearray((tmp_path / "copy.tar").read_bytes())
    place = content.index(b"SQLite format 3") + 5000
    content[place : place + 4] = b"\xff\xff\xff\xff"
    (tmp_path / "damaged.tar").write_bytes(content)
    (tmp_path / "cut.tar").write_bytes(content[:3000])
    (tmp_path / "text.tar").write_text("not an archive")
    with tarfile.open(tmp_path / "other.tar", "w") as other:
        other.add(tmp_path / "text.tar", MANIFEST)

    for name in ("damaged.tar", "cut.tar", "text.tar", "other.tar", "missing.tar"):
        assert refusal(restore, tmp_path / name, tmp_path / "restored")
        assert not (tmp_path / "restored" / DATABASE_FILE).exists()


def repacked(archive: Path, target: Path, **changed: bytes) -> Path:
    """The same archive with other content in some of its files; a name is that before its dot."""
    with tarfile.open(archive) as old, tarfile.open(target, "w") as new:
        for member in old:
            content = old.extractfile(member)
            assert content is not None
            data = changed.get(member.name.partition(".")[0], content.read())
            member.size = len(data)
            new.addfile(member, io.BytesIO(data))
    return target


@pytest.mark.parametrize("manifest", [b"[]", b"null", b"{}", b"[" * 50_000, b"7", b"\xff"])
async def test_a_manifest_that_is_none_is_refused_with_a_sentence(
    tmp_path: Path, manifest: bytes
) -> None:
    async with open_sqlite(tmp_path / "data", on_commit=lambda _changes: None):
        backup(tmp_path / "data", tmp_path / "copy.tar", now=5)
    odd = repacked(tmp_path / "copy.tar", tmp_path / "odd.tar", manifest=manifest)

    assert "is no backup of ours" in refusal(restore, odd, tmp_path / "restored")


async def test_a_small_archive_does_not_fill_the_disk(tmp_path: Path) -> None:
    """A sparse file of 8 EiB takes one block in an archive."""
    async with open_sqlite(tmp_path / "data", on_commit=lambda _changes: None):
        backup(tmp_path / "data", tmp_path / "copy.tar", now=5)
    content = (tmp_path / "copy.tar").read_bytes()
    start = content.index(DATABASE_FILE.encode() + b"\0")
    head = bytearray(content[start : start + 512])
    head[124:136], head[156] = b"00000000000\0", ord("S")
    head[483:495] = b"\x80" + (2**63 - 1).to_bytes(11, "big")
    head[148:156] = b" " * 8
    head[148:156] = b"%06o\0 " % sum(head)
    (tmp_path / "bomb.tar").write_bytes(content[:start] + bytes(head) + bytes(1024))

    assert "is no backup of ours" in refusal(restore, tmp_path / "bomb.tar", tmp_path / "restored")


async def test_a_key_without_end_is_refused(tmp_path: Path) -> None:
    async with open_sqlite(tmp_path / "data", on_commit=lambda _changes: None):
        (tmp_path / "data" / "admin.key").write_text("key")
        backup(tmp_path / "data", tmp_path / "copy.tar", now=5)
    large = repacked(tmp_path / "copy.tar", tmp_path / "large.tar", admin=bytes(100_000))

    assert "is no backup of ours" in refusal(restore, large, tmp_path / "restored")


async def test_what_another_database_left_behind_is_not_applied_to_a_restored_one(
    tmp_path: Path,
) -> None:
    """Its owner has moved the database away, but not the file with its last writes."""
    async with open_sqlite(tmp_path / "data", on_commit=lambda _changes: None):
        backup(tmp_path / "data", tmp_path / "copy.tar", now=5)
    left = tmp_path / "restored" / f"{DATABASE_FILE}-wal"
    left.parent.mkdir(mode=0o700)
    left.write_bytes(b"the last writes")

    assert repr(left.name) in refusal(restore, tmp_path / "copy.tar", left.parent)
    assert names(left.parent) == {left.name, "lock"}
    with pytest.raises(PipecdError, match="the last writes of a database are in"):
        async with open_sqlite(left.parent, on_commit=lambda _changes: None):
            pass
    assert left.read_bytes() == b"the last writes"


async def test_a_backup_of_a_newer_pipecd_is_refused(tmp_path: Path) -> None:
    async with open_sqlite(tmp_path / "data", on_commit=lambda _changes: None):
        pass
    with closing(sqlite3.connect(tmp_path / "data" / DATABASE_FILE)) as newer:
        newer.execute(f"PRAGMA user_version = {schema.SCHEMA_VERSION + 1}")
    backup(tmp_path / "data", tmp_path / "copy.tar", now=5)

    said = refusal(restore, tmp_path / "copy.tar", tmp_path / "restored")

    assert f"has schema {schema.SCHEMA_VERSION + 1}" in said
    assert not (tmp_path / "restored" / DATABASE_FILE).exists()


async def test_both_are_commands_of_pipecd(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with open_sqlite(tmp_path / "data", on_commit=lambda _changes: None):
        pass
    out = str(tmp_path / "copy.tar")
    folder = str(tmp_path / "data")
    cli.main(["backup", "--data-dir", folder, "--output", out], standalone_mode=False)
    cli.main(
        ["restore", "--input", out, "--data-dir", str(tmp_path / "restored")],
        standalone_mode=False,
    )

    said = capsys.readouterr().out
    assert f"wrote {out}" in said
    assert "restored" in said
    assert (tmp_path / "restored" / DATABASE_FILE).exists()


ACTING = {
    "a trigger": "CREATE TRIGGER t AFTER INSERT ON project BEGIN DELETE FROM project; END",
    "a trigger that waits": "CREATE TRIGGER t BEFORE UPDATE ON session BEGIN SELECT 1; END",
    "a view": "CREATE VIEW v AS SELECT * FROM session",
    "a virtual table": "CREATE VIRTUAL TABLE f USING fts5(text)",
    "a check": "CREATE TABLE t (a TEXT CHECK (length(a) > 0))",
    "a generated column": "CREATE TABLE t (a TEXT, b TEXT GENERATED ALWAYS AS (upper(a)) STORED)",
    "a short generated column": "CREATE TABLE t (a TEXT, b TEXT AS (upper(a)))",
    "a default that computes": "CREATE TABLE t (a TEXT DEFAULT (randomblob(1000000)))",
    "an index of an expression": "CREATE INDEX i ON project (upper(id))",
    "a condition of its own": "CREATE INDEX i ON project (id) WHERE length(id) > 3",
    "a foreign key": "CREATE TABLE t (a TEXT REFERENCES project (id) ON DELETE CASCADE)",
}


@pytest.mark.parametrize("statement", ACTING.values(), ids=ACTING.keys())
async def test_a_backup_that_brings_code_is_refused(tmp_path: Path, statement: str) -> None:
    """SQLite would run it with the server's rights, at one of its next writes."""
    async with open_sqlite(tmp_path / "data", on_commit=lambda _changes: None):
        backup(tmp_path / "data", tmp_path / "copy.tar", now=5)
    hostile(tmp_path / "copy.tar", tmp_path / "hostile.tar", statement)

    said = refusal(restore, tmp_path / "hostile.tar", tmp_path / "restored")

    assert "pipecd makes nothing of that kind" in said
    assert not (tmp_path / "restored" / DATABASE_FILE).exists()


@pytest.mark.parametrize("statement", ACTING.values(), ids=ACTING.keys())
async def test_a_server_does_not_open_a_file_with_code(tmp_path: Path, statement: str) -> None:
    async with open_sqlite(tmp_path, on_commit=lambda _changes: None):
        pass
    with closing(sqlite3.connect(tmp_path / DATABASE_FILE)) as changed:
        changed.execute(statement)
        changed.commit()

    with pytest.raises(PipecdError, match="makes nothing of that kind"):
        async with open_sqlite(tmp_path, on_commit=lambda _changes: None):
            pass


def hostile(archive: Path, target: Path, statement: str) -> None:
    """The same archive, its database changed and its sums made right again."""
    folder = target.with_suffix(".parts")
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")
    with closing(sqlite3.connect(folder / DATABASE_FILE)) as changed:
        changed.execute(statement)
        changed.commit()
    manifest = json.loads((folder / MANIFEST).read_text())
    content = (folder / DATABASE_FILE).read_bytes()
    manifest["sha256"][DATABASE_FILE] = hashlib.sha256(content).hexdigest()
    (folder / MANIFEST).write_text(json.dumps(manifest))
    with tarfile.open(target, "w") as packed:
        for path in sorted(folder.iterdir(), key=lambda path: path.name != MANIFEST):
            packed.add(path, path.name)


async def write_sealed(folder: Path, blobs: FolderBlobs, build: MessageBuilder, count: int) -> None:
    """A folder whose deployments have a sealed log each, and one that is not sealed."""
    await blobs.open()
    async with open_sqlite(folder, on_commit=lambda _changes: None) as database:
        kept = stores(database, lambda: build.NOON, blobs=blobs)
        for number in range(count + 1):
            key = LogKey(deployment_id=f"d{number}", stage_id="s")
            await kept.stage_logs.append("ours", key, build.blocks(number), completed=True)
            if number:
                await kept.log_sealing.seal(blobs, DueLog(project_id="ours", key=key))


async def read_sealed(folder: Path, build: MessageBuilder, count: int) -> list[list[str]]:
    blobs = FolderBlobs(folder / "blobs")
    await blobs.open()
    async with open_sqlite(folder, on_commit=lambda _changes: None) as database:
        kept = stores(database, lambda: build.NOON, blobs=blobs)
        keys = [LogKey(deployment_id=f"d{number}", stage_id="s") for number in range(count + 1)]
        logs = await kept.stage_logs.whole("ours", keys)
    return [[block.log for block in part.blocks] for part in logs.values()]


async def test_a_backup_holds_the_objects_that_its_rows_refer_to(
    tmp_path: Path, build: MessageBuilder
) -> None:
    blobs = FolderBlobs(tmp_path / "elsewhere")
    await write_sealed(tmp_path / "data", blobs, build, 3)
    await blobs.put("stage-logs/orphan", b"nobody refers to it")

    made = backup(tmp_path / "data", tmp_path / "copy.tar", now=5, blobs=tmp_path / "elsewhere")
    assert (made.objects, made.lost) == (3, 0)

    assert restore(tmp_path / "copy.tar", tmp_path / "restored") == made
    assert await read_sealed(tmp_path / "restored", build, 3) == [
        [f"line {number}"] for number in range(4)
    ]
    for path in (tmp_path / "restored" / "blobs").rglob("*"):
        assert path.stat().st_mode & 0o077 == 0
        assert path.name != "orphan"


async def test_large_values_are_in_a_backup_as_they_were_when_its_rows_were_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also those that are replaced while it is made: their objects stay for a day."""
    data, large = tmp_path / "data", bytes(range(256)) * 4096
    blobs = FolderBlobs(data / "blobs")
    await blobs.open()
    async with open_sqlite(data, on_commit=lambda _changes: None) as database:
        kept = stores(database, lambda: 1, blobs=blobs)
        for key in ("stays", "replaced"):
            await kept.shared_objects.put("ours", "app", "plugin", key, large)
        await kept.shared_objects.put("ours", "app", "plugin", "small", b"small")
        assert await seal_values(kept, blobs) == 2

        def replace_and_pack(*arguments: Any) -> PackedObjects:
            asyncio.run_coroutine_threadsafe(
                kept.shared_objects.put("ours", "app", "plugin", "replaced", b"new"), loop
            ).result()
            return pack_objects(*arguments)

        loop = asyncio.get_running_loop()
        monkeypatch.setattr(sqlite_backup, "pack_objects", replace_and_pack)
        made = await asyncio.to_thread(
            backup, data, tmp_path / "copy.tar", now=5, blobs=data / "blobs"
        )
        assert await kept.shared_objects.find("ours", "app", "plugin", "replaced") == b"new"

    assert (made.objects, made.lost) == (2, 0)
    assert restore(tmp_path / "copy.tar", tmp_path / "restored") == made
    restored = FolderBlobs(tmp_path / "restored" / "blobs")
    async with open_sqlite(tmp_path / "restored", on_commit=lambda _changes: None) as database:
        kept = stores(database, lambda: 1, blobs=restored)
        for key, wanted in (("stays", large), ("replaced", large), ("small", b"small")):
            assert await kept.shared_objects.find("ours", "app", "plugin", key) == wanted


async def test_a_server_knows_the_objects_of_a_restored_backup_again(
    tmp_path: Path, build: MessageBuilder
) -> None:
    """The mark of the database is in the archive; without it the server would not start."""
    data, restored = tmp_path / "data", tmp_path / "restored"
    await write_sealed(data, FolderBlobs(data / "blobs"), build, 2)
    async with open_sqlite(data, on_commit=lambda _changes: None) as database:
        await open_own_blobs(BlobFolder(folder=data / "blobs"), database)

    made = backup(data, tmp_path / "copy.tar", now=5, blobs=data / "blobs")
    assert (made.objects, made.lost) == (2, 0)
    assert restore(tmp_path / "copy.tar", restored) == made

    async with open_sqlite(restored, on_commit=lambda _changes: None) as database:
        for key in await list_some_referred(database):
            (restored / "blobs" / key).unlink()
        blobs = await open_own_blobs(BlobFolder(folder=restored / "blobs"), database)
        await blobs.check()


def restore_copy(data: Path, restored: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """Restores a backup without objects, as of a bucket; returns what the command says."""
    backup(data, data / "copy.tar", now=5)
    command = ["restore", "--input", str(data / "copy.tar"), "--data-dir", str(restored)]
    cli.main(command, standalone_mode=False)
    return capsys.readouterr().out


async def test_a_copy_beside_its_original_deletes_none_of_its_objects(
    tmp_path: Path, build: MessageBuilder, capsys: pytest.CaptureFixture[str]
) -> None:
    """Both have the same mark; the copy does not know what the original wrote since."""
    data, restored, shared = tmp_path / "data", tmp_path / "restored", tmp_path / "shared"
    await write_sealed(data, FolderBlobs(shared), build, 2)
    async with open_sqlite(data, on_commit=lambda _changes: None) as database:
        blobs = await open_own_blobs(BlobFolder(folder=shared), database)
        newer = f"{KIND}/{await find_space(database)}/d1/newer"
    said = restore_copy(data, restored, capsys)
    assert "it deletes none of them" in said
    assert "`pipecd take-over-objects`" in said
    await blobs.put(newer, b"of the original")

    async def remove() -> int:
        async with open_sqlite(restored, on_commit=lambda _changes: None) as database:
            own = await open_own_blobs(BlobFolder(folder=shared), database)
            kept = stores(database, lambda: build.NOON, blobs=own)
            return await remove_orphans(kept, own, lambda: 2**40)

    async def seal() -> int:
        """Its original would take for an orphan what it sealed."""
        async with open_sqlite(restored, on_commit=lambda _changes: None) as database:
            own = await open_own_blobs(BlobFolder(folder=shared), database)
            kept = stores(database, lambda: build.NOON, blobs=own)
            await kept.shared_objects.put("ours", "app", "plugin", "key", bytes(1 << 20))
            [block] = build.blocks(1)
            block.log = "x" * 100_000
            key = LogKey(deployment_id="d9", stage_id="s")
            await kept.stage_logs.append("ours", key, [block], completed=True)
            return await seal_logs(kept, own) + await seal_values(kept, own)

    assert await remove() == 0
    assert (shared / newer).exists()
    assert await seal() == 0

    for sentence in ("from now on the server seals, and deletes", "nothing to do"):
        command = ["take-over-objects", "--data-dir", str(restored)]
        await asyncio.to_thread(cli.main, command, standalone_mode=False)
        assert sentence in capsys.readouterr().out
    assert await remove() == 1
    assert not (shared / newer).exists()
    assert await seal() == 2


async def test_a_server_says_that_it_keeps_objects(
    tmp_path: Path,
    build: MessageBuilder,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    shared = tmp_path / "shared"
    await write_sealed(tmp_path / "data", FolderBlobs(shared), build, 1)
    restore_copy(tmp_path / "data", tmp_path / "restored", capsys)

    async with serving_with(tmp_path / "restored", blobs=BlobFolder(folder=shared)):
        pass

    [line] = [each for each in caplog.records if each.message == "objects.kept"]
    assert "`pipecd take-over-objects`" in line.fields["hint"]  # type: ignore[attr-defined]


async def test_the_mark_says_whose_objects_are_in_a_backup(
    tmp_path: Path, build: MessageBuilder, capsys: pytest.CaptureFixture[str]
) -> None:
    """A move of objects leaves them in the folder, too; the server seals in the other store."""
    data, restored, moved = tmp_path / "data", tmp_path / "restored", tmp_path / "moved"
    config = tmp_path / "moved.yaml"
    config.write_text(
        "apiVersion: pipecd.dev/v1beta1\nkind: ControlPlane\nspec:\n"
        f"  filestore: {{type: FOLDER, config: {{path: '{moved}'}}}}\n"
    )
    await write_sealed(data, FolderBlobs(data / "blobs"), build, 2)
    async with open_sqlite(data, on_commit=lambda _changes: None) as database:
        await open_own_blobs(BlobFolder(folder=data / "blobs"), database)

    async def run(*command: str | Path) -> str:
        await asyncio.to_thread(cli.main, [str(each) for each in command], standalone_mode=False)
        said = capsys.readouterr()
        return said.out + said.err

    await run("move", "--data-dir", data, "--to-config", config)
    said = await run("backup", "--data-dir", data, "--output", tmp_path / "copy.tar")
    assert ", 2 objects, schema" in said
    assert "have moved from this folder to another store" in said
    said = await run("restore", "--input", tmp_path / "copy.tar", "--data-dir", restored)
    assert ", 2 objects, schema" in said
    assert "spec.filestore must say where it is" in said
    assert "it deletes none of them" in said

    async with open_sqlite(restored, on_commit=lambda _changes: None) as database:
        blobs = await open_own_blobs(BlobFolder(folder=moved), database)
        await blobs.put(f"{KIND}/{await find_space(database)}/d1/newer", b"of the original")
        kept = stores(database, lambda: build.NOON, blobs=blobs)
        assert await remove_orphans(kept, blobs, lambda: 2**40) == 0


async def test_a_copy_without_objects_has_a_space_of_its_own(
    tmp_path: Path, build: MessageBuilder, capsys: pytest.CaptureFixture[str]
) -> None:
    """So it cannot know what its original puts there after the backup, and has nothing to keep."""
    spaces = []
    await write_sealed(tmp_path / "data", FolderBlobs(tmp_path / "shared"), build, 0)
    async with open_sqlite(tmp_path / "data", on_commit=lambda _changes: None) as database:
        spaces.append(await find_space(database))

    said = restore_copy(tmp_path / "data", tmp_path / "restored", capsys)

    assert "take-over-objects" not in said
    async with open_sqlite(tmp_path / "restored", on_commit=lambda _changes: None) as database:
        spaces.append(await find_space(database))
        assert not await keeps_objects(database)
    assert spaces[0] != spaces[1]


async def test_objects_that_are_missing_or_damaged_are_counted_and_the_rest_is_kept(
    tmp_path: Path, build: MessageBuilder
) -> None:
    """A purge may delete one while a backup is made, and a lost log must not prevent a backup."""
    blobs = FolderBlobs(tmp_path / "data" / "blobs")
    await write_sealed(tmp_path / "data", blobs, build, 4)
    entries = [each async for each in blobs.iterate()]
    await blobs.delete(entries[0].key)
    await blobs.put(entries[1].key, b"short", replace=True)
    await blobs.put(entries[2].key, b"x" * entries[2].size, replace=True)

    made = backup(
        tmp_path / "data", tmp_path / "copy.tar", now=5, blobs=tmp_path / "data" / "blobs"
    )

    assert (made.objects, made.lost) == (1, 3)
    assert restore(tmp_path / "copy.tar", tmp_path / "restored") == made
    logs = await read_sealed(tmp_path / "restored", build, 4)
    assert sum("is lost" in log for [log] in logs) == 3


async def test_an_object_of_a_hostile_archive_stays_within_the_folder(
    tmp_path: Path, build: MessageBuilder
) -> None:
    await write_sealed(tmp_path / "data", FolderBlobs(tmp_path / "blobs"), build, 1)
    with closing(sqlite3.connect(tmp_path / "data" / DATABASE_FILE)) as database:
        database.execute("UPDATE stage_log_object SET object_key = '../../evil'")
        database.commit()

    said = refusal(
        backup, tmp_path / "data", tmp_path / "copy.tar", now=5, blobs=tmp_path / "blobs"
    )

    assert "not a key of an object" in said
    backup(tmp_path / "data", tmp_path / "copy.tar", now=5)
    assert "not a key of an object" in refusal(restore, tmp_path / "copy.tar", tmp_path / "new")
    assert "evil" not in names(tmp_path)


async def test_a_value_that_an_older_pipecd_has_replaced_needs_no_object_in_a_backup(
    tmp_path: Path,
) -> None:
    """It knows of no objects, so it leaves the key in the row; the object may be gone."""
    data, blobs = tmp_path / "data", FolderBlobs(tmp_path / "data" / "blobs")
    await blobs.open()
    async with open_sqlite(data, on_commit=lambda _changes: None) as database:
        kept = stores(database, lambda: 1, blobs=blobs)
        for key in ("stays", "replaced"):
            await kept.shared_objects.put("ours", "app", "plugin", key, bytes(1 << 20))
        assert await seal_values(kept, blobs) == 2
    with closing(sqlite3.connect(data / DATABASE_FILE)) as older:
        [[gone]] = older.execute(
            "UPDATE shared_object SET data = x'00' WHERE key = 'replaced' RETURNING object_key"
        ).fetchall()
        older.commit()
    await blobs.delete(gone)

    made = backup(data, tmp_path / "copy.tar", now=5, blobs=data / "blobs")

    assert (made.objects, made.lost) == (1, 0)
    assert restore(tmp_path / "copy.tar", tmp_path / "restored") == made


async def test_the_commands_count_values_among_the_objects_that_are_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, blobs = tmp_path / "data", FolderBlobs(tmp_path / "elsewhere")
    await blobs.open()
    async with open_sqlite(data, on_commit=lambda _changes: None) as database:
        kept = stores(database, lambda: 1, blobs=blobs)
        await kept.shared_objects.put("ours", "app", "plugin", "key", bytes(1 << 20))
        assert await seal_values(kept, blobs) == 1

    for command, told in (
        (["backup", "--data-dir", data, "--output", tmp_path / "copy.tar"], "are missing"),
        (["restore", "--input", tmp_path / "copy.tar", "--data-dir", tmp_path / "new"], "are not"),
    ):
        cli.main([str(each) for each in command], standalone_mode=False)
        said = capsys.readouterr().err
        assert f"warning: 1 objects (sealed logs and large values) {told}" in said


async def test_objects_of_another_database_are_not_overwritten(
    tmp_path: Path, build: MessageBuilder
) -> None:
    blobs = FolderBlobs(tmp_path / "data" / "blobs")
    await write_sealed(tmp_path / "data", blobs, build, 1)
    backup(tmp_path / "data", tmp_path / "copy.tar", now=5, blobs=tmp_path / "data" / "blobs")
    for file in (tmp_path / "data").glob(f"{DATABASE_FILE}*"):
        file.unlink()

    assert "holds objects of another database" in refusal(
        restore, tmp_path / "copy.tar", tmp_path / "data"
    )


async def test_a_backup_says_that_the_objects_are_in_a_bucket(tmp_path: Path) -> None:
    async with open_sqlite(tmp_path / "data", on_commit=lambda _changes: None):
        made = backup_database(
            SqliteFolder(folder=tmp_path / "data"),
            S3Bucket(bucket="logs"),
            tmp_path / "copy.tar",
            now=5,
        )

    assert made.elsewhere == "the bucket 'logs'"
