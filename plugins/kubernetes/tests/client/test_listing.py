# SPDX-License-Identifier: Apache-2.0
"""Lists are complete and of one version, or they fail."""

from typing import Any

import msgspec
import pytest
from pipecd_plugin_kubernetes.client import (
    ApiError,
    Cluster,
    ForbiddenError,
    GoneError,
    UnavailableError,
)

from pipecd_test_support.scripted_api import Drop, Reply, ScriptedApi, SeenRequest, refuse

PODS = "/api/v1/namespaces/shop/pods"
GONE = refuse(410, "Expired", "The provided continue parameter is too old")


class Metadata(msgspec.Struct):
    name: str


class Slim(msgspec.Struct):
    metadata: Metadata


def make_page(names: str, *, version: str = "7", more: str = "") -> Reply:
    items: list[Any] = [{"metadata": {"name": name}} for name in names]
    metadata = {"resourceVersion": version, **({"continue": more} if more else {})}
    return Reply(body={"kind": "PodList", "metadata": metadata, "items": items or None})


async def list_names(cluster: Cluster) -> tuple[str, str]:
    resource = await cluster.find_resource("v1", "Pod")
    found = await cluster.list(resource, namespace="shop", labels="app=web", fields="a=b")
    return "".join(each["metadata"]["name"] for each in found), found.resource_version


async def test_a_list_is_read_page_by_page(api: ScriptedApi, cluster: Cluster) -> None:
    api.answer("GET", PODS, make_page("ab", more="t1"), make_page("c", more="t2"), make_page("d"))
    assert await list_names(cluster) == ("abcd", "7")
    queries = [each.query for each in api.find("GET", PODS)]
    assert [each.get("continue") for each in queries] == [None, "t1", "t2"]
    assert queries[2] == {
        "labelSelector": "app=web",
        "fieldSelector": "a=b",
        "limit": "500",
        "continue": "t2",
    }


async def test_the_objects_of_a_list_have_their_kind(api: ScriptedApi, cluster: Cluster) -> None:
    """The server leaves it out of lists; a manifest without a kind is none."""
    api.answer("GET", PODS, make_page("a"))
    found = await cluster.list(await cluster.find_resource("v1", "Pod"), namespace="shop")
    assert found.items[0] == {"metadata": {"name": "a"}, "apiVersion": "v1", "kind": "Pod"}


async def test_an_empty_list_is_one(api: ScriptedApi, cluster: Cluster) -> None:
    api.answer("GET", PODS, make_page(""))
    assert await list_names(cluster) == ("", "7")


async def test_who_keeps_many_decodes_little_of_each(api: ScriptedApi, cluster: Cluster) -> None:
    api.answer("GET", PODS, make_page("ab"))
    resource = await cluster.find_resource("v1", "Pod")
    found = await cluster.list(resource, namespace="shop", decode=Slim)
    assert [each.metadata.name for each in found] == ["a", "b"]


async def test_what_is_kept_is_made_page_by_page(api: ScriptedApi, cluster: Cluster) -> None:
    """Who keeps ten thousand objects never holds the text of more than a page."""
    api.answer("GET", PODS, make_page("ab", more="t"), make_page("c"))

    def convert(pod: Slim) -> str | None:
        return None if pod.metadata.name == "b" else pod.metadata.name.upper()

    resource = await cluster.find_resource("v1", "Pod")
    found = await cluster.list(resource, namespace="shop", decode=Slim, convert=convert)
    assert list(found) == ["A", "C"]


async def test_a_version_that_is_gone_begins_the_list_again(
    api: ScriptedApi, cluster: Cluster
) -> None:
    """The rest from another version would miss what moved between the pages."""
    api.answer("GET", PODS, make_page("ab", more="t"), GONE, make_page("xyz", version="9"))
    assert await list_names(cluster) == ("xyz", "9")


async def test_a_page_of_another_version_begins_the_list_again(
    api: ScriptedApi, cluster: Cluster
) -> None:
    first, other = make_page("ab", more="t"), make_page("c", version="8")
    api.answer("GET", PODS, first, other, make_page("xyz", version="9"))
    assert await list_names(cluster) == ("xyz", "9")


async def test_a_list_that_is_always_too_slow_is_read_in_one_page(
    api: ScriptedApi, cluster: Cluster
) -> None:
    def answer(request: SeenRequest) -> Reply:
        if "continue" in request.query:
            return GONE
        if "limit" in request.query:
            return make_page("a", more="t")
        return make_page("abc")

    api.answer("GET", PODS, answer)
    assert await list_names(cluster) == ("abc", "7")


async def test_a_list_never_ends_in_a_part_of_it(api: ScriptedApi, cluster: Cluster) -> None:
    """Whoever prunes by a list deletes what is missing in it."""
    for failure, expected in (
        (refuse(403, "Forbidden", "no"), ForbiddenError),
        (refuse(500, "InternalError", "etcd"), UnavailableError),
        (Drop(first=b"HTTP/1.1 200 OK\r\nContent-Length: 90\r\n\r\n{}"), UnavailableError),
        (Reply(body={"metadata": {"resourceVersion": "7"}, "items": [1]}), ApiError),
        (Reply(body=b'{"metadata": {"resourceVersion": "7"}, "items": [{}'), ApiError),
    ):
        api.answer("GET", PODS, make_page("ab", more="t"), failure)
        with pytest.raises(expected, match="cannot list pods of v1 in namespace 'shop'"):
            await list_names(cluster)


async def test_a_list_that_is_gone_every_time_fails(api: ScriptedApi, cluster: Cluster) -> None:
    api.answer("GET", PODS, GONE)
    with pytest.raises(GoneError):
        await list_names(cluster)


async def test_a_list_without_end_is_refused(api: ScriptedApi, cluster: Cluster) -> None:
    """A server that gives the same page again and again must not fill our memory."""
    api.answer("GET", PODS, make_page("ab", more="t"))
    with pytest.raises(ApiError, match="the list has no end"):
        await list_names(cluster)
    assert len(api.find("GET", PODS)) == 2
