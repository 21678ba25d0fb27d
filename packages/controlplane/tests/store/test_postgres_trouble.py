# SPDX-License-Identifier: Apache-2.0
"""What a server of PostgreSQL may do: go away, come back, refuse, be the wrong one."""

import asyncio
import signal
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from pathlib import Path

import asyncpg
import pytest
from sqlalchemy import bindparam, select, update

from pipecd_controlplane.store import schema
from pipecd_controlplane.store.changes import Change
from pipecd_controlplane.store.database import StaleReadError, Transaction
from pipecd_controlplane.store.postgres.config import PostgresServer
from pipecd_controlplane.store.postgres.database import PostgresDatabase, open_postgres
from pipecd_controlplane.store.postgres.notices import decode_notice, read_changes
from pipecd_controlplane.store.postgres.pool import connect
from pipecd_controlplane.store.postgres.session import LOCK, SessionSubscriber, claim_alone
from pipecd_model.errors import ConfigError, PipecdError, StateError, UnavailableError
from pipecd_test_support.database_contract import add_project, list_ids
from pipecd_test_support.postgres import PostgresForTests, running_postgres, shared_postgres
from pipecd_test_support.waiting import PROCESS_LIMIT_SECONDS, Soon

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
        self.target = target
        self.cut = ""
        """`before`: the server never hears of the COMMIT; `after`: its answer is lost."""
        self.when_cut: Callable[[], Awaitable[None]] | None = None
        """Called before the connection ends; new connections wait for its end."""
        self.has_asked = asyncio.Event()
        """Set when somebody wants to know what became of a transaction."""
        self._gate = asyncio.Lock()

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        async with await asyncio.start_unix_server(self._take, str(self.folder / ".s.PGSQL.5432")):
            yield

    async def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with self._gate:
            theirs, ours = await asyncio.open_unix_connection(f"{self.target}/.s.PGSQL.5432")

        async def answer() -> None:
            while data := await theirs.read(65536):
                writer.write(data)
            writer.close()

        answering = asyncio.ensure_future(answer())
        is_question = False
        try:
            while data := await reader.read(65536):
                if self.cut and b"COMMIT;" in data:
                    how, self.cut = self.cut, ""
                    answering.cancel()
                    await asyncio.wait([answering])
                    if how == "after":
                        ours.write(data)
                        await theirs.read(65536)
                    if self.when_cut is not None:
                        async with self._gate:
                            await self.when_cut()
                    break
                ours.write(data)
                if is_question:  # after the text of the statement: its argument
                    self.has_asked.set()
                is_question = is_question or b"pg_xact_status" in data
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


WITHOUT_FLUSHES = {"wal_level": "minimal", "max_wal_senders": "0", "wal_writer_delay": "10s"}
"""Nothing of a transaction is written to disk before its COMMIT."""


async def test_a_lost_commit_is_not_taken_for_the_next_transaction_with_its_id(
    tmp_path: Path,
) -> None:
    """A server that crashes gives the id of a transaction that it has lost to the next one."""
    statuses: list[str] = []
    with running_postgres(settings=WITHOUT_FLUSHES) as own:
        url = own.url(own.create_database(is_empty=True))

        async def crash() -> None:
            connection = await asyncpg.connect(url)
            lost = await connection.fetchval(
                "SELECT max(backend_xid::text::bigint) FROM pg_stat_activity"
                " WHERE datname = current_database()"
            )
            await asyncio.to_thread(own.kill)
            await asyncio.to_thread(own.start)
            connection = await asyncpg.connect(url)
            while await connection.fetchval("SELECT pg_current_xact_id()::text::bigint") < lost:
                pass
            statuses.append(
                await connection.fetchval("SELECT pg_xact_status($1::text::xid8)", str(lost))
            )
            await connection.close()

        proxy = Proxy(tmp_path, str(own.root))
        through = PostgresServer(url=url.replace(f"host={own.root}", f"host={tmp_path}"))
        async with proxy.serving(), opening(through) as database:
            database._patience_seconds = PROCESS_LIMIT_SECONDS
            await database.write(add_project("first"))
            proxy.when_cut, proxy.cut = crash, "before"
            await database.write(add_project("second"))
            assert await list_ids(database) == ["first", "second"]

    assert statuses == ["committed"]  # by its id the lost transaction would count as committed


