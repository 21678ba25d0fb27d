# SPDX-License-Identifier: Apache-2.0
"""A database of PostgreSQL for the control planes of a test."""

from collections.abc import Iterator

import pytest

from pipecd_controlplane.store.postgres.config import PostgresServer
from pipecd_test_support.postgres import shared_postgres


@pytest.fixture
def where() -> Iterator[PostgresServer]:
    server = shared_postgres()
    name = server.create_database()
    yield PostgresServer(url=server.url(name), connections=4)
    server.drop_database(name)
