# SPDX-License-Identifier: Apache-2.0
"""A database that is full, read-only, slow, closed or another one: a sentence and no harm."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import asyncpg
import pytest
from sqlalchemy import bindparam, select

from pipecd_controlplane.http.probes import Probes
from pipecd_controlplane.store import schema
from pipecd_controlplane.store.database import Database, Transaction
from pipecd_controlplane.store.migrations import MIGRATIONS
from pipecd_controlplane.store.postgres.config import PostgresServer
from pipecd_controlplane.store.postgres.database import PostgresDatabase, open_postgres
from pipecd_controlplane.store.stores import stores
from pipecd_model.errors import ConfigError, StateError, UnavailableError
from pipecd_test_support.database_contract import INSERT, add_project, list_ids
from pipecd_test_support.postgres import (
    WITH_PASSWORD,
    PostgresForTests,
    running_postgres,
    shared_postgres,
)
from pipecd_test_support.small_disk import SmallDisk
from pipecd_test_support.waiting import Soon, wait_answer

PATIENCE_SECONDS = 0.3
"""Of these tests, with a server that is not to come back while they look."""


@pytest.fixture
def server() -> PostgresForTests:
    return shared_postgres()


@pytest.fixture
def name(server: PostgresForTests) -> Iterator[str]:
    """A database with tables, which a test may spoil."""
    made = server.clone_tables(server.make_name())
    yield made
    server.drop_database(made)


@pytest.fixture
def where(server: PostgresForTests, name: str) -> PostgresServer:
    return PostgresServer(url=server.url(name), wait_seconds=1, takeover_seconds=1)


@pytest.fixture
def role(server: PostgresForTests) -> Iterator[str]:
    """A user without any rights."""
    made = f"somebody{secrets.token_hex(4)}"
    server.run_sql(f"CREATE ROLE {made} LOGIN")
    yield made
    server.run_sql(f"DROP ROLE {made}")


@asynccontextmanager
async def opening(where: PostgresServer) -> AsyncIterator[PostgresDatabase]:
    async with open_postgres(where, lambda _changes: None) as database:
        database._patience_seconds = PATIENCE_SECONDS
        yield database


async def refuse(where: PostgresServer, sentence: str) -> StateError:
    """A start that must fail; returns what it says."""
    with pytest.raises(StateError, match=sentence) as caught:
        async with opening(where):
            pass
    assert caught.value.hint
    return caught.value


def add_two(data: bytes = b"") -> Callable[[Transaction], Awaitable[None]]:
    """A unit of two statements, of which the second one fails."""

    async def work(transaction: Transaction) -> None:
        for project_id in ("half", "other half"):
            await transaction.run(INSERT, id=project_id, version=1, data=data)

    return work


async def fail(database: Database, sentence: str, data: bytes = b"") -> None:
    """A write that must fail, with nothing of it kept; what is there can be read."""
    with pytest.raises(UnavailableError, match=sentence) as caught:
        await database.write(add_two(data))
    assert caught.value.hint
    assert await list_ids(database) == ["before"]


async def go_on(database: Database, soon: Soon) -> None:
    """The cause is gone: without a restart all is well again."""

    async def write() -> None:
        while True:
            with suppress(UnavailableError):
                await database.write(add_project("after"))
                return

    await soon(write())
    assert await list_ids(database) == ["after", "before"]


GET = select(schema.project.c.data).where(schema.project.c.id == bindparam("id"))

FAIL = """
CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    {}
    RETURN NEW;
END $$;
CREATE TRIGGER fail BEFORE INSERT ON project FOR EACH ROW
    WHEN (NEW.id = 'other half') EXECUTE FUNCTION fail()