async def test_a_standby_that_is_behind_is_not_asked_what_became_of_a_commit(
    own: PostgresForTests, tmp_path: Path, soon: Soon
) -> None:
    """Connections may reach it before it is promoted, and has read all that the old one sent."""
    where = PostgresServer(url=own.url(own.create_database(is_empty=True)))
    through = replace(where, url=where.url.replace(f"host={own.root}", f"host={tmp_path}"))
    proxy = Proxy(tmp_path, str(own.root))
    with running_postgres(standby_of=own) as standby:

        async def take_over() -> None:
            proxy.target = str(standby.root)
            await asyncio.to_thread(own.stop)  # it sends the rest to its standby before it ends

        async with proxy.serving(), opening(through) as database:
            database._patience_seconds = PROCESS_LIMIT_SECONDS
            await database.write(add_project("first"))
            standby.run_sql("SELECT pg_wal_replay_pause()")
            proxy.when_cut, proxy.cut = take_over, "after"
            writing = asyncio.ensure_future(database.write(add_project("second")))
            await soon(proxy.has_asked.wait())
            await asyncio.to_thread(standby.run_sql, "SELECT pg_promote()")
            await writing
            assert await list_ids(database) == ["first", "second"]


async def test_a_machine_that_is_gone_is_noticed_at_both_ends(where: PostgresServer) -> None:
    """It says no good-bye: the kernels of both ends have to ask whether the other one is there."""
    sent: list[bytes] = []

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        theirs, ours = await asyncio.open_unix_connection(str(shared_postgres().socket))

        async def answer() -> None:
            while data := await theirs.read(65536):
                writer.write(data)
            writer.close()

        answering = asyncio.ensure_future(answer())
        while data := await reader.read(65536):
            sent.append(data)
            ours.write(data)
        ours.close()
        await answering

    async with await asyncio.start_server(take, "127.0.0.1", 0) as proxy:
        host, port = proxy.sockets[0].getsockname()
        name = where.url.rpartition("?")[0].rpartition("/")[2]
        connection = await connect(
            replace(where, url=f"postgresql://postgres@{host}:{port}/{name}")
        )
        own = connection._transport.get_extra_info("socket")  # type: ignore[attr-defined]
        assert own.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert 0 < own.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) < 15_000
        await connection.close()
    for setting in (b"SET tcp_keepalives_idle = '15'", b"SET tcp_user_timeout = '30s'"):
        assert setting in b"".join(sent)


@pytest.mark.parametrize("cut", ["before", "after"])
async def test_a_start_goes_on_although_the_database_is_lost_in_the_middle_of_it(
    where: PostgresServer, tmp_path: Path, cut: str
) -> None:
    """It answered when it was asked first, and was gone when the tables were made."""
    server = shared_postgres()
    proxy = Proxy(tmp_path, str(server.root))
    through = replace(
        where,
        url=where.url.replace(f"host={server.root}", f"host={tmp_path}"),
        wait_seconds=PROCESS_LIMIT_SECONDS,
    )
    proxy.cut = cut
    async with proxy.serving(), opening(through) as database:
        assert proxy.cut == ""
        await database.write(add_project("first"))
        assert await list_ids(database) == ["first"]


@asynccontextmanager
async def using_alone(where: PostgresServer) -> AsyncIterator[None]:
    connection = await connect(where)
    try:
        await claim_alone(connection, seconds=0)
        yield
    finally:
        await connection.close()


async def test_whoever_needs_the_database_alone_waits_until_nobody_uses_it(
    where: PostgresServer,
) -> None:
    async with opening(where) as one, opening(where) as other:
        await one.write(add_project("p"))
        await other.write(add_project("q"))
        with pytest.raises(StateError, match="a pipecd uses this database"):
            async with using_alone(where):
                pass
    async with using_alone(where):
        with pytest.raises(StateError, match="somebody uses this database alone"):
            async with opening(where):
                pass
    async with opening(where) as database:
        assert await list_ids(database) == ["p", "q"]


