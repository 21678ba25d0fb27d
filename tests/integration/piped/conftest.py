# SPDX-License-Identifier: Apache-2.0
"""A control plane, a piped and its plugins as real processes."""

from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from pipecd_test_support.piped_site import PipedSite, ServerProcess, SiteClient, register_site


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A control plane for all tests of a module."""
    made = ServerProcess(tmp_path_factory.mktemp("server"))
    made.start()
    yield made
    made.stop()


@pytest.fixture
def own_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A control plane for one test, which may stop it."""
    made = ServerProcess(tmp_path_factory.mktemp("server"))
    made.start()
    yield made
    made.stop()


@pytest.fixture
def server_with(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., ServerProcess]]:
    """Make a control plane with flags of its own."""
    made: list[ServerProcess] = []

    def make(*flags: str) -> ServerProcess:
        made.append(ServerProcess(tmp_path_factory.mktemp("server"), *flags))
        made[-1].start()
        return made[-1]

    try:
        yield make
    finally:
        for each in made:
            each.stop()


@pytest.fixture
def site_of(tmp_path: Path) -> Iterator[Callable[[ServerProcess], PipedSite]]:
    """Make the piped of a control plane; it is not started yet."""
    made: list[PipedSite] = []

    def make(server: ServerProcess) -> PipedSite:
        made.append(register_site(tmp_path, server))
        return made[-1]

    try:
        yield make
    finally:
        for each in made:
            each.close()


@pytest.fixture
def site(site_of: Callable[[ServerProcess], PipedSite], server: ServerProcess) -> PipedSite:
    """A piped that is not started yet."""
    return site_of(server)


@pytest.fixture(scope="module")
def shared_site(
    server: ServerProcess, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[PipedSite]:
    """A piped with all plugins, shared by the tests of a module."""
    made = register_site(tmp_path_factory.mktemp("shared"), server)
    made.commit({"README": "an example"})
    made.configure("wait", "waitapproval", "scriptrun", "dummy")
    made.start()
    try:
        yield made
    finally:
        made.close()


@pytest.fixture
async def client(site: PipedSite) -> AsyncIterator[SiteClient]:
    async with site.client() as opened:
        yield opened


@pytest.fixture
async def shared_client(shared_site: PipedSite) -> AsyncIterator[SiteClient]:
    async with shared_site.client() as opened:
        yield opened