"""


@pytest.mark.parametrize(
    ("code", "sentence"),
    [
        ("53100", "cannot write to the database: no"),
        ("53200", "cannot write to the database: no"),
        ("53000", "server of the database lacks something: no"),
        ("58030", "server of the database has failed: no"),
        ("XX001", "server of the database has failed: no"),
        ("57014", "the database took too long: no"),
        ("42501", "user of the database may not do this: no"),
        ("25006", "the database may only be read: no"),
        ("57P01", "the database does not answer: no"),
    ],
)
async def test_whatever_the_server_reports_is_a_sentence_and_no_harm(
    server: PostgresForTests, where: PostgresServer, name: str, soon: Soon, code: str, sentence: str
) -> None:
    raised = f"RAISE EXCEPTION 'no' USING ERRCODE = '{code}';"
    async with opening(where) as database:
        await database.write(add_project("before"))
        server.run_sql(FAIL.format(raised), database=name)
        await fail(database, sentence)

        server.run_sql("DROP FUNCTION fail CASCADE", database=name)
        await go_on(database, soon)


async def test_a_statement_that_takes_too_long_is_ended(
    server: PostgresForTests, where: PostgresServer, name: str, soon: Soon
) -> None:
    async with opening(replace(where, statement_seconds=0.5)) as database:
        await database.write(add_project("before"))
        server.run_sql(FAIL.format("PERFORM pg_sleep(600);"), database=name)
        await fail(database, "took too long: canceling statement due to statement timeout")

        server.run_sql("DROP FUNCTION fail CASCADE", database=name)
        await go_on(database, soon)


@asynccontextmanager
async def locking(
    server: PostgresForTests, name: str
) -> AsyncIterator["asyncpg.Connection[asyncpg.Record]"]:
    """Another session holds the table of the projects."""
    connection = await asyncpg.connect(server.url(name))
    try:
        async with connection.transaction():
            await connection.execute("LOCK TABLE project IN SHARE MODE")
            yield connection
    finally:
        await connection.close()


async def test_a_lock_of_another_session_holds_up_nobody_for_ever(
    server: PostgresForTests, where: PostgresServer, name: str, soon: Soon
) -> None:
    async with opening(replace(where, lock_seconds=0.3)) as database:
        await database.write(add_project("before"))
        async with locking(server, name):
            await fail(database, "took too long: canceling statement due to lock timeout")

        await go_on(database, soon)


async def test_one_that_waits_for_a_connection_does_not_wait_for_ever(
    server: PostgresForTests, where: PostgresServer, name: str, soon: Soon
) -> None:
    async with opening(replace(where, connections=1, acquire_seconds=0.2)) as database:
        await database.write(add_project("before"))
        async with asyncio.TaskGroup() as tasks:
            async with locking(server, name) as other:
                stuck = tasks.create_task(database.write(add_project("after")))
                await soon(wait_blocked(other))
                for ask in (lambda: list_ids(database), lambda: database.write(add_two())):
                    with pytest.raises(UnavailableError, match=r"no connection .* free in 0\.2 s"):
                        await ask()
            await stuck
        assert await list_ids(database) == ["after", "before"]


async def wait_blocked(connection: "asyncpg.Connection[asyncpg.Record]") -> None:
    """Waits until a session waits for what this one has locked."""
    while not await connection.fetchval(BLOCKED):
        pass


BLOCKED = """
SELECT count(*) FROM pg_stat_activity WHERE pg_backend_pid() = ANY(pg_blocking_pids(pid))
"""


async def test_a_full_disk_refuses_writes_with_a_sentence_until_there_is_space(
    small_disk: SmallDisk, soon: Soon
) -> None:
    with running_postgres() as own:
        tables = small_disk.make_folder("tables", is_for_postgres=True)
        own.run_sql(f"CREATE TABLESPACE small LOCATION '{tables}'")
        own.clone_tables("narrow", "TABLESPACE small")
        async with opening(PostgresServer(url=own.url("narrow"))) as database:
            await database.write(add_project("before"))
            small_disk.fill()
            await fail(database, "cannot write to the database", secrets.token_bytes(1 << 20))

            small_disk.empty()
            await go_on(database, soon)


async def test_a_standby_is_refused_until_it_is_promoted() -> None:
    with running_postgres() as first:
        first.clone_tables("kept")
        async with opening(PostgresServer(url=first.url("kept"))) as database:
            await database.write(add_project("before"))
        with running_postgres(standby_of=first) as standby:
            where = PostgresServer(url=standby.url("kept"))
            await refuse(where, "the database may only be read")

            first.stop()
            standby.run_sql("SELECT pg_promote()")
            async with opening(where) as database:
                assert await list_ids(database) == ["before"]
                await database.write(add_project("after"))


async def show_read_only(server: PostgresForTests) -> str:
    """Asked on a new connection: the server has told the older ones before it opens one."""
    connection = await asyncpg.connect(server.url("postgres"))
    try:
        return str(await connection.fetchval("SHOW default_transaction_read_only"))
    finally:
        await connection.close()


async def test_a_server_that_may_only_be_read_for_a_while(soon: Soon, tmp_path: Path) -> None:
    with running_postgres() as own:
        own.clone_tables("kept")
        async with opening(PostgresServer(url=own.url("kept"))) as database:
            kept = stores(database, lambda: 1)
            assert await Probes(kept, tmp_path).health() == ""
            await database.write(add_project("before"))
            own.run_sql("ALTER SYSTEM SET default_transaction_read_only = on")
            own.run_sql("SELECT pg_reload_conf()")
            await wait_answer(partial(show_read_only, own), lambda shown: shown == "on")
            await fail(database, "the database may only be read")
            assert "may only be read" in await Probes(kept, tmp_path).health()

            own.run_sql("ALTER SYSTEM RESET default_transaction_read_only")
            own.run_sql("SELECT pg_reload_conf()")
            await go_on(database, soon)


async def test_a_first_start_on_a_database_that_may_only_be_read_is_refused(
    server: PostgresForTests,
) -> None:
    name = server.create_database(is_empty=True)
    server.run_sql(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    try:
        await refuse(PostgresServer(url=server.url(name)), "the database may only be read")
    finally:
        server.drop_database(name)


async def test_a_user_that_may_make_no_tables_is_refused(
    server: PostgresForTests, role: str
) -> None:
    name = server.create_database(is_empty=True)
    try:
        said = await refuse(
            PostgresServer(url=server.url(name, user=role)), "may not do this: permission denied"
        )
        assert "CREATE on the schema" in said.hint
    finally:
        server.drop_database(name)


async def test_a_user_that_may_only_read_is_refused_at_the_start(
    server: PostgresForTests, where: PostgresServer, name: str, role: str
) -> None:
    theirs = replace(where, url=server.url(name, user=role))
    server.run_sql(f"GRANT SELECT ON ALL TABLES IN SCHEMA public TO {role}", database=name)
    await refuse(theirs, r"lacks rights: DELETE on \w+ and \d+ more")

    server.run_sql(f"GRANT ALL ON ALL TABLES IN SCHEMA public TO {role}", database=name)
    async with opening(theirs) as database:
        await database.write(add_project("before"))
    server.run_sql(f"DROP OWNED BY {role}", database=name)


async def test_rights_that_are_taken_away_and_given_back(
    server: PostgresForTests, where: PostgresServer, name: str, role: str, soon: Soon
) -> None:
    theirs = replace(where, url=server.url(name, user=role))
    server.run_sql(f"GRANT ALL ON ALL TABLES IN SCHEMA public TO {role}", database=name)
    async with opening(theirs) as database:
        await database.write(add_project("before"))
        server.run_sql(f"REVOKE INSERT ON project FROM {role}", database=name)
        await fail(database, "may not do this: permission denied for table project")

        server.run_sql(f"GRANT INSERT ON project TO {role}", database=name)
        await go_on(database, soon)
    server.run_sql(f"DROP OWNED BY {role}", database=name)


@pytest.fixture
def user_with_password(server: PostgresForTests, name: str) -> Iterator[str]:
    server.run_sql(f"CREATE ROLE {WITH_PASSWORD} LOGIN PASSWORD 'open-sesame'")
    server.run_sql(f"GRANT ALL ON ALL TABLES IN SCHEMA public TO {WITH_PASSWORD}", database=name)
    yield WITH_PASSWORD
    server.run_sql(f"DROP OWNED BY {WITH_PASSWORD}", database=name)
    server.run_sql(f"DROP ROLE {WITH_PASSWORD}")


async def test_a_password_that_is_wrong_is_refused_and_a_new_one_is_read_without_a_restart(
    server: PostgresForTests,
    where: PostgresServer,
    name: str,
    user_with_password: str,
    tmp_path: Path,
    soon: Soon,
    caplog: pytest.LogCaptureFixture,
) -> None:
    file = tmp_path / "password"
    theirs = replace(where, url=server.url(name, user=user_with_password), password_file=file)
    file.write_text("wrong-word\n")
    await refuse(theirs, "the database refuses the user: password authentication failed")

    file.write_text("open-sesame\n")
    async with opening(theirs) as database:
        await database.write(add_project("before"))
        server.run_sql(f"ALTER ROLE {user_with_password} PASSWORD 'new-word'")
        server.run_sql(CUT_OFF.format(name))
        with pytest.raises(UnavailableError, match="the database refuses the user") as caught:
            await list_ids(database)
        assert caught.value.hint

        file.write_text("new-word\n")
        await go_on(database, soon)
    for secret in ("wrong-word", "open-sesame", "new-word"):
        assert secret not in caplog.text


async def test_a_password_file_that_is_missing_refuses_the_start(
    where: PostgresServer, tmp_path: Path
) -> None:
    theirs = replace(where, password_file=tmp_path / "password")
    with pytest.raises(ConfigError, match=r"the password of the database: .*No such"):
        async with opening(theirs):
            pass


async def test_a_password_file_that_is_gone_for_a_while_is_no_callers_fault(
    where: PostgresServer, tmp_path: Path, soon: Soon
) -> None:
    """An agent takes INVALID_ARGUMENT for the last word, and drops what it has reported."""
    file = tmp_path / "password"
    file.write_text("open-sesame\n")
    async with opening(replace(where, password_file=file)) as database:
        file.unlink()
        for ask in (
            lambda: database.write(add_project("before")),
            lambda: list_ids(database),
            lambda: database.one(GET, id="before"),
        ):
            with pytest.raises(UnavailableError, match="cannot read the password") as caught:
                await ask()
            assert "passwordFile" in caught.value.hint

        file.write_bytes(b"\xff")
        with pytest.raises(UnavailableError, match="cannot read the password"):
            await list_ids(database)

        file.write_text("open-sesame\n")
        await database.write(add_project("before"))
        await go_on(database, soon)

        # A connection that is open needs no password.
        file.unlink()
        assert await list_ids(database) == ["after", "before"]


CUT_OFF = "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname = '{}'"


@pytest.mark.parametrize("character", ["/", "#", "?", "@", ":", "%", " ", "["])
async def test_no_piece_of_a_password_in_a_url_is_shown(character: str) -> None:
    url = f"postgresql://pipecd:open{character}sesame@127.0.0.1:1/x"
    where = PostgresServer(url=url, wait_seconds=0)

    with pytest.raises((ConfigError, StateError)) as caught:
        async with opening(where):
            pass
    for piece in ("open", "sesame"):
        assert piece not in f"{caught.value} {caught.value.hint} {where!r}"


async def test_a_server_that_takes_no_more_connections_is_said(
    server: PostgresForTests, where: PostgresServer, name: str
) -> None:
    server.run_sql(f"ALTER DATABASE {name} CONNECTION LIMIT 0")
    role = "counted"
    server.run_sql(f"CREATE ROLE {role} LOGIN")  # limits do not hold for a superuser
    try:
        await refuse(
            replace(where, url=server.url(name, user=role), wait_seconds=0.2),
            "takes no more connections: too many connections for database",
        )
    finally:
        server.run_sql(f"DROP ROLE {role}")


async def test_a_database_that_is_renamed_is_found_again(
    server: PostgresForTests, where: PostgresServer, name: str, soon: Soon
) -> None:
    async with opening(where) as database:
        await database.write(add_project("before"))
        server.run_sql(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
        server.run_sql(CUT_OFF.format(name))
        server.run_sql(f"ALTER DATABASE {name} RENAME TO {name}_away")
        with pytest.raises(UnavailableError, match="there is no such database"):
            await list_ids(database)

        server.run_sql(f"ALTER DATABASE {name}_away RENAME TO {name}")
        server.run_sql(f"ALTER DATABASE {name} ALLOW_CONNECTIONS true")
        await go_on(database, soon)


async def test_a_table_that_is_gone_is_said(
    server: PostgresForTests, where: PostgresServer, name: str
) -> None:
    async with opening(where) as database:
        server.run_sql("DROP TABLE project", database=name)
        with pytest.raises(UnavailableError, match="tables of the database are not those"):
            await list_ids(database)

    await refuse(where, "the database lacks the table 'project'")


async def test_another_encoding_is_refused(server: PostgresForTests) -> None:
    server.run_sql("CREATE DATABASE latin ENCODING LATIN1 LOCALE 'C' TEMPLATE template0")
    try:
        said = await refuse(
            PostgresServer(url=server.url("latin")), "the database is encoded as LATIN1"
        )
        assert "ENCODING 'UTF8'" in said.hint
    finally:
        server.drop_database("latin")


@asynccontextmanager
async def posing_as(version: str, server: PostgresForTests, folder: Path) -> AsyncIterator[None]:
    """A socket in a folder before a server, which then says that it is of another version."""

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        theirs, ours = await asyncio.open_unix_connection(f"{server.root}/.s.PGSQL.5432")

        async def pass_on(
            source: asyncio.StreamReader, sink: asyncio.StreamWriter, told: str
        ) -> None:
            while data := await source.read(65536):
                # Of the same length, as the message says how long it is.
                _, found, after = data.partition(b"server_version\0")
                if found and told:
                    real = after.partition(b"\0")[0]
                    data = data.replace(real, told.encode().ljust(len(real)), 1)
                sink.write(data)
            sink.close()

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(pass_on(reader, ours, ""))
            tasks.create_task(pass_on(theirs, writer, version))

    async with await asyncio.start_unix_server(take, str(folder / ".s.PGSQL.5432")):
        yield


async def test_a_server_that_is_too_old_is_refused(
    server: PostgresForTests, where: PostgresServer, tmp_path: Path
) -> None:
    url = where.url.replace(f"host={server.root}", f"host={tmp_path}")
    async with posing_as("12.9", server, tmp_path):
        said = await refuse(replace(where, url=url), "the server is PostgreSQL 12")
    assert said.hint == "PostgreSQL 13 is the oldest"


SET_VERSION = "UPDATE pipecd_schema SET version = {}"
COLUMNS = """
SELECT table_name || '.' || column_name || ' ' || data_type || ' ' || is_nullable
    || ' ' || coalesce(collation_name, '') AS told
