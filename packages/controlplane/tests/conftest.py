# SPDX-License-Identifier: Apache-2.0
"""What the tests of the control plane share: builders, a database, a served control plane."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from pipecd_controlplane.store.changes import Change
from pipecd_controlplane.store.database import Database
from pipecd_controlplane.store.open import DatabaseConfig, open_database
from pipecd_controlplane.store.stores import Stores, stores
from pipecd_test_support.chosen_store import choose_database
from pipecd_test_support.controlplane_messages import MessageBuilder
from pipecd_test_support.controlplane_process import RunServer, running_server
from pipecd_test_support.controlplane_server import Serve, ServedControlPlane, serving
from pipecd_test_support.small_disk import NoMountError, SmallDisk, mounting_small_disk
from pipecd_test_support.waiting import Soon, wait_soon


@pytest.fixture
def build() -> MessageBuilder:
    return MessageBuilder()


@pytest.fixture
def told() -> list[Change]:
    """Every change that was committed, in its order."""
    return []


@pytest.fixture
def store_config(store_kind: str, tmp_path: Path) -> DatabaseConfig:
    """An empty database of each kind that we support: all of them make the same promises."""
    return choose_database(tmp_path / "data", repeat_units=True)


@pytest.fixture
async def database(store_config: DatabaseConfig, told: list[Change]) -> AsyncIterator[Database]:
    async with open_database(store_config, on_commit=told.extend) as opened:
        yield opened


@pytest.fixture
def kept(database: Database) -> Stores:
    return stores(database, lambda: MessageBuilder.NOON + 60)


@pytest.fixture
def serve(store_kind: str) -> Serve:
    """Serve a folder: `async with serve(path) as plane`."""
    return serving


@pytest.fixture
async def plane(serve: Serve, tmp_path: Path) -> AsyncIterator[ServedControlPlane]:
    async with serve(tmp_path / "data") as served:
        yield served


@pytest.fixture
def server(store_kind: str) -> RunServer:
    """Run `pipecd server`: `async with server(folder, "--flag", env={…}) as running`."""
    return running_server


@pytest.fixture
def soon() -> Soon:
    """Wait for something that must happen, but not for ever."""
    return wait_soon


@pytest.fixture
def small_disk() -> Iterator[SmallDisk]:
    """A file system of its own, as large as a database and a little more."""
    try:
        with mounting_small_disk(32) as disk:
            yield disk
    except NoMountError as error:
        pytest.skip(str(error))
