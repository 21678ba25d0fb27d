# SPDX-License-Identifier: Apache-2.0
"""Many units of work in one commit: together on disk, apart in failure."""

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from sqlalchemy import insert, select

from pipecd_controlplane.store import schema
from pipecd_controlplane.store.changes import Change, Kind
from pipecd_controlplane.store.database import Database, DuplicateError, Transaction, View
from pipecd_controlplane.store.sqlite.database import open_sqlite
from pipecd_model.errors import StateError, UnavailableError

INSERT = insert(schema.project)
ALL = select(schema.project.c.id).order_by(schema.project.c.id)


def adding(project_id: str) -> Callable[[Transaction], Awaitable[str]]:
    async def work(transaction: Transaction) -> str:
        await transaction.run(INSERT, id=project_id, data=b"")
        transaction.changed(Change(kind=Kind.PIPED, id=project_id, project_id=project_id))
        return project_id

    return work


def failing(project_id: str) -> Callable[[Transaction], Awaitable[str]]:
    async def work(transaction: Transaction) -> str:
        await adding(project_id)(transaction)
        raise StateError("changed my mind")

    return work


async def ids(database: Database) -> list[str]:
    async def work(view: View) -> list[str]:
        return [row[0] for row in await view.all(ALL)]

    return await database.read(work)


async def test_a_unit_that_fails_takes_nobody_with_it(
    database: Database, told: list[Change]
) -> None:
    """They wait together, so they share a commit."""
    async with asyncio.TaskGroup() as tasks:
        good = [tasks.create_task(database.write(adding(f"p{n:03}"))) for n in range(150)]
        bad = [tasks.create_task(refused(database, f"bad{n}")) for n in range(50)]

    assert [task.result() for task in good] == await ids(database)
    assert {str(task.result()) for task in bad} == {"changed my mind"}
    assert [change.id for change in told] == await ids(database)


async def refused(database: Database, project_id: str) -> StateError:
    with pytest.raises(StateError) as caught:
        await database.write(failing(project_id))
    return caught.value


async def test_a_duplicate_is_an_error_that_a_unit_can_handle(database: Database) -> None:
    async def work(transaction: Transaction) -> str:
        await transaction.run(INSERT, id="p", data=b"")
        try:
            await transaction.run(INSERT, id="p", data=b"")
        except DuplicateError:
            return "seen"
        return "missed"

    assert await database.write(work) == "seen"
    assert await ids(database) == ["p"]


async def test_what_is_told_can_be_read_already(tmp_path: Path) -> None:
    """A watcher reads the row it is told of; it must never find the one before."""
    seen: list[str] = []

    def on_commit(_changes: object) -> None:
        with sqlite3.connect(tmp_path / "pipecd.db") as reader:
            seen.extend(row[0] for row in reader.execute("SELECT id FROM project"))
        reader.close()

    async with open_sqlite(tmp_path, on_commit=on_commit) as database:
        await database.write(adding("p"))

    assert seen == ["p"]


async def test_a_caller_that_went_away_harms_nobody(database: Database) -> None:
    impatient = asyncio.ensure_future(database.write(adding("p1")))
    await asyncio.sleep(0)  # it has handed over its work
    impatient.cancel()

    await database.write(adding("p2"))

    assert await ids(database) == ["p1", "p2"]


async def test_a_unit_may_wait_for_nothing_but_its_database(database: Database) -> None:
    """It holds the only writer: whoever sleeps in it stops everybody."""

    async def work(_transaction: Transaction) -> None:
        await asyncio.sleep(0)

    with pytest.raises(RuntimeError, match="awaited something other"):
        await database.write(work)
    assert await database.write(adding("p")) == "p"


async def test_what_was_asked_for_before_the_end_is_written(tmp_path: Path) -> None:
    async with open_sqlite(tmp_path, on_commit=lambda _changes: None) as database:
        waiting = [asyncio.ensure_future(database.write(adding(f"p{n:03}"))) for n in range(100)]
        await asyncio.sleep(0)
    for task in waiting:
        await task

    with pytest.raises(UnavailableError, match="closed"):
        await database.write(adding("late"))
    async with open_sqlite(tmp_path, on_commit=lambda _changes: None) as again:
        assert len(await ids(again)) == 100


async def test_a_full_disk_is_a_passing_trouble(tmp_path: Path, told: list[Change]) -> None:
    """The caller may try again, and the server lives."""
    async with open_sqlite(tmp_path, on_commit=told.extend) as database:
        await database.write(adding("p1"))
        connection = database._writer._connection
        pages = connection.execute("PRAGMA page_count").fetchone()[0]
        connection.execute(f"PRAGMA max_page_count = {pages}")

        async def large(transaction: Transaction) -> None:
            await transaction.run(INSERT, id="large", data=b"x" * 100_000)

        with pytest.raises(UnavailableError, match=r"cannot write to the database: .*full"):
            await database.write(large)

        connection.execute("PRAGMA max_page_count = 100000")
        await database.write(large)
        assert await ids(database) == ["large", "p1"]


async def test_a_reader_sees_one_moment(database: Database) -> None:
    """A snapshot for an agent is read in several statements; it must not be of several times."""
    await database.write(adding("p1"))
    loop = asyncio.get_running_loop()

    async def work(view: View) -> tuple[int, int]:
        before = len(await view.all(ALL))
        asyncio.run_coroutine_threadsafe(database.write(adding("p2")), loop).result(timeout=20)
        return before, len(await view.all(ALL))

    assert await database.read(work) == (1, 1)
    assert await ids(database) == ["p1", "p2"]
