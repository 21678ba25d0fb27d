# SPDX-License-Identifier: Apache-2.0
"""Watches: no change is missed, whatever happens to the streams."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import aclosing
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pipecd_plugin_kubernetes.client import (
    ApiError,
    ChangeType,
    Cluster,
    ForbiddenError,
    GoneError,
    TooLargeError,
    UnavailableError,
    WatchEvent,
)
from pipecd_plugin_kubernetes.client.decoding import decode_slim
from pipecd_plugin_kubernetes.client.watching import LineSplitter, gather

from pipecd_test_support.scripted_api import Chunks, Drop, Hang, ScriptedApi, refuse

PODS = "/api/v1/pods"


class Metadata(msgspec.Struct):
    name: str


class Slim(msgspec.Struct):
    metadata: Metadata


def make_line(kind: str, name: str, version: str) -> bytes:
    body = {"metadata": {"name": name, "resourceVersion": version}, "spec": {"x": [1]}}
    return json.dumps({"type": kind, "object": body}).encode() + b"\n"


def make_error(code: int, reason: str) -> bytes:
    status = {"kind": "Status", "code": code, "reason": reason, "message": "too old"}
    return json.dumps({"type": "ERROR", "object": status}).encode() + b"\n"


async def start_watch(cluster: Cluster) -> AsyncIterator[WatchEvent[Any]]:
    resource = await cluster.find_resource("v1", "Pod")
    return cluster.watch(resource, labels="app=web", resource_version="5")


async def collect(cluster: Cluster, count: int) -> list[WatchEvent[Any]]:
    watch: Any = await start_watch(cluster)
    found: list[WatchEvent[Any]] = []
    async with aclosing(watch) as changes, asyncio.timeout(60):
        async for event in changes:
            found.append(event)
            if len(found) == count:
                break
    return found


async def test_changes_arrive_as_they_are_sent(api: ScriptedApi, cluster: Cluster) -> None:
    """Lines do not care where the network cuts them."""
    sent = make_line("ADDED", "a", "6") + make_line("MODIFIED", "a", "7")
    sent += make_line("BOOKMARK", "", "9") + make_line("DELETED", "a", "10")
    held = asyncio.Event()
    api.answer("GET", PODS, Chunks([sent[:30], sent[30:150], sent[150:]], ends=held))
    found = await collect(cluster, 4)
    assert [(each.type.name, each.resource_version) for each in found] == [
        ("ADDED", "6"),
        ("MODIFIED", "7"),
        ("BOOKMARK", "9"),
        ("DELETED", "10"),
    ]
    assert found[0].body == {
        "metadata": {"name": "a", "resourceVersion": "6"},
        "spec": {"x": [1]},
    }
    assert found[2].body is None
    query = dict(api.find("GET", PODS)[0].query)
    assert 290 <= int(query.pop("timeoutSeconds")) <= 590
    assert query == {
        "labelSelector": "app=web",
        "watch": "true",
        "allowWatchBookmarks": "true",
        "resourceVersion": "5",
    }


async def test_a_stream_that_ends_is_resumed_where_it_was(
    api: ScriptedApi, cluster: Cluster
) -> None:
    """At a bookmark too, and after a break, a restart, and a server that is busy."""
    held = asyncio.Event()
    api.answer(
        "GET",
        PODS,
        Chunks([make_line("ADDED", "a", "6")]),
        Chunks([make_line("BOOKMARK", "", "8")]),
        Chunks([make_line("ADDED", "b", "9")], breaks=True),
        Drop(),
        Chunks([make_line("ADDED", "c", "10")]),
        refuse(429, "TooManyRequests", "slow down"),
        Chunks([make_error(504, "Timeout")]),
        Chunks([make_line("ADDED", "c", "12")], ends=held),
    )
    found = await collect(cluster, 5)
    assert [each.resource_version for each in found] == ["6", "8", "9", "10", "12"]
    asked = [each.query["resourceVersion"] for each in api.find("GET", PODS)]
    assert asked == ["5", "6", "8", "9", "9", "10", "10", "10"]


async def test_a_version_that_is_too_old_is_an_error_of_its_own(
    api: ScriptedApi, cluster: Cluster
) -> None:
    """By an event, and by the first answer: the caller lists again."""
    for reply in (
        Chunks([make_error(410, "Expired")]),
        refuse(410, "Expired", "too old resource version"),
    ):
        api.answer("GET", PODS, reply)
        with pytest.raises(GoneError, match="cannot watch pods of v1: too old"):
            await collect(cluster, 1)


async def test_a_refusal_is_raised(api: ScriptedApi, cluster: Cluster) -> None:
    api.answer("GET", PODS, refuse(403, "Forbidden", "pods is forbidden"))
    with pytest.raises(ForbiddenError, match="pods is forbidden"):
        await collect(cluster, 1)


async def test_a_server_that_stays_away_is_said(api: ScriptedApi, cluster: Cluster) -> None:
    """Otherwise old state would be shown as if it were the present."""
    api.answer("GET", PODS, Drop())
    with pytest.raises(UnavailableError):
        await collect(cluster, 1)
    assert len(api.find("GET", PODS)) == 4


async def test_objects_are_decoded_as_the_caller_wants(api: ScriptedApi, cluster: Cluster) -> None:
    held = asyncio.Event()
    lines = make_line("ADDED", "a", "6"), make_line("BOOKMARK", "", "7")
    api.answer("GET", PODS, Chunks(lines, ends=held))
    resource = await cluster.find_resource("v1", "Pod")
    watch: Any = cluster.watch(resource, resource_version="5", decode=Slim)
    async with aclosing(watch) as changes:
        first = await anext(changes)
        assert first == WatchEvent(ChangeType.ADDED, Slim(metadata=Metadata(name="a")), "6")
        assert (await anext(changes)).body is None


@pytest.mark.parametrize(
    "line",
    [
        b"nonsense\n",
        b"{}\n",
        b'{"type": "ODD\x1b", "object": {}}\n',
        b'{"type": "ADDED", "object": 3}\n',
        b'{"type": "ADDED", "object": ' + b"[" * 50_000 + b"\n",
        b'{"type": "ERROR", "object": []}\n',
    ],
)
async def test_a_line_of_another_shape_is_a_sentence(
    line: bytes, api: ScriptedApi, cluster: Cluster
) -> None:
    api.answer("GET", PODS, Chunks([line]))
    with pytest.raises(ApiError, match="cannot watch pods of v1"):
        await collect(cluster, 1)


async def test_a_watch_that_is_left_closes_its_connection(
    api: ScriptedApi, cluster: Cluster
) -> None:
    """And calls go on beside it, on connections of their own."""
    api.answer("GET", PODS, Chunks([make_line("ADDED", "a", "6")], ends=asyncio.Event()))
    watch: Any = await start_watch(cluster)
    async with aclosing(watch) as changes:
        await anext(changes)
        await cluster.refresh_discovery()
    streams = {each.connection for each in api.find("GET", PODS)}
    calls = {each.connection for each in api.find("GET", "/apis")}
    assert not streams & calls


async def test_a_watch_can_be_cancelled(api: ScriptedApi, cluster: Cluster) -> None:
    api.answer("GET", PODS, Hang())
    task = asyncio.create_task(collect(cluster, 1))
    await api.wait_for_requests("GET", PODS, 1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@given(
    lines=st.lists(st.binary(min_size=1).filter(lambda line: b"\n" not in line)),
    cuts=st.lists(st.integers(min_value=0, max_value=400)),
)
def test_lines_are_the_same_wherever_they_are_cut(lines: list[bytes], cuts: list[int]) -> None:
    whole = b"".join(line + b"\n" for line in lines)
    places = sorted({0, len(whole), *(cut for cut in cuts if cut < len(whole))})
    splitter = LineSplitter("watch")
    found = []
    for start, end in pairwise(places):
        found += splitter.feed(whole[start:end])
    assert found == lines


def test_a_line_without_end_is_refused() -> None:
    """A server must not fill our memory."""
    splitter = LineSplitter("watch pods", longest=10)
    assert splitter.feed(b"12345") == []
    with pytest.raises(TooLargeError, match="cannot watch pods"):
        splitter.feed(b"6789012")
    with pytest.raises(TooLargeError):
        LineSplitter("watch pods", longest=10).feed(b"12345678901\n")


async def give(*chunks: bytes) -> AsyncIterator[bytes]:
    for chunk in chunks:
        await asyncio.sleep(0.02)
        yield chunk


async def test_what_follows_a_change_is_left_to_gather() -> None:
    loop = asyncio.get_running_loop()
    times = [loop.time() async for _ in gather(give(b"one", b"two"), 0.015)]

    assert times[1] - times[0] >= 0.03


@pytest.mark.parametrize("seconds", [0.0, 0.01])
async def test_everything_comes_in_its_order(seconds: float) -> None:
    found = [chunk async for chunk in gather(give(b"one", b"two", b"three"), seconds)]

    assert found == [b"one", b"two", b"three"]


def test_an_object_is_decoded_without_its_managed_fields() -> None:
    metadata = {"name": "a", "labels": {"x": "y"}}
    body = {"metadata": metadata, "spec": {"x": [1, None]}, "kind": "A"}
    managed = {**body, "metadata": {**metadata, "managedFields": [{"manager": "a"}]}}

    assert decode_slim(json.dumps(managed).encode()) == body
    assert decode_slim(json.dumps(body).encode()) == body


@pytest.mark.parametrize("body", [{}, {"metadata": None}, {"metadata": [1]}, {"metadata": {}}])
def test_an_object_of_any_shape_is_decoded(body: dict[str, Any]) -> None:
    assert decode_slim(json.dumps(body).encode()) == body


@pytest.mark.parametrize("text", [b"[]", b"1", b"{", b'{"metadata": {"managedFields": '])
def test_what_is_no_object_is_refused(text: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        decode_slim(text)
