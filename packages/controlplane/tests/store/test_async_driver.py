# SPDX-License-Identifier: Apache-2.0
"""A driver with an asynchronous connection can keep the contract, and so can the store over it."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from pipecd_controlplane.store.changes import Change
from pipecd_controlplane.store.database import Database
from pipecd_test_support.async_database import open_async_database
from pipecd_test_support.database_contract import DatabaseContract


class TestAsyncDriver(DatabaseContract):
    @pytest.fixture
    async def database(self, tmp_path: Path, told: list[Change]) -> AsyncIterator[Database]:
        async with open_async_database(tmp_path, on_commit=told.extend) as opened:
            yield opened
