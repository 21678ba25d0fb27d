# SPDX-License-Identifier: Apache-2.0
"""Rows are moved from one database to another, whole or not at all, and compared one by one."""

from pathlib import Path

import pytest

from pipecd_controlplane.store import schema
from pipecd_controlplane.store.move.decide import MoveStep
from pipecd_controlplane.store.move.open import open_source
from pipecd_controlplane.store.open import DatabaseConfig, SqliteFolder, open_database
from pipecd_controlplane.store.postgres.config import PostgresServer
from pipecd_model.errors import StateError
from pipecd_test_support.moved_databases import (
    HeardProgress,
    opened_move,
    read_rows,
    run_postgres,
    run_sqlite,
)


async def start_server(config: DatabaseConfig) -> None:
    """Opens a database as a server does when it starts."""
    async with open_database(config, on_commit=lambda _changes: None):
        pass


async def test_every_table_is_filled_moved_and_the_same(
    folder: SqliteFolder, postgres: PostgresServer
) -> None:
    """A table that is added to the schema must be filled by `filled_stores`, or this fails."""
    progress = HeardProgress()

    async with opened_move(folder, postgres, progress=progress) as move:
        assert await move.run() is MoveStep.BEGIN

    before, after = await read_rows(folder), await read_rows(postgres)
    assert before.keys() == schema.metadata.tables.keys()
    assert [name for name, rows in before.items() if not rows] == []
    assert after == before
    assert progress.rows == {name: len(rows) for name, rows in before.items()}


async def test_what_was_moved_goes_back_the_same(
    folder: SqliteFolder, postgres: PostgresServer, tmp_path: Path
) -> None:
    back = SqliteFolder(folder=tmp_path / "back")

    async with opened_move(folder, postgres) as move:
        await move.run()
    async with opened_move(postgres, back) as move:
        await move.run()

    assert await read_rows(back) == await read_rows(folder)
    await start_server(back)


async def test_the_target_has_all_indexes(folder: SqliteFolder, postgres: PostgresServer) -> None:
    async with opened_move(folder, postgres) as move:
        await move.run()

    found = await run_postgres(
        postgres.url, "SELECT indexname FROM pg_indexes WHERE schemaname = current_schema()"
    )
    wanted = {index.name for table in schema.metadata.tables.values() for index in table.indexes}
    assert wanted <= {name for (name,) in found}


async def test_a_server_uses_the_target_and_not_the_source(
    folder: SqliteFolder, postgres: PostgresServer
) -> None:
    async with opened_move(folder, postgres) as move:
        await move.run()

    await start_server(postgres)
    with pytest.raises(StateError, match="what was in this database is in the database 'test") as e:
        await start_server(folder)
    assert "pipecd move --undo" in e.value.hint


async def test_a_move_that_is_done_again_does_nothing(
    folder: SqliteFolder, postgres: PostgresServer
) -> None:
    """Also when a server has changed the target meanwhile."""
    async with opened_move(folder, postgres) as move:
        await move.run()
    await run_postgres(postgres.url, "DELETE FROM event")

    async with opened_move(folder, postgres) as move:
        assert await move.run() is MoveStep.NOTHING

    assert await run_postgres(postgres.url, "SELECT * FROM event") == []


async def test_a_source_that_could_not_be_marked_is_marked_by_the_next_run(
    folder: SqliteFolder, postgres: PostgresServer
) -> None:
    async with opened_move(folder, postgres) as move:
        await move.run()
    run_sqlite(folder.folder, "UPDATE pipecd_move SET state = 'begun'")

    async with opened_move(folder, postgres) as move:
        assert await move.run() is MoveStep.MARK_SOURCE

    with pytest.raises(StateError, match="what was in this database"):
        await start_server(folder)


