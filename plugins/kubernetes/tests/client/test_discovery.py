# SPDX-License-Identifier: Apache-2.0
"""What a server serves, from new servers, old ones and broken ones."""

import asyncio
import copy
from typing import Any

import pytest
from pipecd_plugin_kubernetes.client import Cluster, NotFoundError, UnknownKindError
from pipecd_plugin_kubernetes.client.discovery import (
    FAILED_KEPT_SECONDS,
    KEPT_SECONDS,
    Discoverer,
)

from pipecd_test_support.scripted_api import Reply, ScriptedApi, refuse

WIDGETS: dict[str, Any] = {
    "metadata": {"name": "example.com"},
    "versions": [
        {
            "version": version,
            "freshness": "Current",
            "resources": [
                {"resource": "widgets", "responseKind": {"kind": "Widget"}, "scope": "Cluster"}
            ],
        }
        for version in ("v2", "v1")
    ],
}


async def ask_apis(api: ScriptedApi, cluster: Cluster) -> dict[str, Any]:
    """Returns what `/apis` of the fixture answers, to change it."""
    await cluster.discover()
    reply = api.choose_reply(api.find("GET", "/apis")[0])
    assert isinstance(reply, Reply)
    found: dict[str, Any] = copy.deepcopy(reply.body)
    return found


async def test_everything_is_asked_at_once_and_only_once(
    api: ScriptedApi, cluster: Cluster
) -> None:
    """Two requests for all kinds, however many ask."""
    found, *_ = await asyncio.gather(*(cluster.discover() for _ in range(10)))
    assert [each.path for each in api.requests] == ["/api", "/apis"]
    deployment = found.find("apps/v1", "Deployment")
    assert deployment is not None
    assert (deployment.plural, deployment.namespaced) == ("deployments", True)
    assert deployment.subresources == {"status", "scale"}
    assert await cluster.find_resource("apps/v1", "Deployment") == deployment
    namespace = await cluster.find_resource("v1", "Namespace")
    assert (namespace.namespaced, namespace.api_version) == (False, "v1")


async def test_a_kind_that_was_just_defined_is_found(api: ScriptedApi, cluster: Cluster) -> None:
    """The definition stands in the same commit as its first object."""
    apis = await ask_apis(api, cluster)
    later = {**apis, "items": [*apis["items"], WIDGETS]}
    api.answer("GET", "/apis", Reply(body=later))
    widget = await cluster.find_resource("example.com/v1", "Widget")
    assert widget.api_version == "example.com/v1"
    preferred = (await cluster.discover()).select_preferred()
    assert [each.version for each in preferred if each.kind == "Widget"] == ["v2"]


async def test_a_kind_that_appears_a_moment_later_is_waited_for(
    api: ScriptedApi, cluster: Cluster
) -> None:
    apis = await ask_apis(api, cluster)
    later = {**apis, "items": [*apis["items"], WIDGETS]}
    api.answer("GET", "/apis", Reply(body=apis), Reply(body=apis), Reply(body=later))
    widget = await cluster.find_resource("example.com/v1", "Widget", within_seconds=30)
    assert widget.kind == "Widget"


async def test_an_unknown_kind_is_asked_for_once_more_and_then_named(
    api: ScriptedApi, cluster: Cluster
) -> None:
    await cluster.discover()
    with pytest.raises(UnknownKindError) as caught:
        await cluster.find_resource("example.com/v1", "Wid\x1bget")
    assert r"'Wid\\x1bget' of 'example.com/v1'" in str(caught.value)
    assert "CustomResourceDefinition" in caught.value.hint
    assert len(api.find("GET", "/apis")) == 2
    with pytest.raises(UnknownKindError) as caught:
        await cluster.find_resource("extensions/v1beta1", "Deployment")
    assert caught.value.hint == "it serves this kind in apps/v1"


async def test_one_broken_group_does_not_hide_the_others(
    api: ScriptedApi, cluster: Cluster
) -> None:
    """A metrics server that is down must not stop deployments."""
    apis = await ask_apis(api, cluster)
    broken = {
        "metadata": {"name": "metrics.k8s.io"},
        "versions": [{"version": "v1beta1", "freshness": "Stale"}],
    }
    api.answer("GET", "/apis", Reply(body={**apis, "items": [broken, *apis["items"]]}))
    found = await cluster.refresh_discovery()
    assert found.find("apps/v1", "Deployment") is not None
    assert found.failed_groups == {
        "metrics.k8s.io": "what the API group 'metrics.k8s.io' serves is not known: "
        "its own server does not answer"
    }
    with pytest.raises(UnknownKindError, match="it is not known whether") as caught:
        await cluster.find_resource("metrics.k8s.io/v1beta1", "PodMetrics")
    assert caught.value.is_group_failed