async def test_a_session_that_is_lost_is_opened_again_and_its_subscribers_are_told(
    where: PostgresServer,
) -> None:
    heard: asyncio.Queue[str] = asyncio.Queue()
    gaps: asyncio.Queue[None] = asyncio.Queue()
    subscriber = SessionSubscriber(hear=heard.put_nowait, resync=lambda: gaps.put_nowait(None))
    async with opening(where) as database, opening(where) as other:
        with database.session.subscription(subscriber):
            database.session.drop()
            await asyncio.wait_for(gaps.get(), 20)
            await database.write(add_project("p"))
            await other.write(add_project("q"))

            payloads = [await asyncio.wait_for(heard.get(), 20) for _ in range(2)]

    assert [each.project_id for each in map(read_only_change, payloads)] == ["p", "q"]
    assert database.session.gaps == 1


def read_only_change(payload: str) -> Change:
    notice = decode_notice(payload)
    assert notice is not None
    (change,) = read_changes(notice)
    return change


async def test_while_somebody_uses_the_database_alone_nothing_is_written(
    where: PostgresServer,
) -> None:
    """A server that lost its session, and finds that another has the database, stands still."""
    gaps: asyncio.Queue[None] = asyncio.Queue()
    subscriber = SessionSubscriber(hear=lambda _payload: None, resync=lambda: gaps.put_nowait(None))
    async with opening(where) as database:
        await database.write(add_project("p"))
        database._patience_seconds = 0.3
        # It waits in the queue of the lock, so that the lost session does not get it back.
        taking = asyncio.ensure_future(take_alone(where))
        await wait_for_lock(where)
        database.session.drop()
        connection = await asyncio.wait_for(taking, 20)
        with pytest.raises(UnavailableError):
            await database.write(add_project("q"))
        with database.session.subscription(subscriber):
            await connection.close()
            await asyncio.wait_for(gaps.get(), 20)
        await database.write(add_project("q"))
        assert await list_ids(database) == ["p", "q"]


async def test_a_unit_that_had_begun_is_not_committed_while_somebody_uses_the_database_alone(
    where: PostgresServer, soon: Soon
) -> None:
    async with opening(where) as database:
        await database.write(add_project("p", b"0"))
        database._patience_seconds = 0.3
        holder = await asyncpg.connect(where.url)
        locked = holder.transaction()
        await locked.start()
        await holder.execute("SELECT 1 FROM project WHERE id = 'p' FOR UPDATE")
        writing = asyncio.ensure_future(database.write(count_up("p", [])))
        await wait_for_lock(where, "transactionid")
        taking = asyncio.ensure_future(take_alone(where))
        await wait_for_lock(where)
        database.session.drop()
        alone = await soon(taking)
        await locked.rollback()  # now the unit goes on
        with pytest.raises(UnavailableError, match="uses the database alone"):
            await soon(writing)
        assert await database.one(GET, id="p") == (b"0", 1)
        await alone.close()
        await holder.close()


async def take_alone(where: PostgresServer) -> "asyncpg.Connection[asyncpg.Record]":
    connection = await asyncpg.connect(where.url)
    await connection.execute("SELECT pg_advisory_lock($1)", LOCK)
    return connection


async def wait_for_lock(where: PostgresServer, kind: str = "advisory") -> None:
    """Wait until somebody waits for a lock of a kind."""
    connection = await asyncpg.connect(where.url)
    try:
        async with asyncio.timeout(20):
            while not await connection.fetchval(
                "SELECT count(*) FROM pg_locks WHERE locktype = $1 AND NOT granted AND pid IN"
                " (SELECT pid FROM pg_stat_activity WHERE datname = current_database())",
                kind,
            ):
                pass
    finally:
        await connection.close()


async def test_an_id_that_no_notice_can_hold_is_refused(where: PostgresServer) -> None:
    async with opening(where) as database:
        with pytest.raises(ConfigError, match="too long"):
            await database.write(add_project("\1" * 2000))
        await database.write(add_project("p"))
        assert await list_ids(database) == ["p"]


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
