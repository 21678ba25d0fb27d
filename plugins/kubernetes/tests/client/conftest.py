# SPDX-License-Identifier: Apache-2.0
"""An API server that answers as a test says, and clients of it."""

from collections.abc import AsyncIterator

import pytest
from pipecd_plugin_kubernetes.client import Cluster, Connection, RetryPolicy

from pipecd_test_support.scripted_api import Reply, ScriptedApi, serving_api

QUICK = RetryPolicy(
    most_attempts=4, total_seconds=20, first_pause_seconds=0.001, longest_pause_seconds=0.002
)

APIS = {
    "kind": "APIGroupDiscoveryList",
    "items": [
        {
            "metadata": {"name": "apps"},
            "versions": [
                {
                    "version": "v1",
                    "freshness": "Current",
                    "resources": [
                        {
                            "resource": "deployments",
                            "responseKind": {"group": "", "version": "", "kind": "Deployment"},
                            "scope": "Namespaced",
                            "verbs": ["get", "list", "watch", "patch"],
                            "subresources": [{"subresource": "status"}, {"subresource": "scale"}],
                        }
                    ],
                }
            ],
        }
    ],
}
CORE = {
    "kind": "APIGroupDiscoveryList",
    "items": [
        {
            "metadata": {"name": ""},
            "versions": [
                {
                    "version": "v1",
                    "resources": [
                        {
                            "resource": plural,
                            "responseKind": {"kind": kind},
                            "scope": scope,
                            "verbs": ["get", "list", "watch"],
                        }
                        for plural, kind, scope in (
                            ("configmaps", "ConfigMap", "Namespaced"),
                            ("events", "Event", "Namespaced"),
                            ("namespaces", "Namespace", "Cluster"),
                            ("pods", "Pod", "Namespaced"),
                        )
                    ],
                }
            ],
        }
    ],
}


@pytest.fixture
async def api() -> AsyncIterator[ScriptedApi]:
    """A server without TLS that serves Deployments and a few kinds of the core group."""
    async with serving_api() as served:
        served.answer("GET", "/api", Reply(body=CORE))
        served.answer("GET", "/apis", Reply(body=APIS))
        yield served


@pytest.fixture
async def cluster(api: ScriptedApi) -> AsyncIterator[Cluster]:
    """A client of it that retries at once."""
    connection = Connection(server=api.url, source="the test")
    async with await Cluster.connect(connection, policy=QUICK) as connected:
        yield connected
