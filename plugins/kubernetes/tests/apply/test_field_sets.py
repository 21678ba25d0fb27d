# SPDX-License-Identifier: Apache-2.0
"""Sets of fields: union, difference, and what a value has of them."""

from pipecd_plugin_kubernetes.apply.field_sets import (
    has_path,
    make_path,
    restrict,
    subtract,
    unite,
)

CONTAINER = 'k:{"name":"app"}'


def test_a_union_keeps_a_node_that_only_one_side_has_as_a_member() -> None:
    """`f:a` alone means the map itself; `f:a` with fields below means those fields."""
    assert unite({"f:a": {}}, {"f:a": {"f:b": {}}}) == {"f:a": {".": {}, "f:b": {}}}
    assert unite({"f:a": {"f:b": {}}}, {"f:c": {}}) == {"f:a": {"f:b": {}}, "f:c": {}}
    assert unite({"f:a": {}}, {"f:a": {}}) == {"f:a": {}}


def test_a_difference_takes_members_and_leaves_what_is_below_or_above() -> None:
    assert subtract({"f:a": {}}, {"f:a": {}}) == {}
    assert subtract({"f:a": {}}, {"f:a": {"f:b": {}}}) == {"f:a": {}}
    assert subtract({"f:a": {".": {}, "f:b": {}}}, {"f:a": {}}) == {"f:a": {"f:b": {}}}
    assert subtract({"f:a": {"f:b": {}, "f:c": {}}}, {"f:a": {"f:b": {}}}) == {"f:a": {"f:c": {}}}


def test_only_what_a_manifest_names_is_kept() -> None:
    """Fields that the server filled in belong to nobody's git."""
    fields = {
        "f:spec": {
            "f:replicas": {},
            "f:strategy": {"f:type": {}},
            "f:containers": {
                CONTAINER: {".": {}, "f:image": {}, "f:imagePullPolicy": {}},
                'k:{"name":"injected"}': {".": {}, "f:image": {}},
            },
            "f:finalizers": {'v:"ours"': {}, 'v:"theirs"': {}},
            "f:items": {"i:0": {}, "i:7": {}},
        }
    }
    manifest = {
        "spec": {
            "replicas": 1,
            "containers": [{"name": "app", "image": "x"}],
            "finalizers": ["ours"],
            "items": ["first"],
        }
    }

    assert restrict(fields, manifest) == {
        "f:spec": {
            "f:replicas": {},
            "f:containers": {CONTAINER: {".": {}, "f:image": {}}},
            "f:finalizers": {'v:"ours"': {}},
            "f:items": {"i:0": {}},
        }
    }


def test_a_port_is_found_although_the_manifest_leaves_its_protocol_to_the_server() -> None:
    fields: dict[str, object] = {
        "f:ports": {'k:{"containerPort":80,"protocol":"TCP"}': {".": {}, "f:name": {}}}
    }

    assert restrict(fields, {"ports": [{"containerPort": 80, "name": "http"}]}) == fields
    assert restrict(fields, {"ports": [{"containerPort": 81, "name": "http"}]}) == {}


def test_a_path_is_in_a_set_with_everything_above_it() -> None:
    fields: dict[str, object] = {"f:metadata": {"f:annotations": {"f:example.com/a": {}}}}

    assert has_path(fields, "metadata", "annotations", "example.com/a")
    assert has_path(fields, "metadata")
    assert not has_path(fields, "metadata", "labels")
    assert make_path("spec", "replicas") == {"f:spec": {"f:replicas": {}}}


def test_what_has_no_shape_of_a_set_is_passed_over() -> None:
    """`managedFields` come from a server, and a server may say anything."""
    deep: dict[str, object] = {}
    for _ in range(5_000):
        deep = {"f:a": deep}

    assert unite(None, "text") == {}
    assert restrict({"k:{broken": {}, "x": {}, "i:99999999999999999999": {}}, [1]) == {}
    assert not has_path(17, "spec")
    assert unite(deep, deep)
    assert subtract(deep, deep) is not None
    assert restrict(deep, {"a": 1}) == {}
