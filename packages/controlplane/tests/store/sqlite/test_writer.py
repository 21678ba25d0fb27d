# SPDX-License-Identifier: Apache-2.0
"""Many units of work in one commit: together on disk, apart in failure."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from pipecd_controlplane.store.changes import Change
from pipecd_controlplane.store.database import Database, Transaction
from pipecd_controlplane.store.sqlite import repeating
from pipecd_controlplane.store.sqlite.database import open_sqlite
from pipecd_controlplane.store.sqlite.repeating import NotRepeatableError
from pipecd_model.errors import UnavailableError
from pipecd_test_support.database_contract import DatabaseContract, add_project, list_ids


class TestSqlite(DatabaseContract):
    @pytest.fixture(params=[False, True], ids=["once", "repeated"])
    async def database(
        self, request: pytest.FixtureRequest, tmp_path: Path, told: list[Change]
    ) -> AsyncIterator[Database]:
        async with open_sqlite(
            tmp_path, on_commit=told.extend, repeat_units=request.param
        ) as opened:
            yield opened


async def test_a_unit_that_does_something_else_when_repeated_is_found_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In tests every unit is run twice: a database that retries must not surprise it."""
    # Both runs are in one second, also when a new one begins between them.
    monkeypatch.setattr(repeating, "time", SimpleNamespace(time=lambda: 1.0))
    seen: list[str] = []

    async def growing(_transaction: Transaction) -> int:
        seen.append("again")
        return len(seen)

    async def writing(transaction: Transaction) -> None:
        seen.append("again")
        await add_project(f"p{len(seen)}")(transaction)

    async with open_sqlite(
        tmp_path, on_commit=lambda _changes: None, repeat_units=True
    ) as database:
        for work in (growing, writing):
            with pytest.raises(NotRepeatableError, match="differs"):
                await database.write(work)
        assert await list_ids(database) == []


async def test_what_is_told_can_be_read_already(tmp_path: Path) -> None:
    """A watcher reads the row it is told of; it must never find the one before."""
    seen: list[str] = []

    def on_commit(_changes: object) -> None:
        with sqlite3.connect(tmp_path / "pipecd.db") as reader:
            seen.extend(row[0] for row in reader.execute("SELECT id FROM project"))
        reader.close()

    async with open_sqlite(tmp_path, on_commit=on_commit) as database:
        await database.write(add_project("p"))

    assert seen == ["p"]


async def test_what_was_asked_for_before_the_end_is_written(tmp_path: Path) -> None:
    async with open_sqlite(tmp_path, on_commit=lambda _changes: None) as database:
        waiting = [
            asyncio.ensure_future(database.write(add_project(f"p{n:03}"))) for n in range(100)
        ]
        await asyncio.sleep(0)
    for task in waiting:
        await task

    with pytest.raises(UnavailableError, match="closed"):
        await database.write(add_project("late"))
    async with open_sqlite(tmp_path, on_commit=lambda _changes: None) as again:
        assert len(await list_ids(again)) == 100


async def test_a_full_disk_is_a_passing_trouble(tmp_path: Path, told: list[Change]) -> None:
    """The caller may try again, and the server lives."""
    async with open_sqlite(tmp_path, on_commit=told.extend) as database:
        await database.write(add_project("p1"))
        connection = database._writer._connection
        pages = connection.execute("PRAGMA page_count").fetchone()[0]
        connection.execute(f"PRAGMA max_page_count = {pages}")

        large = add_project("large", b"x" * 100_000)
        with pytest.raises(UnavailableError, match=r"cannot write to the database: .*full"):
            await database.write(large)

        connection.execute("PRAGMA max_page_count = 100000")
        await database.write(large)
        assert await list_ids(database) == ["large", "p1"]