@pytest.mark.parametrize(
    ("statement", "sentence"),
    [
        ("UPDATE deployment SET version = version + 1", "differs in version"),
        ("UPDATE application SET data = data || '\\x00'", "differs in data"),
        ("UPDATE session SET subject = subject || ' '", "session 'session' differs in subject"),
        ("DELETE FROM lease", "lease 'piped' is missing in the target"),
        (
            "INSERT INTO shared_object VALUES ('app', 'plugin', 'key', 'ours', '', '', 0, '')",
            "shared_object 'app' 'plugin' 'key' is in the target only",
        ),
        (
            "INSERT INTO project SELECT 'zzz', data, version FROM project LIMIT 1",
            "project 'zzz' is in the target only",
        ),
    ],
)
async def test_a_row_that_is_not_the_same_is_found_and_named(
    folder: SqliteFolder, postgres: PostgresServer, statement: str, sentence: str
) -> None:
    progress = HeardProgress()
    async with opened_move(folder, postgres) as move:
        await move.run()
    await run_postgres(postgres.url, statement)

    async with opened_move(folder, postgres, progress=progress) as move:
        found = await move.verify()
        with pytest.raises(StateError, match="are not those of the source"):
            move.refuse_differences(found)

    assert any(sentence in line for line in progress.lines), progress.lines


async def test_a_target_that_was_changed_on_the_way_is_not_complete(
    folder: SqliteFolder, postgres: PostgresServer
) -> None:
    """Somebody changed a row between two runs: the second one finds it, and can start over."""
    async with opened_move(folder, postgres) as move:
        await move.run()
    await run_postgres(postgres.url, "UPDATE pipecd_move SET state = 'begun'")
    run_sqlite(folder.folder, "UPDATE pipecd_move SET state = 'begun'")
    await run_postgres(postgres.url, "UPDATE hook SET secret = 'mine'")

    async with opened_move(folder, postgres) as move:
        with pytest.raises(StateError, match="1 rows of the database") as caught:
            await move.run()
    with pytest.raises(StateError, match="has not got everything yet"):
        await start_server(postgres)
    assert "--start-over" in caught.value.hint
    async with opened_move(folder, postgres) as move:
        assert await move.run(start_over=True) is MoveStep.BEGIN

    assert await read_rows(postgres) == await read_rows(folder)


async def test_a_broken_audit_of_the_source_is_told_and_moved_as_it_is(
    folder: SqliteFolder, postgres: PostgresServer
) -> None:
    run_sqlite(folder.folder, "DELETE FROM audit_record WHERE project_id = 'ours' AND sequence = 5")
    progress = HeardProgress()

    async with opened_move(folder, postgres, progress=progress) as move:
        await move.run()

    [told] = [line for line in progress.lines if "audit" in line]
    assert "the audit of the source was before broken: ours: record 6 does not fit" in told


@pytest.mark.parametrize(
    ("statement", "sentence"),
    [
        (
            "UPDATE application SET name = 'a' || char(0) || 'b' WHERE id LIKE 'app-3%'",
            "application 'app-3-Zürich': name holds a NUL character",
        ),
        (
            "UPDATE application SET name = char(64976) || '0' WHERE id LIKE 'app-3%'",
            "application 'app-3-Zürich': name holds a character that pipecd keeps for itself",
        ),
        ("UPDATE lease SET epoch = 1.5", "lease 'piped': epoch is no whole number"),
        ("UPDATE hook SET version = 4294967296", "hook 'hook': version does not fit into 32 bits"),
        ("UPDATE hook SET data = 'text'", "hook 'hook': data is no message"),
        ("UPDATE hook SET secret = x'ff'", "hook 'hook': secret is no text"),
    ],
)
async def test_a_row_that_cannot_be_kept_is_named_before_anything_is_changed(
    folder: SqliteFolder, postgres: PostgresServer, statement: str, sentence: str
) -> None:
    run_sqlite(folder.folder, statement)

    async with opened_move(folder, postgres) as move:
        with pytest.raises(StateError, match="cannot be moved as they are") as caught:
            await move.run()

    assert sentence in str(caught.value)
    await start_server(folder)
    assert (
        await run_postgres(
            postgres.url, "SELECT tablename FROM pg_tables WHERE schemaname = 'public'"
        )
        == []
    )


async def test_a_text_that_is_none_is_named(folder: SqliteFolder, postgres: PostgresServer) -> None:
    run_sqlite(folder.folder, "UPDATE hook SET secret = CAST(x'ff' AS TEXT)")

    async with opened_move(folder, postgres) as move:
        with pytest.raises(StateError, match="holds a text that is not UTF-8") as caught:
            await move.run()

    assert "hook b'hook'" in str(caught.value)