FROM information_schema.columns WHERE table_schema = 'public' ORDER BY told
"""
INDEXES = "SELECT indexdef AS told FROM pg_indexes WHERE schemaname = 'public' ORDER BY told"


async def describe_schema(url: str) -> list[str]:
    connection = await asyncpg.connect(url)
    try:
        return [
            row["told"]
            for statement in (COLUMNS, INDEXES)
            for row in await connection.fetch(statement)
        ]
    finally:
        await connection.close()


@pytest.mark.parametrize("version", [migration.version - 1 for migration in MIGRATIONS])
async def test_an_older_schema_is_migrated_to_what_a_new_database_has(
    server: PostgresForTests, where: PostgresServer, name: str, version: int
) -> None:
    """The older one is made of the present one, without the columns that came later.

    Its indexes are others.
    """
    wanted = await describe_schema(where.url)
    async with opening(where) as database:
        await database.write(add_project("before"))
    for migration in MIGRATIONS:
        for column in migration.columns if migration.version > version else ():
            server.run_sql(f"ALTER TABLE {column.table} DROP {column.name}", database=name)
        for index in migration.dropped_indexes if migration.version > version else ():
            server.run_sql(f"DROP INDEX IF EXISTS {index}", database=name)
            server.run_sql(f"CREATE INDEX {index} ON deployment (kind)", database=name)
    server.run_sql(SET_VERSION.format(version), database=name)

    async with opening(where) as database:
        assert await list_ids(database) == ["before"]

    assert await describe_schema(where.url) == wanted
    async with opening(where) as database:
        await database.write(add_project("after"))
    assert await read_version(where.url) == schema.SCHEMA_VERSION


SLOW = """
CREATE FUNCTION pause() RETURNS event_trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_sleep(1.5);
END $$;
CREATE EVENT TRIGGER slow ON ddl_command_start WHEN TAG IN ('ALTER TABLE') EXECUTE FUNCTION pause()
"""


async def test_a_migration_may_take_longer_than_any_statement_of_a_call(
    server: PostgresForTests, where: PostgresServer, name: str
) -> None:
    """And whoever starts meanwhile waits for its end, longer than for any other lock."""
    newest = next(each for each in reversed(MIGRATIONS) if each.columns)
    for column in newest.columns:
        server.run_sql(f"ALTER TABLE {column.table} DROP {column.name}", database=name)
    server.run_sql(SET_VERSION.format(newest.version - 1), database=name)
    server.run_sql(SLOW, database=name)
    impatient = replace(where, statement_seconds=1, lock_seconds=0.1)

    async def start() -> None:
        async with opening(impatient):
            pass

    async with asyncio.TaskGroup() as tasks:
        for _ in range(2):
            tasks.create_task(start())
    assert await read_version(where.url) == schema.SCHEMA_VERSION


async def test_a_migration_that_fails_leaves_the_older_schema_as_it_was(
    server: PostgresForTests, where: PostgresServer, name: str
) -> None:
    newest = next(each for each in reversed(MIGRATIONS) if each.columns)
    first = newest.columns[0]
    for column in newest.columns[1:]:  # the first one is there already, which no pipecd has made
        server.run_sql(f"ALTER TABLE {column.table} DROP {column.name}", database=name)
    older = newest.version - 1
    server.run_sql(SET_VERSION.format(older), database=name)
    before = await describe_schema(where.url)

    await refuse(where, f'column "{first.name}" of relation "{first.table}" already exists')

    assert await describe_schema(where.url) == before
    assert await read_version(where.url) == older


async def read_version(url: str) -> int:
    connection = await asyncpg.connect(url)
    try:
        return int(await connection.fetchval("SELECT version FROM pipecd_schema"))
    finally:
        await connection.close()
