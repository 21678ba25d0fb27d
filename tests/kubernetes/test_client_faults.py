# SPDX-License-Identifier: Apache-2.0
"""Faults between the plugin's client and a real API server: survived, or failed with a sentence."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path

import pytest
from pipecd_plugin_kubernetes.client import (
    AlreadyExistsError,
    ApiError,
    ChangeType,
    Cluster,
    GoneError,
    Object,
    RetryNotice,
    RetryPolicy,
    UnauthorizedError,
    UnavailableError,
    load_connection,
)

from pipecd_test_support.kubernetes.faults import (
    ALWAYS,
    CONFLICT,
    GONE,
    GONE_EVENT,
    INTERNAL_ERROR,
    LOST_ANSWER,
    NOT_JSON,
    RESET,
    THROTTLED,
    TIMED_OUT,
    UNAVAILABLE,
    Fault,
    wait_for,
)
from pipecd_test_support.kubernetes.faulty_api_server import FaultyApiServer
from pipecd_test_support.kubernetes.real_cluster import Namespace
from pipecd_test_support.kubernetes.tokens import ADMIN_TOKEN, NOBODY_TOKEN
from pipecd_test_support.kubernetes.webhooks import serving_webhook

QUICK = RetryPolicy(most_attempts=4, first_pause_seconds=0.01, longest_pause_seconds=0.02)
PASSING = [
    pytest.param(RESET, id="reset"),
    pytest.param(LOST_ANSWER, id="lost answer"),
    pytest.param(THROTTLED, id="429"),
    pytest.param(INTERNAL_ERROR, id="500"),
    pytest.param(UNAVAILABLE, id="503"),
    pytest.param(TIMED_OUT, id="504"),
]


@pytest.fixture
async def client(faulty_api_server: FaultyApiServer, tmp_path: Path) -> AsyncIterator[Cluster]:
    """An administrator's, that asks the faulty server and does not wait long."""
    path = faulty_api_server.write_kubeconfig(tmp_path / "kubeconfig")
    connection = await load_connection(kubeconfig=str(path))
    async with await Cluster.connect(connection, policy=QUICK) as connected:
        await connected.discover()
        yield connected


def make_settings(namespace: Namespace, name: str = "settings") -> Object:
    metadata = {"name": name, "namespace": namespace.name, "labels": {"of": "test"}}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"a": "1"}}


def read_settings(namespace: Namespace) -> Object:
    found = namespace.get("v1", "ConfigMap", "settings")
    assert found is not None
    return found


def count_settings(namespace: Namespace) -> int:
    return len(namespace.find_all("v1", "ConfigMap", labels="of=test"))


@pytest.mark.parametrize("fault", [*PASSING, pytest.param(CONFLICT, id="409")])
async def test_an_apply_is_done_once(
    fault: Fault, client: Cluster, faulty_api_server: FaultyApiServer, namespace: Namespace
) -> None:
    planned = faulty_api_server.fail(fault, method="PATCH")
    notices: list[RetryNotice] = []
    applied = await client.report_to(on_retry=notices.append).apply(make_settings(namespace))
    assert (planned.done, len(notices)) == (1, 1)
    assert count_settings(namespace) == 1
    assert applied["data"] == {"a": "1"}


@pytest.mark.parametrize("fault", PASSING)
async def test_a_deletion_is_done_once(
    fault: Fault, client: Cluster, faulty_api_server: FaultyApiServer, namespace: Namespace
) -> None:
    """It was there, whichever attempt did it."""
    made = await client.apply(make_settings(namespace))
    planned = faulty_api_server.fail(fault, method="DELETE")
    assert await client.delete(await client.ref_of(made), uid=made["metadata"]["uid"])
    assert planned.done == 1
    assert count_settings(namespace) == 0


async def test_a_list_with_a_fault_in_its_middle_is_whole(
    client: Cluster, faulty_api_server: FaultyApiServer, namespace: Namespace
) -> None:
    """Whatever happens to its second page."""
    names = [f"s{number:03d}" for number in range(510)]
    await asyncio.gather(*(client.create(make_settings(namespace, name)) for name in names))
    resource = await client.find_resource("v1", "ConfigMap")
    for fault in (RESET, LOST_ANSWER, THROTTLED, INTERNAL_ERROR, UNAVAILABLE, TIMED_OUT, GONE):
        planned = faulty_api_server.fail(fault, method="GET", path="configmaps.*continue=")
        found = await client.list(resource, namespace=namespace.name, labels="of=test")
        assert planned.done == 1
        assert [each["metadata"]["name"] for each in found] == names


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        pytest.param(RESET, UnavailableError, id="reset"),
        pytest.param(INTERNAL_ERROR, UnavailableError, id="500"),
        pytest.param(GONE, GoneError, id="410"),
        pytest.param(NOT_JSON, ApiError, id="a page of a proxy"),
    ],
)
async def test_a_list_that_cannot_be_read_fails_with_a_sentence(
    fault: Fault,
    expected: type[ApiError],
    client: Cluster,
    faulty_api_server: FaultyApiServer,
    namespace: Namespace,
) -> None:
    """Never an empty one: it would prune everything."""
    await client.apply(make_settings(namespace))
    resource = await client.find_resource("v1", "ConfigMap")
    faulty_api_server.fail(fault, method="GET", path="configmaps", times=ALWAYS)
    with pytest.raises(expected, match="cannot list configmaps of v1 in namespace"):
        await client.list(resource, namespace=namespace.name)