async def test_older_servers_are_asked_group_by_group(api: ScriptedApi, cluster: Cluster) -> None:
    """And one group that fails is recorded with its reason."""
    api.answer("GET", "/api", Reply(body={"kind": "APIVersions", "versions": ["v1"]}))
    groups = [
        {
            "name": "apps",
            "versions": [{"version": "v1beta1"}, {"version": "v1"}],
            "preferredVersion": {"version": "v1"},
        },
        {"name": "metrics.k8s.io", "versions": [{"version": "v1"}]},
        {"name": "gone.example.com", "versions": [{"version": "v1"}]},
    ]
    api.answer("GET", "/apis", Reply(body={"kind": "APIGroupList", "groups": groups}))
    deployments = [
        {"name": "deployments", "kind": "Deployment", "namespaced": True, "verbs": ["get"]},
        {"name": "deployments/scale", "kind": "Scale", "namespaced": True, "verbs": ["get"]},
    ]
    pods = [{"name": "pods", "kind": "Pod", "namespaced": True, "verbs": ["get"]}]
    for version in ("v1", "v1beta1"):
        api.answer("GET", f"/apis/apps/{version}", Reply(body={"resources": deployments}))
    api.answer("GET", "/api/v1", Reply(body={"resources": pods}))
    api.answer("GET", "/apis/metrics.k8s.io/v1", refuse(503, "ServiceUnavailable", "no endpoints"))
    found = await cluster.discover()
    assert [(each.api_version, each.kind) for each in found.resources] == [
        ("v1", "Pod"),
        ("apps/v1", "Deployment"),
        ("apps/v1beta1", "Deployment"),
    ]
    assert found.resources[1].subresources == {"scale"}
    assert list(found.failed_groups) == ["metrics.k8s.io"]
    assert "no endpoints" in found.failed_groups["metrics.k8s.io"]


async def test_an_answer_of_another_shape_hides_nothing_else(
    api: ScriptedApi, cluster: Cluster
) -> None:
    apis = await ask_apis(api, cluster)
    odd = [3, {"metadata": 3, "versions": [{"version": "v1", "resources": [{"resource": 1}, 7]}]}]
    api.answer("GET", "/apis", Reply(body={**apis, "items": [*odd, *apis["items"]]}))
    found = await cluster.refresh_discovery()
    assert found.find("apps/v1", "Deployment") is not None


async def test_what_is_known_is_asked_for_again_after_a_while(
    api: ScriptedApi, cluster: Cluster
) -> None:
    """Others define kinds and repair groups; who prunes must know all that is there."""
    now = 0.0
    discoverer = Discoverer(now_seconds=lambda: now)
    caller = cluster._caller
    first = await discoverer.discover(caller)
    now = KEPT_SECONDS - 1
    assert await discoverer.discover(caller) is first
    now = KEPT_SECONDS
    items = [{"metadata": {"name": "x"}, "versions": [{"version": "v1", "freshness": "Stale"}]}]
    api.answer("GET", "/apis", Reply(body={"kind": "APIGroupDiscoveryList", "items": items}))
    assert list((await discoverer.discover(caller)).failed_groups) == ["x"]
    api.answer("GET", "/apis", Reply(body={"kind": "APIGroupDiscoveryList", "items": []}))
    now += FAILED_KEPT_SECONDS
    assert not (await discoverer.discover(caller)).failed_groups


async def test_a_kind_that_is_not_served_any_more_is_forgotten(
    api: ScriptedApi, cluster: Cluster
) -> None:
    """Its definition was removed: the next one who asks is told, instead of trying."""
    resource = await cluster.find_resource("apps/v1", "Deployment")
    path = "/apis/apps/v1/deployments"
    gone = "the server could not find the requested resource"
    api.answer("GET", path, refuse(404, "NotFound", gone))
    api.answer("GET", "/apis", Reply(body={"kind": "APIGroupDiscoveryList", "items": []}))
    with pytest.raises(NotFoundError, match=gone):
        await cluster.list(resource)
    with pytest.raises(UnknownKindError):
        await cluster.find_resource("apps/v1", "Deployment")
