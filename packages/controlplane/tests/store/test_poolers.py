# SPDX-License-Identifier: Apache-2.0
"""A real PgBouncer between control planes and PostgreSQL: used, or refused before any harm."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import asyncpg
import pytest

from pipecd_controlplane.store.move.open import open_source
from pipecd_controlplane.store.postgres.config import PostgresServer
from pipecd_controlplane.store.postgres.database import PostgresDatabase, open_postgres
from pipecd_controlplane.store.postgres.pool import connect, connect_plain
from pipecd_controlplane.store.postgres.poolers import ProcessQuestion, refuse_shared_sessions
from pipecd_controlplane.store.postgres.session import LOCK, SessionSubscriber, claim_alone
from pipecd_model.errors import StateError, UnavailableError
from pipecd_test_support.balancer import Balancer
from pipecd_test_support.database_contract import add_project, list_ids
from pipecd_test_support.pgbouncer import (
    MISSING,
    PoolerForTests,
    find_pgbouncer,
    running_pgbouncer,
)
from pipecd_test_support.postgres import PORT, shared_postgres
from pipecd_test_support.waiting import Soon, wait_answer

NOTHING: Mapping[str, str] = MappingProxyType({})
ROUND_ROBIN = MappingProxyType({"server_round_robin": "1"})
SETTINGS_IGNORED = MappingProxyType({"ignore_startup_parameters": "lock_timeout"})

FEW = MappingProxyType({"default_pool_size": "3"})

REFUSAL = "a pooler between this server and PostgreSQL gives connections no session of their own"


@pytest.fixture
def program() -> Path:
    found = find_pgbouncer()
    if found is None:
        pytest.skip(MISSING)
    return found


@pytest.fixture
def direct() -> Iterator[PostgresServer]:
    """An empty database, without a pooler."""
    server = shared_postgres()
    name = server.create_database(is_empty=True)
    yield PostgresServer(url=server.url(name), wait_seconds=2, takeover_seconds=0.5)
    server.drop_database(name)


def through(pooler: PoolerForTests, direct: PostgresServer) -> PostgresServer:
    """The same database, through the pooler."""
    name = direct.url.partition("@/")[2].partition("?")[0]
    return replace(direct, url=pooler.url(name))


def opening(where: PostgresServer) -> AbstractAsyncContextManager[PostgresDatabase]:
    return open_postgres(where, lambda _changes: None)


@asynccontextmanager
async def held_processes(where: PostgresServer, count: int) -> AsyncIterator[None]:
    """Keeps as many processes of a pool busy while the block runs, so that it has that many."""
    async with AsyncExitStack() as opened:
        for _ in range(count):
            connection = await asyncpg.connect(where.url)
            opened.push_async_callback(connection.close)
            await connection.execute("BEGIN")
            opened.push_async_callback(connection.execute, "ROLLBACK")
        yield


async def test_servers_behind_a_pooler_of_sessions_hear_each_other_and_hold_their_locks(
    program: Path, direct: PostgresServer, soon: Soon
) -> None:
    """With the defaults of PgBouncer, which refuses most settings when a connection begins."""
    heard: asyncio.Queue[str] = asyncio.Queue()
    subscriber = SessionSubscriber(hear=heard.put_nowait, resync=lambda: None)
    with running_pgbouncer(program, shared_postgres(), "session") as pooler:
        where = replace(through(pooler, direct), connections=4)
        async with opening(where) as one, opening(where) as other:
            with one.session.subscription(subscriber):
                await other.write(add_project("p"))
                assert "p" in await soon(heard.get())
            assert await list_ids(one) == ["p"]
            alone = await asyncpg.connect(direct.url)
            with pytest.raises(StateError, match="a pipecd uses this database"):
                await claim_alone(alone, seconds=0.2)
        # Nothing of a session outlives it in the processes that the pooler keeps.
        assert await soon(alone.fetchval("SELECT pg_advisory_lock($1) IS NOT NULL", LOCK))
        await alone.close()


async def test_our_limits_hold_behind_a_pooler_of_sessions(
    program: Path, direct: PostgresServer
) -> None:
    with running_pgbouncer(program, shared_postgres(), "session", SETTINGS_IGNORED) as pooler:
        where = replace(through(pooler, direct), lock_seconds=7)
        connection = await connect(where)
        assert await connection.fetchval("SHOW lock_timeout") == "7s"
        assert await connection.fetchval("SHOW idle_in_transaction_session_timeout") == "1min"
        await connection.close()

        # The next one in that session is somebody else.
        stranger = await asyncpg.connect(where.url)
        assert await stranger.fetchval("SHOW lock_timeout") == "0"
        await stranger.close()


@pytest.mark.parametrize("pool_mode", ["transaction", "statement"])
@pytest.mark.parametrize("settings", [NOTHING, ROUND_ROBIN], ids=["newest", "oldest"])
async def test_a_pooler_of_transactions_or_statements_is_refused_and_nothing_is_touched(
    program: Path, direct: PostgresServer, pool_mode: str, settings: Mapping[str, str]
) -> None:
    """Two servers would both hold one lock, and nobody would hear a notice."""
    with running_pgbouncer(program, shared_postgres(), pool_mode, settings) as pooler:
        where = through(pooler, direct)
        with pytest.raises(StateError, match=REFUSAL) as caught:
            async with opening(where):
                pass
        assert "pool_mode = session" in caught.value.hint
        with pytest.raises(StateError, match=REFUSAL):
            async with open_source(where):
                pass

        connection = await asyncpg.connect(direct.url)
        assert not await connection.fetch("SELECT FROM pg_tables WHERE schemaname = 'public'")
        assert not await connection.fetch("SELECT FROM pg_locks WHERE locktype = 'advisory'")
        await connection.close()


@pytest.mark.parametrize("settings", [NOTHING, ROUND_ROBIN], ids=["newest", "oldest"])
@pytest.mark.parametrize("processes", [1, 2, 3, 7])
async def test_a_pooler_of_transactions_is_noticed_however_many_processes_it_has(
    program: Path, direct: PostgresServer, settings: Mapping[str, str], processes: int
) -> None:
    with running_pgbouncer(program, shared_postgres(), "transaction", settings) as pooler:
        where = through(pooler, direct)
        async with held_processes(where, processes):
            pass
        with pytest.raises(StateError, match=REFUSAL):
            await refuse_shared_sessions(where)


@asynccontextmanager
async def balanced(
    program: Path, direct: PostgresServer, pool_mode: str, settings: Mapping[str, str], count: int
) -> AsyncIterator[PostgresServer]:
    """The same database through so many poolers, to each of which connections go in turn."""
    server = shared_postgres()
    async with AsyncExitStack() as opened:
        poolers = [
            opened.enter_context(running_pgbouncer(program, server, pool_mode, settings))
            for _ in range(count)
        ]
        for pooler in poolers:
            async with held_processes(through(pooler, direct), 2):
                pass  # more than one for each, where the oldest is handed out
        sockets = [str(each.root / f".s.PGSQL.{PORT}") for each in poolers]
        balancer = await opened.enter_async_context(Balancer(sockets).listening())
        name = direct.url.partition("@/")[2].partition("?")[0]
        yield replace(direct, url=f"postgresql://postgres@{balancer.address}/{name}")


@pytest.mark.parametrize("settings", [NOTHING, ROUND_ROBIN], ids=["newest", "oldest"])
@pytest.mark.parametrize("count", [2, 5])
async def test_several_poolers_of_transactions_behind_a_balancer_are_noticed(
    program: Path, direct: PostgresServer, settings: Mapping[str, str], count: int
) -> None:
    """Two connections alone would each have a pooler, and a process, of their own."""
    async with balanced(program, direct, "transaction", settings, count) as where:
        with pytest.raises(StateError, match=REFUSAL):
            await refuse_shared_sessions(where)


async def test_several_poolers_of_sessions_behind_a_balancer_are_used(
    program: Path, direct: PostgresServer
) -> None:
    async with (
        balanced(program, direct, "session", ROUND_ROBIN, 2) as where,
        opening(where) as database,
    ):
        await database.write(add_project("p"))
        assert await list_ids(database) == ["p"]


async def test_a_pooler_that_has_few_sessions_left_is_asked_with_those(
    program: Path, direct: PostgresServer
) -> None:
    """Its size is that of what servers need; a look at it may not want more."""
    with running_pgbouncer(program, shared_postgres(), "session", FEW) as pooler:
        await refuse_shared_sessions(through(pooler, direct))


async def test_a_server_whose_plpgsql_may_not_be_used_is_asked_without_it(
    program: Path, direct: PostgresServer
) -> None:
    """Only the look at poolers would need it."""
    server = shared_postgres()
    name = direct.url.partition("@/")[2].partition("?")[0]
    role = f"somebody{secrets.token_hex(4)}"
    server.run_sql(f"CREATE ROLE {role} LOGIN")
    server.run_sql("REVOKE USAGE ON LANGUAGE plpgsql FROM PUBLIC", database=name)
    try:
        await refuse_shared_sessions(replace(direct, url=server.url(name, user=role)))
        server.run_sql("DROP EXTENSION plpgsql", database=name)
        await refuse_shared_sessions(direct)
        with (
            running_pgbouncer(program, server, "transaction") as pooler,
            pytest.raises((StateError, asyncpg.PostgresError)),
        ):
            await refuse_shared_sessions(through(pooler, direct))
    finally:
        server.run_sql(f"DROP ROLE {role}")


async def test_a_server_whose_messages_get_lost_is_asked_without_them(
    direct: PostgresServer,
) -> None:
    """What is between may pass on rows alone."""
    connection = await connect_plain(direct)
    question = ProcessQuestion(connection)
    connection.remove_log_listener(question._note)
    assert await question.ask() == question.named
    await connection.close()


@pytest.mark.parametrize("processes", [0, 3])
async def test_a_pooler_of_sessions_is_never_taken_for_another(
    program: Path, direct: PostgresServer, processes: int
) -> None:
    with running_pgbouncer(program, shared_postgres(), "session", ROUND_ROBIN) as pooler:
        where = through(pooler, direct)
        async with held_processes(where, processes):
            for _ in range(5):
                await refuse_shared_sessions(where)


async def test_a_pooler_that_changes_its_mode_stops_writing_until_it_pools_sessions_again(
    program: Path, direct: PostgresServer, soon: Soon
) -> None:
    """The session is opened anew after its restart, and asks what kind of pooler it is again."""
    gaps: asyncio.Queue[None] = asyncio.Queue()
    subscriber = SessionSubscriber(hear=lambda _payload: None, resync=lambda: gaps.put_nowait(None))
    with running_pgbouncer(program, shared_postgres(), "session") as pooler:
        async with opening(through(pooler, direct)) as database:
            await database.write(add_project("p"))
            database._patience_seconds = 0.3
            with database.session.subscription(subscriber):
                pooler.stop()
                pooler.start("transaction")
                await wait_lost(database)
                with pytest.raises(UnavailableError):
                    await database.write(add_project("q"))
                assert gaps.empty()

                pooler.stop()
                pooler.start("session")
                await soon(gaps.get())
            await database.write(add_project("q"))
            assert await list_ids(database) == ["p", "q"]


async def wait_lost(database: PostgresDatabase) -> None:
    async def ask() -> bool:
        return database.session.is_held

    await wait_answer(ask, lambda is_held: not is_held)
