# SPDX-License-Identifier: Apache-2.0
"""A file that an older pipecd wrote: opened as it is, nothing lost, and found as if written today.

`schema_<version>.sql` holds the tables as the pipecd of that time made them.
"""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from pipecd_controlplane.ops.objects import seal_values
from pipecd_controlplane.store import schema
from pipecd_controlplane.store.applications import ApplicationFilter
from pipecd_controlplane.store.blobs.folder import FolderBlobs
from pipecd_controlplane.store.deployments import DeploymentFilter
from pipecd_controlplane.store.migrations import MIGRATIONS
from pipecd_controlplane.store.sqlite.database import open_sqlite
from pipecd_controlplane.store.sqlite.file import DATABASE_FILE
from pipecd_controlplane.store.sqlite.migrations import FILLS
from pipecd_controlplane.store.stage_logs import LogKey
from pipecd_controlplane.store.stores import Stores, stores
from pipecd_model.errors import StateError
from pipecd_test_support.controlplane_messages import MessageBuilder
from pipecd_wire.apiservice import service_pb2 as apiservice
from pipecd_wire.model import deployment_pb2, project_pb2
from pipecd_wire.model.application_live_state_pb2 import ApplicationLiveStateSnapshot

OLDER = sorted(
    Path(__file__).parent.glob("schema_*.sql"),
    key=lambda path: int(path.stem.removeprefix("schema_")),
)
FIRST = OLDER[0]


def make_older(folder: Path, script: Path) -> sqlite3.Connection:
    folder.mkdir(exist_ok=True)
    older = sqlite3.connect(folder / DATABASE_FILE, isolation_level=None)
    older.executescript(script.read_text())
    return older


def schema_of(folder: Path) -> dict[str, Any]:
    """Every table's columns and every index's, without their order in the file."""
    with closing(sqlite3.connect(folder / DATABASE_FILE)) as connection:
        found: dict[str, Any] = {}
        for name, kind in connection.execute("SELECT name, type FROM sqlite_master").fetchall():
            if kind == "table":
                rows = connection.execute(f"PRAGMA table_info({name})").fetchall()
                found[name] = sorted((row[1], row[2], row[3], row[5]) for row in rows)
            else:
                rows = connection.execute(f"PRAGMA index_info({name})").fetchall()
                found[name] = [row[2] for row in rows]
        return found


async def opened(folder: Path) -> None:
    async with open_sqlite(folder, on_commit=lambda _changes: None):
        pass


@pytest.mark.parametrize("script", OLDER, ids=lambda path: path.stem)
async def test_an_older_file_becomes_as_a_new_one(tmp_path: Path, script: Path) -> None:
    make_older(tmp_path / "older", script).close()

    await opened(tmp_path / "older")
    await opened(tmp_path / "new")

    assert schema_of(tmp_path / "older") == schema_of(tmp_path / "new")


@pytest.mark.parametrize("script", [FIRST], ids=lambda path: path.stem)
async def test_what_an_older_file_holds_is_found_by_everything(
    tmp_path: Path, script: Path, build: MessageBuilder
) -> None:
    with closing(make_older(tmp_path, script)) as older:
        application = build.application(labels={"env": "dev"}, deleted=True, disabled=True)
        add(older, "application", application, piped_id="piped", name="hello", kind=0, disabled=1)
        deployment = build.deployment(
            labels={"env": "dev"},
            status=deployment_pb2.DEPLOYMENT_FAILURE,
            completed_at=build.NOON + 9,
            deployment_chain_id="chain",
            deployment_trace_commit_hash="feed",
        )
        add(
            older,
            "deployment",
            deployment,
            piped_id="piped",
            application_id="app",
            application_name="hello",
            kind=0,
            status=5,
            completed=1,
        )

    async with open_sqlite(tmp_path, on_commit=lambda _changes: None) as database:
        kept = stores(database, lambda: build.NOON + 60)
        assert await found_by(kept, ApplicationFilter(labels={"env": "dev"}, deleted=True)) == 1
        page = await kept.deployments.page(
            "ours",
            DeploymentFilter(labels={"env": "dev"}, updated_since=build.NOON),
            limit=0,
            cursor="",
        )
        assert page.items == [deployment]
        chained = await database.read(
            lambda view: kept.deployments.list_by_chain_in(view, "ours", "chain")
        )
        assert chained == [deployment]
        ended = await kept.outcomes.restores("ours", build.NOON, build.NOON + 100)
        assert [outcome.status for outcome in ended] == [deployment_pb2.DEPLOYMENT_FAILURE]


async def test_what_a_file_of_version_6_holds_can_be_changed(tmp_path: Path) -> None:
    """Its rows have no version to compare by."""
    with closing(make_older(tmp_path, FIRST.with_name("schema_6.sql"))) as older:
        data = project_pb2.Project(id="ours").SerializeToString()
        older.execute("INSERT INTO project (id, data) VALUES ('ours', ?)", (data,))

    def describe(project: project_pb2.Project) -> None:
        project.desc = "changed"

    async with open_sqlite(tmp_path, on_commit=lambda _changes: None) as database:
        kept = stores(database, lambda: 1)
        await kept.projects.update("ours", describe)
        assert (await kept.projects.get("ours")).desc == "changed"


