# SPDX-License-Identifier: Apache-2.0
"""Control planes that share a PostgreSQL keep what a shared state promises."""

import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from pipecd_controlplane.store.changes import project_topic
from pipecd_controlplane.store.postgres.config import PostgresServer
from pipecd_controlplane.store.stores import Stores, stores
from pipecd_controlplane.usecases.replicated.state import ReplicatedState, open_replicated
from pipecd_test_support.controlplane_messages import MessageBuilder
from pipecd_test_support.postgres import shared_postgres
from pipecd_test_support.shared_state_contract import Replicas, SharedStateContract

Pair = tuple[ReplicatedState, ReplicatedState]


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[Pair]:
    """Two control planes of one database, each with a data folder, and with the same key."""
    server = shared_postgres()
    name = server.create_database()
    where = PostgresServer(url=server.url(name), connections=4)
    one, other = tmp_path / "one", tmp_path / "other"
    one.mkdir()
    async with open_replicated(where, one, []) as first:
        shutil.copytree(one, other)
        async with open_replicated(where, other, []) as second:
            yield first, second
    server.drop_database(name)


class TestReplicated(SharedStateContract):
    @pytest.fixture
    def replicas(self, pair: Pair) -> Replicas:
        return pair

    @pytest.fixture
    def kept(self, pair: Pair) -> Stores:
        return stores(pair[0].database, lambda: MessageBuilder.NOON)


async def test_who_catches_up_has_heard_what_was_committed_before(pair: Pair) -> None:
    one, other = pair
    kept = stores(one.database, lambda: MessageBuilder.NOON)
    with other.bus.listen(project_topic("ours")) as there:
        await kept.applications.add(MessageBuilder().application(id="new"))
        await other.bus.catch_up()

        assert "new" in {each.id for each in await there.wait_changes(seconds=0)}