@pytest.mark.parametrize("times", [1, ALWAYS], ids=["once", "always"])
async def test_a_create_whose_answer_was_lost_has_made_one(
    times: int, client: Cluster, faulty_api_server: FaultyApiServer, namespace: Namespace
) -> None:
    """That it is there is no failure: it is what was sent."""
    planned = faulty_api_server.fail(LOST_ANSWER, method="POST", times=times)
    made = await client.create(make_settings(namespace))
    assert planned.done >= 1
    assert made["metadata"]["uid"] == read_settings(namespace)["metadata"]["uid"]
    assert count_settings(namespace) == 1


async def test_a_create_that_meets_somebody_elses_object_after_a_reset_is_refused(
    client: Cluster, faulty_api_server: FaultyApiServer, namespace: Namespace
) -> None:
    theirs = await asyncio.to_thread(namespace.apply, {**make_settings(namespace), "data": {}})
    faulty_api_server.fail(RESET, method="POST")
    with pytest.raises(AlreadyExistsError, match="cannot create ConfigMap 'settings'"):
        await client.create(make_settings(namespace))
    assert read_settings(namespace)["metadata"]["uid"] == theirs["metadata"]["uid"]


async def test_a_watch_misses_nothing_when_its_streams_are_cut(
    client: Cluster, faulty_api_server: FaultyApiServer, namespace: Namespace
) -> None:
    resource = await client.find_resource("v1", "ConfigMap")
    listed = await client.list(resource, namespace=namespace.name)
    watch = client.watch(
        resource,
        namespace=namespace.name,
        labels="of=test",
        resource_version=listed.resource_version,
    )
    seen: list[str] = []
    async with aclosing(watch) as changes, asyncio.timeout(60):
        for number in range(4):
            name = f"s{number}"
            await client.apply(make_settings(namespace, name))
            async for event in changes:
                if event.body is not None and event.type is ChangeType.ADDED:
                    seen.append(event.body["metadata"]["name"])
                    break
            faulty_api_server.fail(INTERNAL_ERROR, path="watch=true")
            assert await asyncio.to_thread(faulty_api_server.cut_streams) == 1
    assert seen == ["s0", "s1", "s2", "s3"]


async def test_a_watch_whose_version_is_gone_says_so(
    client: Cluster, faulty_api_server: FaultyApiServer, namespace: Namespace
) -> None:
    resource = await client.find_resource("v1", "ConfigMap")
    faulty_api_server.fail(GONE_EVENT, path="watch=true")
    watch = client.watch(resource, namespace=namespace.name, resource_version="1")
    async with aclosing(watch) as changes:
        with pytest.raises(GoneError, match="too old resource version"):
            await anext(changes)


async def test_a_token_that_expires_is_replaced_from_its_file(
    faulty_api_server: FaultyApiServer, namespace: Namespace, tmp_path: Path
) -> None:
    """The kubeconfig itself was renewed; nobody restarts anything."""
    path = faulty_api_server.write_kubeconfig(tmp_path / "kubeconfig", token=NOBODY_TOKEN)
    connection = await load_connection(kubeconfig=str(path))
    async with await Cluster.connect(connection, policy=QUICK) as client:
        await client.discover()
        faulty_api_server.expire_token(NOBODY_TOKEN)
        with pytest.raises(UnauthorizedError) as caught:
            await client.apply(make_settings(namespace))
        assert "does not accept our credentials" in str(caught.value)
        assert NOBODY_TOKEN not in caught.value.reason()
        faulty_api_server.write_kubeconfig(path, token=ADMIN_TOKEN)
        await client.apply(make_settings(namespace))
    assert count_settings(namespace) == 1


async def test_a_webhook_that_hangs_is_waited_for(client: Cluster, namespace: Namespace) -> None:
    """It answers again before the attempts are over."""
    with serving_webhook(namespace, make_settings(namespace, "probe")) as webhook:
        webhook.answers.clear()
        notices: list[RetryNotice] = []

        def heal(notice: RetryNotice) -> None:
            notices.append(notice)
            webhook.answers.set()

        await client.report_to(on_retry=heal).create(make_settings(namespace))
        assert [each.attempt for each in notices] == [1]
        assert "failed calling webhook" in notices[0].reason
        webhook.denial = "not on a Friday"
        with pytest.raises(ApiError, match="not on a Friday"):
            await client.create(make_settings(namespace, "other"))


async def test_a_slow_server_does_not_hold_a_cancelled_call(
    client: Cluster, faulty_api_server: FaultyApiServer, namespace: Namespace
) -> None:
    """The server has the request, and somebody presses cancel."""
    gate = threading.Event()
    planned = faulty_api_server.fail(wait_for(gate), method="GET", path="/configmaps/settings")
    ref = await client.ref_of(make_settings(namespace))
    call = asyncio.create_task(client.get(ref))
    while not planned.done:
        await asyncio.to_thread(namespace.find_all, "v1", "ConfigMap")  # a pause with an end
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    gate.set()
    assert await client.get(ref) is None
