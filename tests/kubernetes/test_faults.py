# SPDX-License-Identifier: Apache-2.0
"""The server that fails on purpose fails as it is told, and else does what the real one does."""

import json
import ssl
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager

import httpx2
import pytest

from pipecd_test_support.kubernetes.api import Api, Object, RefusedError
from pipecd_test_support.kubernetes.faults import (
    ALWAYS,
    CONFLICT,
    GONE,
    GONE_EVENT,
    INTERNAL_ERROR,
    LOST_ANSWER,
    RESET,
    THROTTLED,
    UNAVAILABLE,
    Fault,
    wait_for,
)
from pipecd_test_support.kubernetes.faulty_api_server import FaultyApiServer
from pipecd_test_support.kubernetes.real_cluster import Namespace, RealCluster
from pipecd_test_support.kubernetes.tokens import ADMIN_TOKEN
from pipecd_test_support.kubernetes.webhooks import serving_webhook
from pipecd_test_support.kubernetes.workloads import make_deployment


@pytest.fixture
def client(cluster: RealCluster, faulty_api_server: FaultyApiServer) -> Iterator[Api]:
    """A client that asks the faulty server, and shows each refusal, a throttled request's too."""
    made = Api(
        faulty_api_server.url,
        authority=cluster.authority,
        token=ADMIN_TOKEN,
        throttled_seconds=0,
    )
    yield made
    made.close()


def make_config(namespace: Namespace, name: str = "settings") -> Object:
    metadata = {"name": name, "namespace": namespace.name}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"a": "1"}}


def trust(cluster: RealCluster) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(cluster.authority))


def watching_configs(
    server: FaultyApiServer, namespace: Namespace
) -> AbstractContextManager[httpx2.Response]:
    """A watch of the ConfigMaps of a namespace, all events from the first."""
    return httpx2.stream(
        "GET",
        f"{server.url}/api/v1/namespaces/{namespace.name}/configmaps?watch=true",
        headers={"Authorization": f"Bearer {ADMIN_TOKEN}"},
        verify=trust(namespace.cluster),
    )


def test_what_is_not_failed_is_done_by_the_real_server(client: Api, namespace: Namespace) -> None:
    """Also a watch: a change reaches its reader."""
    client.apply(
        {**make_deployment("web"), "metadata": {"name": "web", "namespace": namespace.name}}
    )
    found = client.wait(
        "apps/v1",
        "Deployment",
        "web",
        namespace.name,
        is_right=lambda found: (found or {}).get("status", {}).get("readyReplicas") == 2,
    )
    assert found["metadata"]["uid"]
    client.delete("apps/v1", "Deployment", "web", namespace.name)


@pytest.mark.parametrize(
    ("fault", "status"),
    [(CONFLICT, 409), (THROTTLED, 429), (INTERNAL_ERROR, 500), (UNAVAILABLE, 503), (GONE, 410)],
)
def test_a_chosen_request_is_refused_so_many_times(
    client: Api, faulty_api_server: FaultyApiServer, namespace: Namespace, fault: Fault, status: int
) -> None:
    """Others pass meanwhile, and it passes after."""
    client.create(make_config(namespace))
    planned = faulty_api_server.fail(fault, method="GET", path="/configmaps/settings$", times=2)
    for _ in range(2):
        with pytest.raises(RefusedError) as refused:
            client.get("v1", "ConfigMap", "settings", namespace.name)
        assert refused.value.status == status
    assert client.get("v1", "ConfigMap", "settings", namespace.name)
    assert planned.done == 2
    assert (
        faulty_api_server.asked.count(
            f"GET /api/v1/namespaces/{namespace.name}/configmaps/settings"
        )
        == 3
    )


def test_a_throttled_client_is_told_when_to_come_back(
    cluster: RealCluster, faulty_api_server: FaultyApiServer
) -> None:
    """`Retry-After` is what it goes by."""
    faulty_api_server.fail(THROTTLED)
    response = httpx2.get(f"{faulty_api_server.url}/version", verify=trust(cluster))
    assert (response.status_code, response.headers["Retry-After"]) == (429, "1")


