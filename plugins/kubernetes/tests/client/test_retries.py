# SPDX-License-Identifier: Apache-2.0
"""Which calls are made again, how often, and what people are told about it."""

import asyncio
import gzip

import pytest
from pipecd_plugin_kubernetes.client import (
    AlreadyExistsError,
    ApiError,
    Cluster,
    ConflictError,
    Connection,
    Object,
    RetryNotice,
    RetryPolicy,
    UnavailableError,
)

from pipecd_runtime.ports import pick_port
from pipecd_test_support.scripted_api import Drop, Hang, Reply, ScriptedApi, refuse

WEB = "/apis/apps/v1/namespaces/shop/deployments/web"
ALL = "/apis/apps/v1/namespaces/shop/deployments"
BODY: Object = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "web", "namespace": "shop"},
}
BUSY = refuse(429, "TooManyRequests", "slow down", headers={"Retry-After": "0.05"})
WEBHOOK = refuse(
    500,
    "InternalError",
    'Internal error occurred: failed calling webhook "check.example.com": failed to call webhook: '
    'Post "https://check.default.svc:443/?timeout=10s": context deadline exceeded',
)
DOWN = refuse(503, "ServiceUnavailable", "the server is currently unable to handle the request")
RESTARTED = Drop(resets=True)
LOCKED = refuse(409, "Conflict", "Operation cannot be fulfilled: the object has been modified")


@pytest.mark.parametrize("fault", [BUSY, WEBHOOK, DOWN, Drop(), RESTARTED, LOCKED])
async def test_an_apply_survives_what_passes(
    fault: Reply | Drop, api: ScriptedApi, cluster: Cluster
) -> None:
    """A server-side apply twice is the same as once."""
    api.answer("PATCH", WEB, fault, fault, Reply(body=BODY))
    notices: list[RetryNotice] = []
    await cluster.report_to(on_retry=notices.append).apply(BODY)
    assert len(api.find("PATCH", WEB)) == 3
    assert [each.attempt for each in notices] == [1, 2]
    assert notices[0].what == "apply Deployment 'web' in namespace 'shop'"
    assert not notices[0].reason.startswith("cannot")
    assert str(notices[0]).startswith(
        f"cannot {notices[0].what}: {notices[0].reason}; trying again"
    )


@pytest.mark.parametrize("fault", [BUSY, WEBHOOK])
async def test_a_create_is_made_again_when_nothing_was_done(
    fault: Reply, api: ScriptedApi, cluster: Cluster
) -> None:
    api.answer("POST", ALL, fault, Reply(status=201, body=BODY))
    await cluster.create(BODY)
    assert len(api.find("POST", ALL)) == 2


EXISTS = refuse(409, "AlreadyExists", 'deployments "web" already exists')


def made_by(manager: str, operation: str = "Update", **more: object) -> Object:
    entries = [{"manager": "other", "operation": "Apply"}]
    entries.append({"manager": manager, "operation": operation})
    metadata = {"uid": "1", "managedFields": entries, **BODY["metadata"]}
    return {**BODY, "metadata": metadata, "status": {}, **more}


@pytest.mark.parametrize("fault", [DOWN, Drop(), RESTARTED])
async def test_a_create_whose_outcome_is_not_known_is_made_again_and_known_by_what_is_there(
    fault: Reply | Drop, api: ScriptedApi, cluster: Cluster
) -> None:
    api.answer("POST", ALL, fault, EXISTS)
    api.answer("GET", WEB, Reply(body=made_by("piped")))
    assert (await cluster.create(BODY))["metadata"]["uid"] == "1"
    assert len(api.find("POST", ALL)) == 2


@pytest.mark.parametrize(
    "there",
    [
        made_by("somebody"),
        made_by("piped", "Apply"),
        {**BODY, "metadata": {**BODY["metadata"], "managedFields": "many"}},
        {**made_by("piped"), "spec": {"replicas": 2}},
        {**made_by("piped"), "spec": {"replicas": True, "template": []}},
    ],
    ids=["manager", "operation", "hostile", "content", "type"],
)
async def test_after_a_lost_answer_an_object_of_others_is_there_already(
    there: Object, api: ScriptedApi, cluster: Cluster
) -> None:
    api.answer("POST", ALL, DOWN, EXISTS)
    api.answer("GET", WEB, Reply(body=there))
    body = {**BODY, "spec": {"replicas": 1, "template": []}} if "spec" in there else BODY
    with pytest.raises(AlreadyExistsError, match="cannot create Deployment 'web'"):
        await cluster.create(body)


async def test_a_create_that_is_never_answered_has_not_made_anything(
    api: ScriptedApi, cluster: Cluster
) -> None:
    api.answer("POST", ALL, DOWN)
    api.answer("GET", WEB, refuse(404, "NotFound", 'deployments "web" not found'))
    with pytest.raises(UnavailableError, match="cannot create Deployment 'web'"):
        await cluster.create(BODY)


async def test_a_server_asks_for_a_pause_and_gets_it(api: ScriptedApi, cluster: Cluster) -> None:
    api.answer("PATCH", WEB, BUSY, Reply(body=BODY))
    notices: list[RetryNotice] = []
    await cluster.report_to(on_retry=notices.append).apply(BODY)
    assert notices[0].pause_seconds == pytest.approx(0.05)


async def test_a_pause_that_is_too_long_is_not_begun(api: ScriptedApi, cluster: Cluster) -> None:
    """A stage has a limit; a failure with a reason beats a wait without end."""
    late = refuse(429, "TooManyRequests", "come back tomorrow", headers={"Retry-After": "86400"})
    api.answer("PATCH", WEB, late)
    with pytest.raises(UnavailableError, match="answered 429: come back tomorrow"):
        await cluster.apply(BODY)
    assert len(api.find("PATCH", WEB)) == 1


