# SPDX-License-Identifier: Apache-2.0
"""Clusters as fixtures; a conftest.py of tests that need one imports them.

A cluster starts at the first test of a process that asks for it and serves them all; every test
gets a namespace of its own. Where the cluster cannot be built, these tests are skipped.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from pipecd_test_support.kubernetes.cache import MissingError
from pipecd_test_support.kubernetes.executables import find_executables
from pipecd_test_support.kubernetes.faulty_api_server import FaultyApiServer
from pipecd_test_support.kubernetes.packages import Tools, find_tools
from pipecd_test_support.kubernetes.real_cluster import Namespace, RealCluster, running_cluster


@pytest.fixture(scope="session")
def cluster() -> Iterator[RealCluster]:
    """A cluster, for all tests of this process."""
    with _running_or_skipped() as running:
        yield running


@pytest.fixture(scope="session")
def second_cluster() -> Iterator[RealCluster]:
    """Another cluster, for what concerns several."""
    with _running_or_skipped() as running:
        yield running


@pytest.fixture
def namespace(cluster: RealCluster) -> Iterator[Namespace]:
    """A namespace of this test's own, in `cluster`."""
    with cluster.making_namespace() as made:
        yield made


@pytest.fixture
def second_namespace(second_cluster: RealCluster) -> Iterator[Namespace]:
    """A namespace of this test's own, in `second_cluster`."""
    with second_cluster.making_namespace() as made:
        yield made


@pytest.fixture
def faulty_api_server(cluster: RealCluster) -> Iterator[FaultyApiServer]:
    """A server before the API server of `cluster` that fails requests as the test says."""
    with FaultyApiServer(cluster) as server:
        yield server


@pytest.fixture(scope="session")
def tools() -> Tools:
    """The programs kubectl and helm."""
    try:
        return find_tools()
    except MissingError as error:
        pytest.skip(str(error))


@contextmanager
def _running_or_skipped() -> Iterator[RealCluster]:
    try:
        find_executables()
    except MissingError as error:
        pytest.skip(str(error))
    with running_cluster() as running:
        yield running