def test_a_reset_request_never_reaches_the_server(
    client: Api, faulty_api_server: FaultyApiServer, namespace: Namespace
) -> None:
    """What was not done may be done again."""
    client.find_path("v1", "ConfigMap")
    faulty_api_server.fail(RESET, method="POST")
    with pytest.raises(Api.CONNECTION_ERRORS):
        client.create(make_config(namespace))
    assert namespace.get("v1", "ConfigMap", "settings") is None
    client.create(make_config(namespace))


def test_a_lost_answer_leaves_what_was_done(
    client: Api, faulty_api_server: FaultyApiServer, namespace: Namespace
) -> None:
    """The client cannot know: the same again must do no harm."""
    client.find_path("v1", "ConfigMap")
    faulty_api_server.fail(LOST_ANSWER, method="POST")
    with pytest.raises(Api.CONNECTION_ERRORS):
        client.create(make_config(namespace))
    assert namespace.get("v1", "ConfigMap", "settings") is not None


def test_a_slow_server_answers_when_the_test_says_so(
    client: Api, faulty_api_server: FaultyApiServer, namespace: Namespace
) -> None:
    """Slowness without a clock."""
    client.find_path("v1", "ConfigMap")
    gate = threading.Event()
    faulty_api_server.fail(wait_for(gate), method="POST")
    with ThreadPoolExecutor(1) as threads:
        creating = threads.submit(client.create, make_config(namespace))
        assert namespace.get("v1", "ConfigMap", "settings") is None
        gate.set()
        assert creating.result()["metadata"]["name"] == "settings"


def test_an_expired_token_is_known_no_more(client: Api, faulty_api_server: FaultyApiServer) -> None:
    """Until the client comes with another."""
    client.request("GET", "/version")
    faulty_api_server.expire_token(ADMIN_TOKEN)
    with pytest.raises(RefusedError) as refused:
        client.request("GET", "/version")
    assert refused.value.status == 401


def test_a_watch_says_that_its_version_is_too_old(
    faulty_api_server: FaultyApiServer, namespace: Namespace
) -> None:
    """As the real server does it: in an event, after it has answered 200."""
    faulty_api_server.fail(GONE_EVENT, path="watch=true")
    with watching_configs(faulty_api_server, namespace) as events:
        assert events.status_code == 200
        (line,) = events.iter_lines()
    assert json.loads(line)["object"]["code"] == 410


def test_a_watch_is_cut(faulty_api_server: FaultyApiServer, namespace: Namespace) -> None:
    """As when the API server is restarted: without a word."""
    namespace.apply(make_config(namespace))
    with watching_configs(faulty_api_server, namespace) as events:
        lines = events.iter_lines()
        assert json.loads(next(lines))["type"] == "ADDED"
        assert faulty_api_server.cut_streams() == 1
        with pytest.raises(Api.CONNECTION_ERRORS):
            list(lines)


def test_faults_end_when_the_server_is_healed(
    client: Api, faulty_api_server: FaultyApiServer
) -> None:
    """An outage that lasts as long as the test says."""
    faulty_api_server.fail(UNAVAILABLE, times=ALWAYS)
    for _ in range(3):
        with pytest.raises(RefusedError):
            client.request("GET", "/version")
    faulty_api_server.heal()
    assert client.request("GET", "/version")["major"] == "1"


def test_a_webhook_denies_and_hangs(namespace: Namespace) -> None:
    """The real API server asks it: its own sentences are what a client gets."""
    with serving_webhook(namespace, make_config(namespace, "probe")) as webhook:
        webhook.denial = "not on a Monday"
        with pytest.raises(RefusedError, match="not on a Monday"):
            namespace.api.create(make_config(namespace))
        webhook.denial = ""
        webhook.answers.clear()
        with pytest.raises(RefusedError, match="failed calling webhook") as refused:
            namespace.api.create(make_config(namespace))
        assert refused.value.status == 500
        webhook.answers.set()
        namespace.api.create(make_config(namespace))
