# SPDX-License-Identifier: Apache-2.0
"""Which kinds are watched: the usual ones, and what the piped file and manifests name."""

from dataclasses import replace

from pipecd_plugin_kubernetes.client import ApiResource, Discovery
from pipecd_plugin_kubernetes.config import AppStateInformer, ResourceKind
from pipecd_plugin_kubernetes.livestate.kinds import choose_kinds

from pipecd_test_support.live_cluster import ALL, DEPLOYMENT, NAMESPACE, POD, THING, resource

EVENT = resource("", "Event")
UNLISTED = replace(resource("", "Secret"), verbs=frozenset({"get"}))
OLD = resource("apps", "Deployment", version="v1beta1")


def choose(
    *resources: ApiResource,
    wanted: tuple[tuple[str, str], ...] = (),
    namespace: str = "",
    include: tuple[ResourceKind, ...] = (),
    exclude: tuple[ResourceKind, ...] = (),
) -> list[str]:
    informer = AppStateInformer(
        namespace=namespace, include_resources=include, exclude_resources=exclude
    )
    chosen = choose_kinds(Discovery(resources=resources), informer, wanted=wanted)
    return [f"{each.api_version}:{each.kind}" for each in chosen]


def test_the_usual_kinds_are_watched_and_others_are_not() -> None:
    assert choose(*ALL, EVENT) == [
        "apps/v1:Deployment",
        "apps/v1:ReplicaSet",
        "v1:Pod",
        "v1:ConfigMap",
        "v1:Secret",
        "v1:Namespace",
    ]


def test_a_kind_is_watched_in_the_version_that_the_server_prefers() -> None:
    assert choose(DEPLOYMENT, OLD) == ["apps/v1:Deployment"]


def test_a_kind_that_cannot_be_listed_and_watched_is_not() -> None:
    assert choose(UNLISTED) == []


def test_an_included_kind_and_one_of_a_manifest_are_watched() -> None:
    include = (ResourceKind(api_version="example.com/v1", kind="Thing"),)
    assert choose(THING, include=include) == ["example.com/v1:Thing"]
    assert choose(THING, include=(ResourceKind(kind="Thing"),)) == ["example.com/v1:Thing"]
    assert choose(THING, include=(ResourceKind(),)) == []
    assert choose(THING, wanted=(("example.com/v1alpha1", "Thing"),)) == ["example.com/v1:Thing"]


def test_an_excluded_kind_is_not_watched_whoever_wants_it() -> None:
    exclude = (ResourceKind(api_version="v1"), ResourceKind(api_version="apps/v1", kind="Other"))
    assert choose(POD, DEPLOYMENT, exclude=exclude, wanted=(("v1", "Pod"),)) == [
        "apps/v1:Deployment"
    ]


def test_with_a_namespace_only_kinds_that_have_namespaces_are_watched() -> None:
    assert choose(POD, NAMESPACE, namespace="shop") == ["v1:Pod"]
