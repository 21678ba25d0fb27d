# SPDX-License-Identifier: Apache-2.0
"""Manifests in their namespace and order."""

from hypothesis import given
from hypothesis import strategies as st
from pipecd_plugin_kubernetes.manifest import Manifest
from pipecd_plugin_kubernetes.rendering.arrange import arrange, sort_by_order


def make(kind: str, *, api: str = "v1", name: str = "a", order: str | None = None) -> Manifest:
    metadata = {"name": name} | (
        {"annotations": {"pipecd.dev/order": order}} if order is not None else {}
    )
    return Manifest({"apiVersion": api, "kind": kind, "metadata": metadata})


def test_the_namespace_replaces_every_other_but_not_that_of_kinds_without() -> None:
    manifests = [
        make("Service"),
        make("Namespace"),
        make("ClusterRole", api="rbac.authorization.k8s.io/v1"),
        make("Role", api="rbac.authorization.k8s.io/v1"),
    ]
    manifests[0].metadata["namespace"] = "other"
    found = arrange(manifests, namespace="shop")
    assert [each.namespace for each in found] == ["shop", "", "", "shop"]
    assert manifests[0].namespace == "other", "what is given is not changed"


def test_a_definition_among_the_manifests_says_whether_its_kind_has_namespaces() -> None:
    definition = make("CustomResourceDefinition", api="apiextensions.k8s.io/v1")
    definition.body["spec"] = {"group": "x.dev", "scope": "Cluster", "names": {"kind": "Zone"}}
    found = arrange([definition, make("Zone", api="x.dev/v1")], namespace="shop")
    assert [each.namespace for each in found] == ["", ""]


def test_of_unknown_kinds_discovery_is_asked() -> None:
    manifests = [make("Zone", api="x.dev/v1"), make("Host", api="x.dev/v1"), make("Pod")]
    answers = {("x.dev", "Zone"): False, ("x.dev", "Host"): None}
    found = arrange(
        manifests, namespace="shop", is_namespaced=lambda group, kind: answers.get((group, kind))
    )
    assert [each.namespace for each in found] == ["", "shop", "shop"]


def test_the_order_is_the_number_of_the_annotation_and_else_that_of_the_files() -> None:
    manifests = [
        make("Pod", name="c", order="10"),
        make("Pod", name="d"),
        make("Pod", name="e", order="soon"),
        make("Pod", name="a", order="-1"),
        make("Pod", name="f", order="٣"),
        make("Pod", name="b", order="9"),
        make("Pod", name="g", order="9" * 5000),
    ]
    assert "".join(each.name for each in sort_by_order(manifests)) == "adefgbc"


@given(st.lists(st.integers(-3, 3)))
def test_manifests_of_one_number_keep_their_order(numbers: list[int]) -> None:
    given_ = [make("Pod", name=str(at), order=str(each)) for at, each in enumerate(numbers)]
    found = [
        (int(each.annotations["pipecd.dev/order"]), int(each.name))
        for each in sort_by_order(given_)
    ]
    assert found == sorted(found)
