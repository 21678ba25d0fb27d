# SPDX-License-Identifier: Apache-2.0
"""A filled data folder and an empty database of PostgreSQL, of each test's own."""

import asyncio
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pipecd_controlplane.store.open import SqliteFolder
from pipecd_controlplane.store.postgres.config import PostgresServer
from pipecd_test_support.moved_databases import fill_folder
from pipecd_test_support.postgres import shared_postgres


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("filled") / "data"
    with ThreadPoolExecutor(1) as thread:
        thread.submit(lambda: asyncio.run(fill_folder(folder))).result()
    return folder


@pytest.fixture
def folder(filled: Path, tmp_path: Path) -> SqliteFolder:
    """A data folder with rows in every table."""
    return SqliteFolder(folder=shutil.copytree(filled, tmp_path / "data"))


@pytest.fixture
def postgres() -> Iterator[PostgresServer]:
    """A database without any table."""
    server = shared_postgres()
    name = server.create_database(is_empty=True)
    yield PostgresServer(url=server.url(name), takeover_seconds=0.5)
    server.drop_database(name)