class TestTargets:
    async def test_one_with_rows_is_refused(
        self, folder: SqliteFolder, postgres: PostgresServer
    ) -> None:
        await start_server(postgres)
        await run_postgres(postgres.url, "INSERT INTO project VALUES ('theirs', '', 1)")

        async with opened_move(folder, postgres) as move:
            with pytest.raises(StateError, match="is not empty"):
                await move.run()

        await start_server(folder)

    async def test_one_with_empty_tables_is_taken(
        self, folder: SqliteFolder, postgres: PostgresServer
    ) -> None:
        await start_server(postgres)

        async with opened_move(folder, postgres) as move:
            assert await move.run() is MoveStep.BEGIN

    async def test_one_with_tables_of_another_program_is_refused(
        self, folder: SqliteFolder, postgres: PostgresServer
    ) -> None:
        await run_postgres(postgres.url, "CREATE TABLE orders (id integer)")

        async with opened_move(folder, postgres) as move:
            with pytest.raises(StateError, match="has tables of another program: orders"):
                await move.run()

        await start_server(folder)

    async def test_one_without_rights_is_refused(
        self, folder: SqliteFolder, postgres: PostgresServer
    ) -> None:
        await run_postgres(postgres.url, "REVOKE CREATE ON SCHEMA public FROM PUBLIC")
        await run_postgres(
            postgres.url,
            "DO $$ BEGIN CREATE ROLE reader LOGIN; EXCEPTION WHEN duplicate_object"
            " THEN NULL; END $$",
        )
        weak = PostgresServer(url=postgres.url.replace("postgres@", "reader@"))

        async with opened_move(folder, weak) as move:
            with pytest.raises(StateError, match="the user of the database may not do this"):
                await move.run()

        await start_server(folder)

    async def test_one_of_another_schema_is_refused(
        self, folder: SqliteFolder, postgres: PostgresServer
    ) -> None:
        await start_server(postgres)
        await run_postgres(postgres.url, "UPDATE pipecd_schema SET version = 8")

        async with opened_move(folder, postgres) as move:
            with pytest.raises(StateError, match="has schema 8, this pipecd"):
                await move.run()

    async def test_one_of_another_move_is_refused_until_that_is_given_up(
        self, folder: SqliteFolder, postgres: PostgresServer
    ) -> None:
        await start_server(postgres)
        async with opened_move(folder, postgres) as move:
            await move.run()
        await run_postgres(
            postgres.url, "UPDATE pipecd_move SET state = 'begun', move_id = 'other'"
        )
        run_sqlite(folder.folder, "DELETE FROM pipecd_move")

        async with opened_move(folder, postgres) as move:
            with pytest.raises(StateError, match="is the target of another move"):
                await move.run()
            assert await move.run(start_over=True) is MoveStep.BEGIN

    async def test_a_complete_one_cannot_be_started_over(
        self, folder: SqliteFolder, postgres: PostgresServer
    ) -> None:
        async with opened_move(folder, postgres) as move:
            await move.run()

        async with opened_move(folder, postgres) as move:
            with pytest.raises(StateError, match="holds no move that could be started over"):
                await move.run(start_over=True)

        assert await read_rows(postgres) == await read_rows(folder)

    async def test_a_folder_with_a_database_is_refused(
        self, folder: SqliteFolder, postgres: PostgresServer, tmp_path: Path
    ) -> None:
        async with opened_move(folder, postgres) as move:
            await move.run()

        async with opened_move(postgres, folder) as move:
            with pytest.raises(StateError, match="is not empty"):
                await move.run()