async def test_the_lines_of_a_file_of_version_8_have_numbers(
    tmp_path: Path, build: MessageBuilder
) -> None:
    with closing(make_older(tmp_path, FIRST.with_name("schema_8.sql"))) as older:
        older.execute("INSERT INTO stage_log VALUES ('d', 's', 0, 'ours', 2, 12, 1, 30)")
        for number, indexes in ((1, (10, 11)), (2, (12,))):
            data = apiservice.StageLog(blocks=build.blocks(*indexes)).SerializeToString()
            older.execute(
                "INSERT INTO stage_log_chunk VALUES ('d', 's', 0, ?, ?, ?, ?, 0)",
                (number, indexes[-1], data, indexes[0]),
            )

    async with open_sqlite(tmp_path, on_commit=lambda _changes: None) as database:
        kept = stores(database, lambda: 1)
        key = LogKey(deployment_id="d", stage_id="s")
        found = await kept.log_lines.read_range("ours", key, first_line=2, count=5)
        assert [block.index for block in found.blocks] == [11, 12]
        assert found.state.total_lines == 3
        await kept.stage_logs.append("ours", key, build.blocks(13), completed=True, reopen=True)
        last = await kept.log_lines.read_range("ours", key, first_line=0, count=1)
        assert (last.first_line, last.blocks[0].index) == (4, 13)


async def test_the_large_values_of_a_file_of_version_10_are_sealed(tmp_path: Path) -> None:
    large = bytes(range(256)) * 1024
    live = ApplicationLiveStateSnapshot(application_id="app", project_id="p" * len(large))
    with closing(make_older(tmp_path, FIRST.with_name("schema_10.sql"))) as older:
        older.execute(
            "INSERT INTO shared_object VALUES ('app', 'plugin', 'key', 'ours', ?)", (large,)
        )
        older.execute(
            "INSERT INTO live_state VALUES ('app', 'ours', 1, ?, 1)", (live.SerializeToString(),)
        )
    blobs = FolderBlobs(tmp_path / "blobs")
    await blobs.open()

    async with open_sqlite(tmp_path, on_commit=lambda _changes: None) as database:
        kept = stores(database, lambda: 1000, blobs=blobs)
        for sealed in (2, 0):
            assert await kept.shared_objects.find("ours", "app", "plugin", "key") == large
            found = await kept.live_states.find("ours", "app")
            assert found is not None
            assert (found.message, found.updated_at) == (live, 1)
            assert await seal_values(kept, blobs) == sealed


async def found_by(kept: Stores, wanted: ApplicationFilter) -> int:
    return len((await kept.applications.page("ours", wanted, limit=0, cursor="")).items)


def add(connection: sqlite3.Connection, table: str, entity: Any, **columns: Any) -> None:
    row = {
        "id": entity.id,
        "project_id": entity.project_id,
        "created_at": entity.created_at,
        "version": 1,
        "data": entity.SerializeToString(),
        **columns,
    }
    names, marks = ", ".join(row), ", ".join("?" * len(row))
    statement = f"INSERT INTO {table} ({names}) VALUES ({marks})"  # noqa: S608 - all of it is ours
    connection.execute(statement, tuple(row.values()))


async def test_a_step_that_fails_leaves_the_older_file_as_it_was(tmp_path: Path) -> None:
    with closing(make_older(tmp_path, FIRST)) as older:
        older.execute(
            "INSERT INTO deployment VALUES ('d', 'p', 'a', 'b', 'c', 0, 0, 0, 1, 1, x'ff')"
        )
    before = schema_of(tmp_path)

    with pytest.raises(StateError, match="cannot be brought to schema"):
        await opened(tmp_path)

    assert schema_of(tmp_path) == before
    with closing(sqlite3.connect(tmp_path / DATABASE_FILE)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone()[0] == 2


async def test_tables_do_not_change_without_a_new_version(tmp_path: Path) -> None:
    """Files of this version are out there. A change needs SCHEMA_VERSION + 1, and a step if a table
    that is there changes; with it comes the next `schema_<version>.sql`, from `.schema` of sqlite3.
    """
    newest = max(OLDER, key=version_of)
    assert version_of(newest) == schema.SCHEMA_VERSION, "write the schema file of the new version"
    make_older(tmp_path / "frozen", newest).close()

    await opened(tmp_path / "new")

    assert schema_of(tmp_path / "new") == schema_of(tmp_path / "frozen")


def version_of(script: Path) -> int:
    return int(script.stem.removeprefix("schema_"))


def test_every_change_of_a_table_has_a_version() -> None:
    """A fresh file says today's version: steps that lead past it would never run."""
    versions = [migration.version for migration in MIGRATIONS]
    assert versions == sorted(set(versions))
    assert max([*versions, *FILLS]) <= schema.SCHEMA_VERSION
