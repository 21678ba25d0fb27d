# SPDX-License-Identifier: Apache-2.0
"""A file that is not ours, not whole or not free is refused with a sentence, and left alone."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from pipecd_controlplane.store import schema
from pipecd_controlplane.store.sqlite.database import open_sqlite
from pipecd_controlplane.store.sqlite.file import DATABASE_FILE
from pipecd_model.errors import StateError


async def opened(folder: Path) -> None:
    async with open_sqlite(folder, on_commit=lambda _changes: None):
        pass


async def refusal(folder: Path) -> str:
    with pytest.raises(StateError) as caught:
        await opened(folder)
    assert caught.value.hint
    return str(caught.value)


@pytest.mark.parametrize("content", [b"x", b"not a database at all" * 300, b"SQLite format 2\x00"])
async def test_a_file_of_another_kind_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / DATABASE_FILE
    path.write_bytes(content)

    assert "it is not an SQLite file" in await refusal(tmp_path)
    assert path.read_bytes() == content


async def test_another_programs_database_is_refused(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / DATABASE_FILE)) as other:
        other.execute("CREATE TABLE songs (title TEXT)")

    assert "another program made it" in await refusal(tmp_path)


async def test_a_database_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    await opened(tmp_path)
    with closing(sqlite3.connect(tmp_path / DATABASE_FILE)) as newer:
        newer.execute(f"PRAGMA user_version = {schema.SCHEMA_VERSION + 1}")

    assert f"has schema {schema.SCHEMA_VERSION + 1}" in await refusal(tmp_path)


async def test_a_database_of_an_older_version_gets_what_it_lacks(tmp_path: Path) -> None:
    await opened(tmp_path)
    with closing(sqlite3.connect(tmp_path / DATABASE_FILE, isolation_level=None)) as older:
        older.execute("INSERT INTO project (id, data, version) VALUES ('p', x'', 1)")
        older.execute("DROP TABLE lease")
        older.execute("PRAGMA user_version = 1")

    await opened(tmp_path)

    with closing(sqlite3.connect(tmp_path / DATABASE_FILE)) as newer:
        assert newer.execute("SELECT id FROM project").fetchall() == [("p",)]
        assert newer.execute("SELECT count(*) FROM lease").fetchone() == (0,)
        assert newer.execute("PRAGMA user_version").fetchone() == (schema.SCHEMA_VERSION,)


@pytest.mark.parametrize("missing", [1, 100, 4096, 40_000])
async def test_a_cut_file_is_refused(tmp_path: Path, missing: int) -> None:
    await opened(tmp_path)
    path = tmp_path / DATABASE_FILE
    whole = path.read_bytes()
    path.write_bytes(whole[:-missing])

    said = await refusal(tmp_path)
    assert f"it is cut short, {len(whole) - missing} bytes of {len(whole)}" in said
    assert path.read_bytes() == whole[:-missing]


async def test_a_damaged_page_is_refused(tmp_path: Path) -> None:
    await opened(tmp_path)
    path = tmp_path / DATABASE_FILE
    content = bytearray(path.read_bytes())
    content[4096 * 3 : 4096 * 3 + 200] = b"\xff" * 200
    path.write_bytes(content)

    assert "cannot use the database" in await refusal(tmp_path)


async def test_a_file_that_somebody_else_has_locked_is_refused(tmp_path: Path) -> None:
    await opened(tmp_path)
    with closing(sqlite3.connect(tmp_path / DATABASE_FILE, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")

        assert "is locked by another program" in await refusal(tmp_path)


async def test_a_file_left_empty_by_a_crash_is_used(tmp_path: Path) -> None:
    (tmp_path / DATABASE_FILE).touch()

    await opened(tmp_path)
    await opened(tmp_path)


async def test_only_its_owner_can_read_the_data(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    async with open_sqlite(folder, on_commit=lambda _changes: None):
        modes = {path.name: path.stat().st_mode & 0o077 for path in [folder, *folder.iterdir()]}

    assert set(modes.values()) == {0}


async def test_what_was_acknowledged_survives_a_power_cut(tmp_path: Path) -> None:
    """FULL: a commit is on the disk before it is answered; WAL: readers never wait for it."""
    async with open_sqlite(tmp_path, on_commit=lambda _changes: None) as database:
        connection = database._writer._connection
        mode = connection.execute("PRAGMA journal_mode").fetchone()[0]
        synchronous = connection.execute("PRAGMA synchronous").fetchone()[0]

    assert (mode, synchronous) == ("wal", 2)


async def test_a_second_owner_of_the_folder_is_refused(tmp_path: Path) -> None:
    async with open_sqlite(tmp_path, on_commit=lambda _changes: None):
        assert "is in use by another pipecd" in await refusal(tmp_path)

    await opened(tmp_path)


async def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    assert "cannot use the data folder" in await refusal(tmp_path / "file" / "data")
