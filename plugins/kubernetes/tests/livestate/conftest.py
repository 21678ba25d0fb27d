# SPDX-License-Identifier: Apache-2.0
"""A server with objects that a test changes, and the live states that are read from it."""

from collections.abc import AsyncIterator

import pytest
from pipecd_plugin_kubernetes.client import Cluster, Connection
from pipecd_plugin_kubernetes.livestate import LiveStates

from pipecd_sdk import DeployTarget
from pipecd_test_support.live_cluster import QUICK, LiveApi, Watched, running
from pipecd_test_support.scripted_api import serving_api


@pytest.fixture
async def live() -> AsyncIterator[LiveApi]:
    async with serving_api() as api:
        yield LiveApi(api)


@pytest.fixture
async def cluster(live: LiveApi) -> AsyncIterator[Cluster]:
    connection = Connection(server=live.api.url, source="the test")
    async with await Cluster.connect(connection, policy=QUICK) as connected:
        yield connected


@pytest.fixture
async def watched(cluster: Cluster) -> AsyncIterator[Watched]:
    """Live states whose watches run."""

    async def connect(_target: DeployTarget) -> Cluster:
        return cluster

    states = LiveStates(connect, first_list_seconds=10, first_pause_seconds=0.001)
    async with running(states) as made:
        yield made