async def test_attempts_are_bounded_and_the_last_failure_is_the_reason(
    api: ScriptedApi, cluster: Cluster
) -> None:
    api.answer("PATCH", WEB, DOWN, WEBHOOK)
    with pytest.raises(UnavailableError) as caught:
        await cluster.apply(BODY)
    assert len(api.find("PATCH", WEB)) == 4
    assert str(caught.value).startswith(
        "cannot apply Deployment 'web' in namespace 'shop': the server answered 500: "
        'Internal error occurred: failed calling webhook "check.example.com"'
    )


async def test_a_server_that_is_not_there_is_named(api: ScriptedApi) -> None:
    connection = Connection(server=f"http://localhost:{pick_port()}")
    policy = RetryPolicy(most_attempts=2, first_pause_seconds=0.001)
    async with await Cluster.connect(connection, policy=policy) as cluster:
        with pytest.raises(UnavailableError) as caught:
            await cluster.discover()
    assert caught.value.was_refused
    assert connection.server.removeprefix("http://") in str(caught.value)


async def test_a_conflict_of_managers_is_not_made_again(api: ScriptedApi, cluster: Cluster) -> None:
    cause = {"reason": "FieldManagerConflict", "field": ".spec", "message": 'conflict with "x"'}
    api.answer("PATCH", WEB, refuse(409, "Conflict", "Apply failed", causes=[cause]))
    with pytest.raises(ConflictError):
        await cluster.apply(BODY)
    assert len(api.find("PATCH", WEB)) == 1


async def test_a_cancelled_call_leaves_nothing_behind(api: ScriptedApi, cluster: Cluster) -> None:
    """A stage that is cancelled stops now; the next one finds connections as usual."""
    api.answer("GET", WEB, Hang())
    ref = await cluster.ref_of(BODY)
    calls = [asyncio.create_task(cluster.get(ref)) for _ in range(40)]
    await api.wait_for_requests("GET", WEB, 32)
    for call in calls:
        call.cancel()
    ended = await asyncio.gather(*calls, return_exceptions=True)
    assert all(isinstance(each, asyncio.CancelledError) for each in ended)
    api.answer("GET", WEB, Reply(body=BODY))
    assert await cluster.get(ref) == BODY


async def test_calls_share_a_bounded_number_of_connections(
    api: ScriptedApi, cluster: Cluster
) -> None:
    """A sync of a thousand objects must not become a thousand connections."""
    api.answer("GET", WEB, Reply(body=BODY))
    ref = await cluster.ref_of(BODY)
    for _ in range(5):
        await cluster.get(ref)
    assert api.connections == 1
    await asyncio.gather(*(cluster.get(ref) for _ in range(200)))
    assert api.most_at_once <= 32
    assert api.connections <= 32


async def test_what_a_proxy_says_is_cleaned_and_bounded(api: ScriptedApi, cluster: Cluster) -> None:
    """A page of a balancer, or an attack on a terminal: one safe line of it is shown."""
    page = b"<html>\x1b]0;owned\x07 bad\r\ngateway" + b"x" * 5_000_000
    api.answer("PATCH", WEB, Reply(status=400, body=page, content_type="text/html"))
    with pytest.raises(ApiError) as caught:
        await cluster.apply(BODY)
    assert r"\x1b]0;owned\x07 bad gateway" in str(caught.value)
    assert len(str(caught.value)) < 1200
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "body", [b"[]", b'"x"', b"{", b"\xff", b"[" * 100_000, b'{"details": 3, "reason": []}']
)
async def test_a_refusal_of_any_shape_is_a_sentence(
    body: bytes, api: ScriptedApi, cluster: Cluster
) -> None:
    api.answer("PATCH", WEB, Reply(status=403, body=body))
    with pytest.raises(ApiError, match="cannot apply Deployment 'web'"):
        await cluster.apply(BODY)


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b"<html>", b"{" * 100_000])
async def test_a_success_of_another_shape_is_a_sentence(
    body: bytes, api: ScriptedApi, cluster: Cluster
) -> None:
    api.answer("PATCH", WEB, Reply(body=body))
    with pytest.raises(ApiError, match="not what the API gives"):
        await cluster.apply(BODY)


async def test_warnings_of_the_server_are_passed_on(api: ScriptedApi, cluster: Cluster) -> None:
    """Such as the end of an API version: nobody reads the server's own log."""
    warning = '299 - "apps/v1beta1 \\"Deployment\\" is deprecated"'
    api.answer("PATCH", WEB, Reply(body=BODY, headers={"Warning": warning}))
    said: list[str] = []
    told = cluster.report_to(on_warning=said.append)
    for _ in range(3):
        await told.apply(BODY)
    assert said == ['apps/v1beta1 "Deployment" is deprecated']


async def test_compressed_answers_are_read(api: ScriptedApi, cluster: Cluster) -> None:
    packed = gzip.compress(b'{"kind": "Deployment"}')
    api.answer("PATCH", WEB, Reply(body=packed, headers={"Content-Encoding": "gzip"}))
    assert await cluster.apply(BODY) == {"kind": "Deployment"}


async def test_a_closed_cluster_says_so(api: ScriptedApi, cluster: Cluster) -> None:
    notices: list[RetryNotice] = []
    await cluster.close()
    with pytest.raises(UnavailableError, match="closed"):
        await cluster.report_to(on_retry=notices.append).discover()
    assert notices == [], "it does not open again"
