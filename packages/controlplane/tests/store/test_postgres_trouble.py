# SPDX-License-Identifier: Apache-2.0
"""What a server of PostgreSQL may do: go away, come back, refuse, be the wrong one."""

import asyncio
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import bindparam, select, update

from pipecd_controlplane.store import schema
from pipecd_controlplane.store.changes import Change
from pipecd_controlplane.store.database import StaleReadError, Transaction
from pipecd_controlplane.store.postgres.config import PostgresServer
from pipecd_controlplane.store.postgres.database import PostgresDatabase, open_postgres
from pipecd_model.errors import ConfigError, PipecdError, StateError, UnavailableError
from pipecd_test_support.database_contract import add_project, list_ids
from pipecd_test_support.postgres import PostgresForTests, running_postgres, shared_postgres

GET = select(schema.project.c.data, schema.project.c.version).where(
    schema.project.c.id == bindparam("id")
)
SET = (
    update(schema.project)
    .where(schema.project.c.id == bindparam("of"), schema.project.c.version == bindparam("was"))
    .values(data=bindparam("to"), version=bindparam("becomes"))
)


@pytest.fixture
def where() -> Iterator[PostgresServer]:
    """A database of its own at the server that all tests share."""
    server = shared_postgres()
    name = server.create_database(is_empty=True)
    yield PostgresServer(url=server.url(name), wait_seconds=2, takeover_seconds=0.5)
    server.drop_database(name)


@pytest.fixture
def own() -> Iterator[PostgresForTests]:
    """A server that a test may kill."""
    with running_postgres() as server:
        yield server


def opening(
    where: PostgresServer, told: list[Change] | None = None
) -> AbstractAsyncContextManager[PostgresDatabase]:
    return open_postgres(where, (told if told is not None else []).extend)


def count_up(project_id: str, runs: list[int]) -> Callable[[Transaction], Awaitable[int]]:
    """A unit that makes the number in a project one more."""

    async def work(transaction: Transaction) -> int:
        runs.append(1)
        row = await transaction.one(GET, id=project_id)
        assert row is not None
        number = int(row[0]) + 1
        changed = await transaction.run(
            SET, of=project_id, was=row[1], to=str(number).encode(), becomes=row[1] + 1
        )
        if not changed:
            raise StaleReadError
        return number

    return work


async def test_of_many_units_that_change_one_row_each_has_its_turn(where: PostgresServer) -> None:
    runs: list[int] = []
    async with opening(where) as database:
        await database.write(add_project("p", b"0"))
        async with asyncio.TaskGroup() as tasks:
            counted = [tasks.create_task(database.write(count_up("p", runs))) for _ in range(40)]
        row = await database.one(GET, id="p")

    assert sorted(each.result() for each in counted) == list(range(1, 41))
    assert row == (b"40", 41)
    assert len(runs) > 40  # some had read what another one changed


async def test_a_server_that_is_killed_and_comes_back_loses_nothing(own: PostgresForTests) -> None:
    where = PostgresServer(url=own.url(own.create_database(is_empty=True)))
    runs: list[int] = []
    told: list[Change] = []
    async with opening(where, told) as database:
        await database.write(add_project("p", b"0"))
        async with asyncio.TaskGroup() as tasks:
            counted = [tasks.create_task(database.write(count_up("p", runs))) for _ in range(60)]
            await asyncio.sleep(0)
            await asyncio.to_thread(own.stop, signal.SIGQUIT)
            await asyncio.to_thread(own.start)
        assert sorted(each.result() for each in counted) == list(range(1, 61))
        assert await database.one(GET, id="p") == (b"60", 61)


async def test_a_server_that_stays_away_is_said_and_not_waited_for_without_end(
    own: PostgresForTests,
) -> None:
    where = PostgresServer(url=own.url(own.create_database(is_empty=True)))
    async with opening(where) as database:
        database._patience_seconds = 0.5
        await database.write(add_project("p"))
        await asyncio.to_thread(own.stop)
        for call in (
            lambda: database.write(add_project("q")),
            lambda: list_ids(database),
            lambda: database.one(GET, id="p"),
        ):
            with pytest.raises(UnavailableError, match="does not answer"):
                await call()
        await asyncio.to_thread(own.start)
        database._patience_seconds = 20
        assert await list_ids(database) == ["p"]
        await database.write(add_project("q"))


