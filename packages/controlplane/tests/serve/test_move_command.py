# SPDX-License-Identifier: Apache-2.0
"""`pipecd move` as a process: killed anywhere, beside servers, from one server to the next."""

import asyncio
import contextlib
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import asyncpg
import pytest

from pipecd_controlplane.store.blobs.s3_driver import create_bucket
from pipecd_controlplane.store.open import SqliteFolder
from pipecd_controlplane.store.postgres.config import PostgresServer
from pipecd_test_support.aws.lab import run_aws_lab
from pipecd_test_support.buckets import BucketMaker
from pipecd_test_support.controlplane_messages import MessageBuilder
from pipecd_test_support.controlplane_process import RunServer
from pipecd_test_support.moved_databases import fill_folder, read_rows, run_postgres
from pipecd_test_support.postgres import shared_postgres
from pipecd_test_support.waiting import wait_answer
from pipecd_wire.apiservice import service_pb2 as api
from pipecd_wire.apiservice import service_pb2_grpc as api_grpc
from pipecd_wire.model import common_pb2
from pipecd_wire.pipedservice import service_pb2 as pipedservice
from pipecd_wire.pipedservice import service_pb2_grpc as pipedservice_grpc
from pipecd_wire.rpc import call, connect

LIMIT_SECONDS = 120.0
PIPECD = (sys.executable, "-c", "from pipecd_controlplane.cli import main; main()")

# Each of these runs several programs, one after the other.
pytestmark = [pytest.mark.timeout(400), pytest.mark.sqlite]

WAITING = """
SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND application_name = 'pipecd' AND wait_event_type = 'Lock'
"""


@pytest.fixture
def database() -> Iterator[str]:
    """The URL of a database without any table."""
    server = shared_postgres()
    name = server.create_database(is_empty=True)
    yield server.url(name)
    server.drop_database(name)


@pytest.fixture
def to_config(database: str, tmp_path: Path) -> Path:
    return write_config(tmp_path, database)


def write_config(folder: Path, url: str) -> Path:
    path = folder / "postgresql.yaml"
    path.write_text(
        "apiVersion: pipecd.dev/v1beta1\nkind: ControlPlane\nspec:\n"
        f"  datastore: {{type: POSTGRESQL, config: {{url: '{url}'}}}}\n"
    )
    return path


def write_filestore(folder: Path, name: str, *, url: str = "") -> Path:
    """Writes a configuration whose objects are in a folder of this name, the rows in PostgreSQL."""
    datastore = f"  datastore: {{type: POSTGRESQL, config: {{url: '{url}'}}}}\n" if url else ""
    path = folder / f"{name.replace('/', '-')}.yaml"
    path.write_text(
        "apiVersion: pipecd.dev/v1beta1\nkind: ControlPlane\nspec:\n"
        f"  filestore: {{type: FOLDER, config: {{path: '{folder / name}'}}}}\n{datastore}"
    )
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "data"