class TestSources:
    async def test_an_older_schema_is_refused(
        self, folder: SqliteFolder, postgres: PostgresServer
    ) -> None:
        run_sqlite(folder.folder, "PRAGMA user_version = 8")

        with pytest.raises(StateError, match="has schema 8") as caught:
            async with opened_move(folder, postgres):
                pass

        assert "start the server of this version once" in caught.value.hint

    async def test_an_older_schema_of_a_move_that_is_begun_is_given_up_first(
        self, folder: SqliteFolder, postgres: PostgresServer
    ) -> None:
        """No server may migrate it before that, so the hint must not end in a circle."""
        async with opened_move(folder, postgres) as move:
            await move.run()
        run_sqlite(folder.folder, "PRAGMA user_version = 8")
        run_sqlite(folder.folder, "UPDATE pipecd_move SET state = 'begun'")

        with pytest.raises(StateError, match="has schema 8") as caught:
            async with opened_move(folder, postgres):
                pass
        async with open_source(folder, allows_older=True) as source:
            await source.write_record(None)

        assert "give that move up with `pipecd move --undo`, start the server" in caught.value.hint
        assert run_sqlite(folder.folder, "SELECT * FROM pipecd_move") == []

    async def test_an_older_schema_of_postgresql_is_refused(
        self, postgres: PostgresServer, tmp_path: Path
    ) -> None:
        await start_server(postgres)
        await run_postgres(postgres.url, "UPDATE pipecd_schema SET version = 8")

        with pytest.raises(StateError, match="has schema 8, this pipecd"):
            async with opened_move(postgres, SqliteFolder(folder=tmp_path / "back")):
                pass
        async with open_source(postgres, allows_older=True) as source:
            assert await source.read_record() is None

    async def test_a_newer_schema_is_refused(
        self, folder: SqliteFolder, postgres: PostgresServer
    ) -> None:
        run_sqlite(folder.folder, "PRAGMA user_version = 999")

        with pytest.raises(StateError, match="has schema 999, this pipecd knows"):
            async with opened_move(folder, postgres):
                pass

    async def test_a_folder_without_a_database_is_refused_and_stays_so(
        self, tmp_path: Path, postgres: PostgresServer
    ) -> None:
        for missing in (tmp_path, tmp_path / "nowhere"):
            with pytest.raises(StateError, match="there is no"):
                async with opened_move(SqliteFolder(folder=missing), postgres):
                    pass

        assert not (tmp_path / "pipecd.db").exists()
        assert not (tmp_path / "nowhere").exists()

    async def test_an_empty_database_of_postgresql_is_refused(
        self, tmp_path: Path, postgres: PostgresServer
    ) -> None:
        with pytest.raises(StateError, match="holds nothing of pipecd"):
            async with opened_move(postgres, SqliteFolder(folder=tmp_path / "back")):
                pass

    async def test_one_that_has_not_got_everything_yet_is_refused(
        self, folder: SqliteFolder, postgres: PostgresServer, tmp_path: Path
    ) -> None:
        async with opened_move(folder, postgres) as move:
            await move.run()
        await run_postgres(postgres.url, "UPDATE pipecd_move SET state = 'begun'")

        async with opened_move(postgres, SqliteFolder(folder=tmp_path / "back")) as move:
            with pytest.raises(StateError, match="the source has not got everything yet"):
                await move.run()

    async def test_one_that_was_moved_elsewhere_is_refused(
        self, folder: SqliteFolder, postgres: PostgresServer, tmp_path: Path
    ) -> None:
        async with opened_move(folder, postgres) as move:
            await move.run()

        async with opened_move(folder, SqliteFolder(folder=tmp_path / "other")) as move:
            with pytest.raises(StateError, match="everything was moved to the database"):
                await move.run()

    async def test_a_running_server_is_refused_on_either_side(
        self, folder: SqliteFolder, postgres: PostgresServer
    ) -> None:
        async with open_database(folder, on_commit=lambda _changes: None):
            with pytest.raises(StateError, match="is in use by another pipecd"):
                async with opened_move(folder, postgres):
                    pass
        async with open_database(postgres, on_commit=lambda _changes: None):
            with pytest.raises(StateError, match="a pipecd uses this database"):
                async with opened_move(folder, postgres):
                    pass

    async def test_no_server_starts_during_a_move(
        self, folder: SqliteFolder, postgres: PostgresServer
    ) -> None:
        async with opened_move(folder, postgres):
            with pytest.raises(StateError, match="in use by another pipecd"):
                await start_server(folder)
            with pytest.raises(StateError, match="somebody uses this database alone"):
                await start_server(postgres)
