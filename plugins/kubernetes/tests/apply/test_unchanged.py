# SPDX-License-Identifier: Apache-2.0
"""Whether an object is already what a manifest asks for: never yes when it is not."""

import copy
from typing import Any

import pytest
from pipecd_plugin_kubernetes.apply.unchanged import is_applied

BODY: dict[str, Any] = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "web", "namespace": "shop", "labels": {"a": "1"}},
    "spec": {
        "replicas": 2,
        "paused": False,
        "selector": {"matchLabels": {"app": "web"}},
        "containers": [
            {"name": "app", "args": ["-v"], "ports": [{"containerPort": 80}]},
            {"name": "side"},
        ],
        "finalizers": ["one"],
    },
}
FIELDS: dict[str, Any] = {
    "f:metadata": {"f:labels": {"f:a": {}}},
    "f:spec": {
        "f:replicas": {},
        "f:paused": {},
        "f:selector": {},
        "f:containers": {
            'k:{"name":"app"}': {
                ".": {},
                "f:name": {},
                "f:args": {},
                "f:ports": {
                    'k:{"containerPort":80,"protocol":"TCP"}': {".": {}, "f:containerPort": {}}
                },
            },
            'k:{"name":"side"}': {".": {}, "f:name": {}},
        },
        "f:finalizers": {'v:"one"': {}},
    },
}


def make_live() -> dict[str, Any]:
    live = copy.deepcopy(BODY)
    live["metadata"]["uid"] = "x"
    live["metadata"]["managedFields"] = [
        {
            "manager": "piped",
            "operation": "Apply",
            "apiVersion": "apps/v1",
            "fieldsV1": copy.deepcopy(FIELDS),
        }
    ]
    live["spec"]["strategy"] = {"type": "RollingUpdate"}
    live["spec"]["containers"].insert(1, {"name": "injected"})
    live["spec"]["containers"][0]["ports"][0]["protocol"] = "TCP"
    live["spec"]["finalizers"].append("theirs")
    return live


def test_what_others_and_the_server_have_added_makes_no_difference() -> None:
    assert is_applied(BODY, make_live())


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("spec", "replicas"), 3),
        (("spec", "replicas"), "2"),
        (("spec", "replicas"), None),
        (("spec", "paused"), 0),
        (("metadata", "labels"), {"a": "2"}),
        (("metadata", "labels"), {}),
        (("metadata", "labels"), {"a": "1", "b": "2"}),
        (("spec", "selector"), {"matchLabels": {"app": "web", "b": "1"}}),
        (("spec", "finalizers"), ["two"]),
        (("spec", "finalizers"), []),
        (("spec", "containers"), [{"name": "app", "args": ["-v"]}, {"name": "side"}]),
        (("spec", "containers"), list(reversed(BODY["spec"]["containers"]))),
        (("spec", "containers"), [*BODY["spec"]["containers"], {"name": "new"}]),
        (("spec", "new"), True),
        (("apiVersion",), "apps/v1beta1"),
        (("status",), {"replicas": 1}),
    ],
)
def test_any_change_in_git_is_seen(path: tuple[str, ...], value: object) -> None:
    body = copy.deepcopy(BODY)
    place = body
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value

    assert not is_applied(body, make_live())


@pytest.mark.parametrize(
    "path", [("spec", "replicas"), ("spec", "selector"), ("metadata", "labels")]
)
def test_a_field_removed_from_git_or_from_the_cluster_is_seen(path: tuple[str, str]) -> None:
    body, live = copy.deepcopy(BODY), make_live()
    del body[path[0]][path[1]]
    assert not is_applied(body, make_live())
    del live[path[0]][path[1]]
    assert not is_applied(BODY, live)


def test_a_value_changed_in_the_cluster_is_seen() -> None:
    live = make_live()
    live["spec"]["containers"][0]["args"] = ["-v", "-x"]

    assert not is_applied(BODY, live)


@pytest.mark.parametrize(
    "entries", [None, [], "text", [7], [{"manager": "piped", "operation": "Update"}], [{}]]
)
def test_without_a_record_of_ours_the_answer_is_no(entries: object) -> None:
    live = make_live()
    live["metadata"]["managedFields"] = entries

    assert not is_applied(BODY, live)