@asynccontextmanager
async def running(*arguments: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run pipecd, and kill what is left of it."""
    process = await asyncio.create_subprocess_exec(
        *PIPECD,
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


async def run(*arguments: str) -> tuple[int, str]:
    """Run pipecd to its end: exit code, and what it said."""
    async with running(*arguments) as process, asyncio.timeout(LIMIT_SECONDS):
        output, _ = await process.communicate()
        return process.returncode or 0, output.decode()


@asynccontextmanager
async def holding(url: str, statement: str, *values: object) -> AsyncIterator[None]:
    """Run a statement in a transaction that stays open while the block runs."""
    connection = await asyncpg.connect(url)
    try:
        await connection.execute("BEGIN")
        await connection.execute(statement, *values)
        yield
    finally:
        await connection.close()


async def kill_where_it_waits(url: str, *arguments: str) -> None:
    """Run pipecd until it waits for a lock in the database, and kill it there."""
    async with running(*arguments) as process:

        async def look() -> int:
            assert process.returncode is None, await process.communicate()
            return int((await run_postgres(url, WAITING))[0][0])

        await wait_answer(look, bool)
        process.kill()
        assert await process.wait() == -signal.SIGKILL


async def count(url: str, table: str) -> int:
    return int((await run_postgres(url, f"SELECT count(*) FROM {table}"))[0][0])  # noqa: S608 - ours


async def test_a_move_that_is_killed_anywhere_goes_on(folder: Path, tmp_path: Path) -> None:
    """The database makes it wait where it is to be killed, so it is killed just there."""
    server = shared_postgres()
    url = server.url(name := server.create_database())
    command = ("move", "--data-dir", str(folder), "--to-config", str(write_config(tmp_path, url)))
    await fill_folder(folder, log_chunks=25, chunk_bytes=500_000)  # more than one batch
    wanted = await read_rows(SqliteFolder(folder=folder))
    chunk = wanted["stage_log_chunk"][12]
    marks = ", ".join(f"${number}" for number in range(1, len(chunk) + 1))

    # Where the target is begun.
    async with holding(url, "CREATE TABLE pipecd_move (role text)"):
        await kill_where_it_waits(url, *command)
    # At the first row.
    async with holding(url, "LOCK TABLE project, api_key IN SHARE MODE"):
        await kill_where_it_waits(url, *command)
    assert await count(url, "project") == 0
    # In the midst of a table: another transaction has inserted a key of its second batch.
    async with holding(url, f"INSERT INTO stage_log_chunk VALUES ({marks})", *chunk):  # noqa: S608 - ours
        await kill_where_it_waits(url, *command)
    assert 0 < await count(url, "stage_log_chunk") < 25
    # Where everything is there, but for the indexes.
    async with holding(url, "LOCK TABLE deployment IN ROW EXCLUSIVE MODE"):
        await kill_where_it_waits(url, *command)
    assert await count(url, "stage_log_chunk") == 25
    # Where the target is marked as complete.
    async with holding(url, "SELECT FROM pipecd_move FOR UPDATE"):
        await kill_where_it_waits(url, *command)
    code, said = await run(
        "server", "--data-dir", str(tmp_path / "new"), *command[3:4], "--listen", "127.0.0.1:0"
    )
    assert code != 0, said
    # Where the source is: another program has locked it.
    with contextlib.closing(sqlite3.connect(folder / "pipecd.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        code, said = await run(*command)
    assert code == 1
    assert "is locked by another program" in said

    code, said = await run(*command)

    assert code == 0, said
    assert "everything is in the database" in said
    assert await read_rows(PostgresServer(url=url)) == wanted
    assert await read_rows(SqliteFolder(folder=folder)) == wanted
    server.drop_database(name)


async def test_a_running_server_is_refused(
    server: RunServer, folder: Path, to_config: Path, database: str
) -> None:
    async with server(folder):
        code, said = await run("move", "--data-dir", str(folder), "--to-config", str(to_config))

    assert code == 1
    assert f"the data folder '{folder}' is in use by another pipecd" in said

    async with server(folder.parent / "other", "--config-file", str(to_config)):
        code, said = await run("move", "--data-dir", str(folder), "--to-config", str(to_config))

    assert code == 1
    assert "a pipecd uses this database" in said
    async with server(folder):  # it was not touched
        pass


async def test_a_server_on_postgresql_shows_what_the_one_on_sqlite_did(
    server: RunServer, folder: Path, to_config: Path, build: MessageBuilder
) -> None:
    """And the old folder says where everything is, until the move is undone."""
    command = ("move", "--data-dir", str(folder), "--to-config", str(to_config))
    async with server(folder) as running_server:
        before = await deploy_and_read(folder, running_server.address, build)
        running_server.process.terminate()
        assert await running_server.wait_ended() == 0

    code, said = await run(*command, "--dry-run")
    assert code == 0, said
    assert "the move would begin; nothing was changed" in said
    code, said = await run(*command)
    assert code == 0, said
    assert f"pipecd server --data-dir {folder} --config-file {to_config}\n" in said
    assert "admin.key, admin.password, encryption.key" in said
    code, said = await run(*command, "--verify-only")
    assert code == 0, said

    async with server(folder, "--config-file", str(to_config)) as moved:
        assert await read_everything(folder, moved.address) == before
        moved.process.terminate()
        assert await moved.wait_ended() == 0
    code, said = await run("server", "--data-dir", str(folder), "--listen", "127.0.0.1:0")
    assert code == 1
    assert "what was in this database is in the database 'test" in said
    code, said = await run("move", "--data-dir", str(folder), "--undo")
    assert code == 0, said
    assert "what happened there since is not here" in said
    async with server(folder) as again:
        assert await read_everything(folder, again.address) == before


async def test_objects_go_to_another_folder_with_their_rows(folder: Path, tmp_path: Path) -> None:
    await fill_folder(folder)
    there = find_objects(folder)
    new = tmp_path / "new"
    command = ("move", "--data-dir", str(folder), "--to-data-dir", str(new))

    code, said = await run(*command, "--dry-run")
    assert code == 0, said
    assert not new.exists()
    code, said = await run(*command)

    assert code == 0, said
    assert "First copy" not in said  # there are none in this one
    assert find_objects(new) == there
    assert await read_rows(SqliteFolder(folder=new)) == await read_rows(SqliteFolder(folder=folder))


async def test_a_lost_object_keeps_a_move_from_its_end(folder: Path, tmp_path: Path) -> None:
    await fill_folder(folder)
    command = ("move", "--data-dir", str(folder), "--to-data-dir", str(tmp_path / "new"))
    lost = min(find_objects(folder))
    (folder / "blobs" / lost).unlink()

    code, said = await run(*command)
    assert code == 1
    assert f"the object '{lost}' is missing in" in said
    assert "has lost 1 of 5 objects" in said
    code, said = await run("server", "--data-dir", str(tmp_path / "new"), "--listen", "127.0.0.1:0")
    assert code == 1
    assert "has not got everything yet" in said
    code, said = await run(*command, "--skip-missing")

    assert code == 0, said
    assert f"the object '{lost}' is missing in" in said


async def test_objects_alone_go_to_another_folder(
    folder: Path, to_config: Path, database: str, tmp_path: Path
) -> None:
    """The rows stay where they are."""
    await fill_folder(folder)
    code, said = await run("move", "--data-dir", str(folder), "--to-config", str(to_config))
    assert code == 0, said
    both = ("--from-config", str(to_config), "--to-config", str(to_config))
    places = ("--data-dir", str(folder), "--to-data-dir", str(tmp_path / "new"))

    for extra in ("--dry-run", "--skip-missing", "--verify-only"):
        code, said = await run("move", *both, *places, extra)
        assert code == 0, said

    assert find_objects(tmp_path / "new") == find_objects(folder)


@pytest.mark.parametrize("is_marked", [True, False])
async def test_objects_that_stayed_are_moved_when_they_are_wanted_elsewhere_later(
    server: RunServer,
    folder: Path,
    to_config: Path,
    database: str,
    tmp_path: Path,
    *,
    is_marked: bool,
) -> None:
    """The rows were moved before: that alone is not everything. The old place is none any more."""
    await fill_folder(folder)
    if is_marked:
        async with server(folder):
            pass
    else:
        (folder / "encryption.key").write_bytes(b"k" * 32)
    command = ("move", "--data-dir", str(folder), "--to-config", str(to_config))
    code, said = await run(*command)
    assert code == 0, said
    code, said = await run(*command)
    assert code == 0, said
    assert "already, nothing was done" in said

    elsewhere = ("--to-data-dir", str(tmp_path / "new"))
    code, said = await run(*command, *elsewhere, "--dry-run")
    assert code == 0, said
    assert "the objects move, too" in said
    assert "the move would do nothing else" in said
    code, said = await run(*command, *elsewhere)

    assert code == 0, said
    assert "already, its objects are moved" in said
    assert find_objects(tmp_path / "new") == find_objects(folder)
    old, now = (
        write_filestore(tmp_path, each, url=database) for each in ("data/blobs", "new/blobs")
    )
    key = ("--encryption-key-file", str(folder / "encryption.key"))
    code, said = await run(
        *("server", "--data-dir", str(folder), "--listen", "127.0.0.1:0", *key),
        *("--config-file", str(old)),
    )
    assert code == 1
    assert "is not where this database has its objects" in said
    async with server(folder, "--config-file", str(now), *key):
        pass


async def test_objects_alone_go_into_a_bucket_and_are_read_from_there(
    server: RunServer, folder: Path, tmp_path: Path
) -> None:
    """The server finds them there; the folder they were in is not needed any more."""
    await fill_folder(folder)
    lab_folder = tmp_path / "s3"
    lab_folder.mkdir()
    with run_aws_lab(lab_folder) as lab:
        keys = BucketMaker(lab.url, tmp_path)
        config = tmp_path / "bucket.yaml"
        config.write_text(
            "apiVersion: pipecd.dev/v1beta1\nkind: ControlPlane\nspec:\n  filestore:\n"
            f"    type: MINIO\n    config: {{endpoint: '{lab.url}', bucket: logs,"
            f" accessKeyFile: '{keys.access_key_file}', secretKeyFile: '{keys.secret_key_file}',"
            " autoCreateBucket: true}\n"
        )

        code, said = await run("move", "--data-dir", str(folder), "--to-config", str(config))
        assert code == 0, said
        assert "the rows stay in the file" in said
        assert "copying objects: 5 of 5 rows" in said
        (folder / "blobs").rename(tmp_path / "away")
        code, said = await run(
            "move", "--data-dir", str(folder), "--to-config", str(config), "--verify-only"
        )

        assert code == 0, said
        async with server(folder, "--config-file", str(config)):
            pass


@pytest.mark.parametrize("is_marked", [True, False])
async def test_after_objects_alone_were_moved_only_their_new_place_is_taken(
    server: RunServer, folder: Path, tmp_path: Path, *, is_marked: bool
) -> None:
    """Logs that are sealed in one of the two would be missing in the other."""
    await fill_folder(folder)  # as a pipecd without marks does
    configs = [write_filestore(tmp_path, each) for each in ("blobs0", "blobs1")]
    (folder / "blobs").rename(tmp_path / "blobs0")
    one, other = (("--data-dir", str(folder), "--config-file", str(each)) for each in configs)
    if is_marked:
        async with server(folder, *one[2:]):
            pass
    code, said = await run("server", *other, "--listen", "127.0.0.1:0")
    assert code == 1
    assert "is not where this database has its objects" in said
    assert "`pipecd move`" in said

    places = ("--from-config", str(configs[0]), "--to-config", str(configs[1]))
    for _ in range(2):
        code, said = await run("move", "--data-dir", str(folder), *places)
        assert code == 0, said

    async with server(folder, *other[2:]):
        pass
    code, said = await run("server", *one, "--listen", "127.0.0.1:0")
    assert code == 1
    assert "it lacks their mark" in said


async def test_a_copy_that_moves_to_a_store_of_its_own_leaves_its_original_what_it_has(
    server: RunServer, folder: Path, tmp_path: Path
) -> None:
    """Both know the shared store by one mark."""
    await fill_folder(folder)
    (folder / "blobs").rename(tmp_path / "shared")
    shared, own = (write_filestore(tmp_path, each) for each in ("shared", "own"))
    copy, archive = tmp_path / "copy", str(tmp_path / "copy.tar")
    async with server(folder, "--config-file", str(shared)):
        pass
    for command in (
        ("backup", "--data-dir", str(folder), "--output", archive),
        ("restore", "--input", archive, "--data-dir", str(copy)),
    ):
        code, said = await run(*command)
        assert code == 0, said
    there = {each: each.stat().st_mtime_ns for each in (tmp_path / "shared").rglob("*")}

    places = ("--data-dir", str(copy), "--from-config", str(shared), "--to-config", str(own))
    for flags in (("--dry-run",), (), (), ("--verify-only",)):
        code, said = await run("move", *places, *flags)
        assert code == 0, said
        assert ("nothing was taken from" in said) == (not flags)
    async with server(copy, "--config-file", str(own)):
        pass
    code, said = await run("take-over-objects", "--data-dir", str(copy))
    assert code == 0, said
    code, said = await run("move", *places)
    assert code == 0, said

    assert {each: each.stat().st_mtime_ns for each in (tmp_path / "shared").rglob("*")} == there
    async with server(folder, "--config-file", str(shared)):
        pass
    code, said = await run(
        *("server", "--data-dir", str(copy), "--listen", "127.0.0.1:0"),
        *("--config-file", str(shared)),
    )
    assert code == 1
    assert "is not where this database has its objects: it has other marks" in said


async def test_two_settings_of_one_store_cost_no_database_its_mark(
    server: RunServer, folder: Path, tmp_path: Path
) -> None:
    await fill_folder(folder)
    (tmp_path / "link").symlink_to(folder / "blobs")
    async with server(folder):
        pass
    config = write_filestore(tmp_path, "link")

    code, said = await run("move", "--data-dir", str(folder), "--to-config", str(config))

    assert code == 0, said
    assert "are one store: its objects stay in it" in said
    async with server(folder):
        pass
    async with server(folder, "--config-file", str(config)):
        pass


async def test_a_store_that_lacks_the_mark_is_no_source_and_no_target_that_is_verified(
    server: RunServer, folder: Path, tmp_path: Path
) -> None:
    """It has all objects: a server would refuse it all the same."""
    await fill_folder(folder)
    async with server(folder):
        pass
    config = write_filestore(tmp_path, "blobs1")
    command = ("move", "--data-dir", str(folder), "--to-config", str(config))
    [mark] = (folder / "blobs" / "marks").iterdir()
    away = mark.rename(tmp_path / "mark")

    for flags in (("--dry-run",), ()):
        code, said = await run(*command, *flags)
        assert code == 1, said
        assert f"the folder '{folder / 'blobs'}' is not where this database has its obj" in said
    assert not (tmp_path / "blobs1").exists()
    away.rename(mark)
    for flags in (("--dry-run",), (), ("--dry-run",), ("--verify-only",)):
        code, said = await run(*command, *flags)
        assert code == 0, said
    (tmp_path / "blobs1" / "marks" / mark.name).unlink()
    code, said = await run(*command, "--verify-only")
    assert code == 1, said
    assert "lacks the mark of the database" in said


async def test_both_sides_of_a_move_know_their_objects(
    server: RunServer, folder: Path, tmp_path: Path
) -> None:
    """The source can be used again, as it was then."""
    await fill_folder(folder)
    async with server(folder):
        pass
    new = tmp_path / "new"
    code, said = await run("move", "--data-dir", str(folder), "--to-data-dir", str(new))
    assert code == 0, said

    async with server(new):
        pass
    code, said = await run("move", "--data-dir", str(folder), "--to-data-dir", str(new))
    assert code == 0, said
    assert "already, its objects are moved" in said
    code, said = await run("move", "--data-dir", str(folder), "--undo")
    assert code == 0, said
    async with server(folder):
        pass


async def test_to_rehearse_and_to_verify_open_the_bucket_and_make_none(
    folder: Path, tmp_path: Path
) -> None:
    await fill_folder(folder)
    lab_folder = tmp_path / "s3"
    lab_folder.mkdir()
    with run_aws_lab(lab_folder) as lab:
        keys = BucketMaker(lab.url, tmp_path)

        async def try_move(flag: str, *, makes_bucket: bool) -> tuple[int, str]:
            config = tmp_path / "bucket.yaml"
            config.write_text(
                "apiVersion: pipecd.dev/v1beta1\nkind: ControlPlane\nspec:\n  filestore:\n"
                f"    type: MINIO\n    config: {{endpoint: '{lab.url}', bucket: logs,"
                f" accessKeyFile: '{keys.access_key_file}',"
                f" secretKeyFile: '{keys.secret_key_file}',"
                f" autoCreateBucket: {str(makes_bucket).lower()}}}\n"
            )
            return await run("move", "--data-dir", str(folder), "--to-config", str(config), flag)

        for flag, makes_bucket in (("--dry-run", False), ("--verify-only", True)):
            code, said = await try_move(flag, makes_bucket=makes_bucket)
            assert code == 1, said
            assert "there is no bucket 'logs'" in said
        code, said = await try_move("--dry-run", makes_bucket=True)
        assert code == 0, said
        assert f"objects to    the bucket 'logs' at {lab.url}, which would be made" in said
        s3 = lab.make_client("s3")
        assert s3.list_buckets()["Buckets"] == []
        await create_bucket(keys.describe(bucket="logs"), "the bucket")
        code, said = await try_move("--dry-run", makes_bucket=False)
        assert code == 0, said
        assert "would be made" not in said
        assert "Contents" not in s3.list_objects_v2(Bucket="logs")


async def test_to_rehearse_and_to_verify_make_no_folder(folder: Path, tmp_path: Path) -> None:
    await fill_folder(folder)
    config = tmp_path / "folder.yaml"
    share = tmp_path / "share"
    config.write_text(
        "apiVersion: pipecd.dev/v1beta1\nkind: ControlPlane\nspec:\n"
        f"  filestore: {{type: FOLDER, config: {{path: '{share}'}}}}\n"
    )
    command = ("move", "--data-dir", str(folder), "--to-config", str(config))

    code, said = await run(*command, "--dry-run")
    assert code == 0, said
    assert f"objects to    the folder {str(share)!r}, which would be made" in said
    code, said = await run(*command, "--verify-only")
    assert code == 1, said
    assert f"the folder {str(share)!r} has never held objects" in said
    assert not share.exists()

    (folder / "blobs").rename(tmp_path / "away")
    for flags in (("--dry-run",), ("--skip-missing",)):
        code, said = await run(*command, *flags)
        assert code == 1, said
        assert "has never held" in said
    assert not (folder / "blobs").exists()
    assert not share.exists()


def find_objects(folder: Path) -> dict[str, bytes]:
    """Returns the content of each object of a data folder but marks, by its key."""
    blobs = folder / "blobs"
    return {
        str(path.relative_to(blobs)): path.read_bytes()
        for path in blobs.rglob("*")
        if path.is_file() and path.parent.name != "marks"
    }


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--data-dir", "."], "--to-config is missing: where shall everything go?"),
        (["--to-data-dir", "new"], "--data-dir is missing: in which folder is the SQLite file?"),
        (["--data-dir", ".", "--to-data-dir", "."], "the source and the target are the same"),
        (["--data-dir", ".", "--undo", "--dry-run"], "exclude each other"),
        (["--data-dir", "nowhere", "--to-data-dir", "new"], "there is no folder"),
        (["--data-dir", ".", "--undo"], "there is no database"),
        (["--data-dir", ".", "--to-config", "none.yaml"], "File 'none.yaml' does not exist"),
    ],
)
def test_flags_that_cannot_be_are_said(arguments: list[str], sentence: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [*PIPECD, "move", *arguments],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT_SECONDS,
    )

    assert done.returncode != 0
    assert sentence in done.stderr.replace("\n", " ")


@asynccontextmanager
async def client(folder: Path, address: str) -> AsyncIterator["api_grpc.APIServiceAsyncStub"]:
    key = (folder / "admin.key").read_text().strip()
    async with connect(address, metadata=lambda: [("authorization", f"API-KEY {key}")]) as channel:
        yield api_grpc.APIServiceStub(channel)


async def deploy_and_read(folder: Path, address: str, build: MessageBuilder) -> list[bytes]:
    """Registers a piped, which makes a deployment with a log."""
    async with client(folder, address) as stub:
        made = await call(stub.RegisterPiped, api.RegisterPipedRequest(name="agent"))
        pairs = [("authorization", f"PIPED-TOKEN default,{made.id},{made.key}")]
        async with connect(address, metadata=lambda: pairs) as channel:
            piped = pipedservice_grpc.PipedServiceStub(channel)
            repository = common_pb2.ApplicationGitRepository(id="repo")
            meta = pipedservice.ReportPipedMetaRequest(repositories=[repository])
            await call(piped.ReportPipedMeta, meta)
            application = api.AddApplicationRequest(
                name="hello", piped_id=made.id, git_path=build.git_path()
            )
            added = await call(stub.AddApplication, application)
            deployment = build.deployment(
                application_id=added.application_id, piped_id=made.id, project_id="default"
            )
            await call(
                piped.CreateDeployment,
                pipedservice.CreateDeploymentRequest(deployment=deployment),
            )
            await call(piped.ReportDeploymentPlanned, build.planned("d1", build.stage()))
            await call(
                piped.ReportStageLogs,
                pipedservice.ReportStageLogsRequest(
                    deployment_id="d1", stage_id="s1", blocks=build.blocks(1, 2, 3)
                ),
            )
    return await read_everything(folder, address)


async def read_everything(folder: Path, address: str) -> list[bytes]:
    """What programs see of applications, deployments and logs."""
    async with client(folder, address) as stub:
        found = [
            await call(stub.ListApplications, api.ListApplicationsRequest()),
            await call(stub.ListDeployments, api.ListDeploymentsRequest()),
            await call(stub.ListStageLogs, api.ListStageLogsRequest(deployment_id="d1")),
        ]
    assert b"line 3" in found[-1].SerializeToString()
    return [each.SerializeToString(deterministic=True) for each in found]
