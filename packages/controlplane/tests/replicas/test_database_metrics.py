# SPDX-License-Identifier: Apache-2.0
"""What the page of metrics says of the connections of a server to PostgreSQL."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import asyncpg
import httpx2
import pytest
from prometheus_client.parser import text_string_to_metric_families

from pipecd_controlplane.app import control_plane
from pipecd_controlplane.settings import ServerSettings
from pipecd_controlplane.store.postgres.config import PostgresServer
from pipecd_controlplane.store.postgres.session import LOCK, SessionSubscriber
from pipecd_controlplane.usecases.replicated.state import ReplicatedState, open_replicated
from pipecd_test_support.database_contract import add_project, list_ids
from pipecd_test_support.waiting import Soon, wait_answer

MOST = 4
"""Connections that the server may open."""


@pytest.fixture
async def state(where: PostgresServer, tmp_path: Path) -> AsyncIterator[ReplicatedState]:
    async with open_replicated(replace(where, connections=MOST), tmp_path, []) as opened:
        yield opened


def read_metrics(state: ReplicatedState) -> dict[str, float]:
    return {each.name.removeprefix("pipecd_database_"): each.value for each in state.measure()}


async def test_the_page_has_each_of_them(where: PostgresServer, tmp_path: Path) -> None:
    settings = ServerSettings(
        data_dir=tmp_path,
        postgres=replace(where, connections=MOST),
        grace_seconds=1,
        console_dir=tmp_path / "no-console",
    )
    async with control_plane(settings) as running, httpx2.AsyncClient(trust_env=False) as client:
        key = running.admin_key_file.read_text().strip()
        answer = await client.get(
            f"http://{running.address}/metrics", headers={"authorization": f"Bearer {key}"}
        )

    found = {
        sample.name.removeprefix("pipecd_database_"): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
        if sample.name.startswith("pipecd_database_")
    }
    assert set(found) == {
        "connections",
        "connections_idle",
        "connections_most",
        "notify_lag_seconds",
        "session_lost",
        "session_up",
        "units",
    }
    assert (found["connections_most"], found["session_up"], found["session_lost"]) == (MOST, 1, 0)
    assert 1 <= found["connections"] <= MOST


async def test_a_unit_counts_with_its_connection_until_it_ends(
    state: ReplicatedState, where: PostgresServer, soon: Soon
) -> None:
    database = state.database
    await list_ids(database)

    async def count() -> tuple[float, float]:
        """Returns the units, and the connections that are in use."""
        found = read_metrics(state)
        return found["units"], found["connections"] - found["connections_idle"]

    await wait_answer(count, lambda each: each == (0, 0))
    holder = await asyncpg.connect(where.url)
    async with asyncio.TaskGroup() as tasks:
        async with holder.transaction():
            await holder.execute("LOCK TABLE project IN SHARE MODE")
            writing = tasks.create_task(database.write(add_project("p")))
            await wait_answer(count, lambda each: each == (1, 1))
        await soon(writing)
    await holder.close()

    await wait_answer(count, lambda each: each == (0, 0))
    assert read_metrics(state)["connections_idle"] >= 1
    assert read_metrics(state)["connections_most"] == MOST


WAITING = """
SELECT count(*) FROM pg_locks JOIN pg_database ON pg_database.oid = database
WHERE datname = current_database() AND locktype = 'advisory' AND NOT granted
"""


async def test_a_session_that_is_lost_is_down_until_it_is_opened_again(
    state: ReplicatedState, where: PostgresServer, soon: Soon
) -> None:
    resynced = asyncio.Event()
    subscriber = SessionSubscriber(hear=lambda _payload: None, resync=resynced.set)

    async def is_up() -> float:
        return read_metrics(state)["session_up"]

    alone, other = await asyncpg.connect(where.url), await asyncpg.connect(where.url)
    with state.database.session.subscription(subscriber):
        # It waits in the queue of the lock, so that the session is not opened again at once.
        taking = asyncio.ensure_future(alone.execute("SELECT pg_advisory_lock($1)", LOCK))
        await wait_answer(lambda: other.fetchval(WAITING), bool)
        assert await is_up()
        state.database.session.drop()
        await soon(taking)
        await wait_answer(is_up, lambda up: not up)

        await alone.close()
        await soon(resynced.wait())
    await other.close()

    assert await is_up()
    assert read_metrics(state)["session_lost"] == 1


async def test_the_lag_is_how_long_a_notice_to_itself_takes(state: ReplicatedState) -> None:
    assert read_metrics(state)["notify_lag_seconds"] == 0

    await state.heartbeat.beat()

    assert 0 < read_metrics(state)["notify_lag_seconds"] < 10