class Proxy:
    """Between a control plane and its server: cuts a connection at the COMMIT of a unit."""

    def __init__(self, folder: Path, target: str) -> None:
        self.folder = folder
        self._target = target
        self.cut = ""
        """`before`: the server never hears of the COMMIT; `after`: its answer is lost."""

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        async with await asyncio.start_unix_server(self._take, str(self.folder / ".s.PGSQL.5432")):
            yield

    async def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        theirs, ours = await asyncio.open_unix_connection(f"{self._target}/.s.PGSQL.5432")

        async def answer() -> None:
            while data := await theirs.read(65536):
                writer.write(data)
            writer.close()

        answering = asyncio.ensure_future(answer())
        try:
            while data := await reader.read(65536):
                if self.cut and b"COMMIT" in data:
                    how, self.cut = self.cut, ""
                    answering.cancel()
                    if how == "after":
                        ours.write(data)
                        await theirs.read(65536)
                    break
                ours.write(data)
        finally:
            answering.cancel()
            ours.close()
            writer.close()


@pytest.mark.parametrize("cut", ["before", "after"])
async def test_a_commit_whose_answer_is_lost_happens_once(
    where: PostgresServer, tmp_path: Path, cut: str
) -> None:
    told: list[Change] = []
    server = shared_postgres()
    proxy = Proxy(tmp_path, str(server.root))
    through = replace(where, url=where.url.replace(f"host={server.root}", f"host={tmp_path}"))
    async with proxy.serving(), opening(through, told) as database:
        await database.write(add_project("first"))
        proxy.cut = cut
        await database.write(add_project("second"))
        assert proxy.cut == ""
        assert await list_ids(database) == ["first", "second"]
    assert [change.id for change in told] == ["first", "second"]


async def test_a_second_control_plane_is_refused_until_the_first_has_gone(
    where: PostgresServer,
) -> None:
    async with opening(where):
        with pytest.raises(StateError, match="another pipecd uses this database"):
            async with opening(where):
                pass
    async with opening(where) as database:
        await database.write(add_project("p"))


async def test_one_that_lost_its_database_to_another_writes_no_more(where: PostgresServer) -> None:
    server = shared_postgres()
    async with opening(where) as database:
        await database.write(add_project("p"))
        server.run_sql("SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory'")
        await database.write(add_project("q"))  # it has the lock again

        assert await list_ids(database) == ["p", "q"]


async def test_a_newer_schema_is_refused(where: PostgresServer) -> None:
    async with opening(where):
        pass
    name = where.url.partition("@/")[2].partition("?")[0]
    shared_postgres().run_sql("UPDATE pipecd_schema SET version = 1000", database=name)

    with pytest.raises(StateError, match="schema 1000, this pipecd knows"):
        async with opening(where):
            pass


async def test_tables_of_another_program_are_left_alone(where: PostgresServer) -> None:
    name = where.url.partition("@/")[2].partition("?")[0]
    shared_postgres().run_sql("CREATE TABLE deployment (id integer)", database=name)

    with pytest.raises(StateError, match="tables of another program: deployment"):
        async with opening(where):
            pass


@pytest.mark.parametrize(
    ("url", "error", "sentence"),
    [
        ("mysql://nowhere", ConfigError, "URL of the database cannot be used"),
        ("postgresql://postgres@/none?host={root}", StateError, "no such database"),
        ("postgresql://nobody@/postgres?host={root}", StateError, "refuses the user"),
        ("postgresql://postgres@/x?host=/nowhere", StateError, "does not answer"),
    ],
    ids=["another database", "no database", "no user", "no server"],
)
async def test_a_database_that_cannot_be_used_is_said_in_a_sentence(
    where: PostgresServer, url: str, error: type[PipecdError], sentence: str
) -> None:
    root = str(shared_postgres().root)

    with pytest.raises(error, match=sentence) as caught:
        async with opening(replace(where, url=url.replace("{root}", root))):
            pass
    assert caught.value.hint


async def test_a_password_is_shown_nowhere(where: PostgresServer) -> None:
    secret = "open-sesame"  # noqa: S105 - of a test
    url = where.url.replace("postgres@", f"nobody:{secret}@")

    with pytest.raises(StateError) as caught:
        async with opening(replace(where, url=url)):
            pass
    assert secret not in f"{caught.value} {caught.value.hint} {replace(where, url=url)!r}"


async def test_a_text_with_a_nul_is_refused_and_the_next_one_is_written(
    where: PostgresServer,
) -> None:
    async with opening(where) as database:
        with pytest.raises(ConfigError, match="NUL"):
            await database.write(add_project("a\0b"))
        await database.write(add_project("p"))
        assert await list_ids(database) == ["p"]


async def test_a_database_that_may_only_be_read_is_said(where: PostgresServer) -> None:
    name = where.url.partition("@/")[2].partition("?")[0]
    async with opening(where) as database:
        await database.write(add_project("p"))
    shared_postgres().run_sql(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    async with opening(where) as database:
        database._patience_seconds = 0.3
        with pytest.raises(UnavailableError, match="read-only"):
            await database.write(add_project("q"))
        assert await list_ids(database) == ["p"]
