# SPDX-License-Identifier: Apache-2.0
"""PostgreSQL keeps the contract of a database."""

from collections.abc import AsyncIterator

import pytest

from pipecd_controlplane.store.changes import Change
from pipecd_controlplane.store.database import Database
from pipecd_controlplane.store.postgres.config import PostgresServer
from pipecd_controlplane.store.postgres.database import open_postgres
from pipecd_test_support.database_contract import DatabaseContract
from pipecd_test_support.postgres import shared_postgres


class TestPostgres(DatabaseContract):
    @pytest.fixture
    async def database(self, told: list[Change]) -> AsyncIterator[Database]:
        server = shared_postgres()
        name = server.create_database()
        async with open_postgres(PostgresServer(url=server.url(name)), told.extend) as opened:
            yield opened
        server.drop_database(name)
