# SPDX-License-Identifier: Apache-2.0
"""Where objects differ from manifests, what is left alone, and what nobody may see."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pipecd_plugin_kubernetes.desired import (
    adopt_marks,
    find_ignored_paths,
    is_variant,
    is_variant_service,
    read_ignored_fields,
)
from pipecd_plugin_kubernetes.differences import (
    LONGEST_VALUE,
    DriftChange,
    ObjectDifference,
    compare_exactly,
    compare_structurally,
    drop_fields,
    format_nodes,
    hide_values,
)
from pipecd_plugin_kubernetes.drift import MOST_NAMED, format_drift
from pipecd_plugin_kubernetes.manifest import Manifest, ResourceKey

SECRET = ResourceKey("", "Secret", "shop", "password")
CONFIG_MAP = ResourceKey("", "ConfigMap", "shop", "settings")
DEPLOYMENT = ResourceKey("apps", "Deployment", "shop", "web")


def paths(live: Any, wanted: Any) -> list[str]:
    return [node.path for node in compare_structurally(live, wanted)]


@pytest.mark.parametrize(
    ("live", "wanted", "found"),
    [
        ({"a": 1, "default": "x"}, {"a": 1}, []),
        ({"a": 1}, {"a": 2}, ["a"]),
        ({}, {"a": 1}, ["a"]),
        ({"a": 80}, {"a": "80"}, []),
        ({}, {"a": {}, "b": [], "c": None}, []),
        ({"env": [{"name": "b"}, {"name": "a"}]}, {"env": [{"name": "a"}, {"name": "b"}]}, []),
        ({"env": [{"name": "a"}, {"name": "theirs"}]}, {"env": [{"name": "a"}]}, []),
        ({"env": [{"name": "a"}]}, {"env": [{"name": "a"}, {"name": "b"}]}, ["env.1"]),
        (
            {"env": [{"name": "b", "value": "1"}, {"name": "a"}]},
            {"env": [{"name": "a"}, {"name": "b", "value": "2"}]},
            ["env.1.value"],
        ),
        ({"args": ["a", "b"]}, {"args": ["b", "a"]}, ["args.0", "args.1"]),
        ({"args": ["a", "b"]}, {"args": ["a"]}, ["args.1"]),
        ({"limits": {"cpu": "500m"}}, {"limits": {"cpu": "0.5"}}, []),
        ({"limits": {"cpu": "500m"}}, {"limits": {"cpu": 0.5}}, []),
        ({"limits": {"memory": "1Gi"}}, {"limits": {"memory": "1024Mi"}}, []),
        ({"limits": {"memory": "1G"}}, {"limits": {"memory": "1Gi"}}, ["limits.memory"]),
        ({"limits": {"memory": "1e3"}}, {"limits": {"memory": "1k"}}, []),
        ({"on": True}, {"on": 1}, ["on"]),
    ],
)
def test_only_what_git_says_is_compared_without_the_server(
    live: Any, wanted: Any, found: list[str]
) -> None:
    assert paths(live, wanted) == found


def test_with_the_servers_answer_everything_is_compared() -> None:
    nodes = compare_exactly({"a": 1, "b": 2, "c": None}, {"a": 1, "b": 3})
    assert [node.path for node in nodes] == ["b"]
    assert [node.path for node in compare_exactly({"a": 1, "b": 2}, {"a": 1})] == ["b"]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({"data": {"word": "c2VzYW1l"}}, {"data": {"word": "other"}}),
        ({"stringData": {"word": "sesame"}}, {"stringData": {"word": "other"}}),
        ({}, {"data": {"word": "c2VzYW1l"}}),
        ({"data": {"sesame word": "c2VzYW1l"}}, {}),
        ({"metadata": {"annotations": {"last": "c2VzYW1l sesame"}}}, {"metadata": {}}),
        ({"metadata": {"annotations": {"last": "sesame c2VzYW1l"}, "name": "x"}}, {}),
    ],
)
def test_no_value_of_a_secret_is_shown(old: Any, new: Any) -> None:
    text = format_nodes(hide_values(compare_exactly(old, new), SECRET, config_maps=False))
    assert "*****" in text
    assert "c2VzYW1l" not in text
    assert "other" not in text


def test_values_of_a_config_map_are_shown_only_where_the_caller_says_so() -> None:
    nodes = compare_exactly({"data": {"colour": "red"}}, {"data": {"colour": "green"}})
    assert "red" not in format_nodes(hide_values(nodes, CONFIG_MAP, config_maps=True))
    assert "red" in format_nodes(hide_values(nodes, CONFIG_MAP, config_maps=False))


def test_a_value_of_the_cluster_is_bounded_and_cannot_steer_a_terminal() -> None:
    nodes = compare_exactly({"a": "x" * 100_000, "b": "\x1b]0;title\x07"}, {"a": "", "b": "y"})
    text = format_nodes(hide_values(nodes, DEPLOYMENT, config_maps=True))
    assert len(text) < LONGEST_VALUE * 2
    assert "\x1b" not in text


def test_ignored_fields_are_read_from_the_application_file() -> None:
    config = b"""
spec:
  driftDetection:
    ignoreFields:
      - apps/v1:Deployment:default:web#spec.replicas
      - apps/v1:Deployment::web#spec.template.spec.containers.0.image
      - v1:Service:shop:web#spec.ports
      - not written so
      - 7
"""
    ignored = read_ignored_fields(config)
    web = ResourceKey("apps", "Deployment", "default", "web")

    assert find_ignored_paths(ignored, web) == [
        "spec.replicas",
        "spec.template.spec.containers.0.image",
    ]
    assert find_ignored_paths(ignored, DEPLOYMENT) == []
    nodes = compare_exactly({"spec": {"replicas": 1, "x": 1}}, {"spec": {"replicas": 2, "x": 2}})
    assert [each.path for each in drop_fields(nodes, ["spec.replicas"])] == ["spec.x"]
    assert [each.path for each in drop_fields(nodes, ["spec.repl"])] == ["spec.replicas", "spec.x"]


@pytest.mark.parametrize(
    "config", [b"", b"\xff", b"a: [", b"spec: 7", b"spec: {driftDetection: []}"]
)
def test_a_file_of_any_shape_ignores_nothing(config: bytes) -> None:
    assert read_ignored_fields(config) == {}


def test_marks_and_the_label_of_a_variant_come_from_the_object() -> None:
    key = "pipecd.dev/variant"
    marks = {"pipecd.dev/commit-hash": "old", key: "primary", "pipecd.dev/piped": "p"}
    live = {
        "metadata": {"labels": {**marks, "theirs": "x"}, "annotations": marks},
        "spec": {"selector": {"matchLabels": {"app": "web", key: "primary"}}},
    }
    manifest = Manifest(
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "web", "labels": {"pipecd.dev/managed-by": "piped", "mine": "y"}},
            "spec": {"selector": {"matchLabels": {"app": "web"}}, "template": {}},
        }
    )
    adopted = adopt_marks(manifest, live, variant_key=key)

    assert adopted.labels == {**marks, "mine": "y"}
    assert adopted.annotations == marks
    assert adopted.body["spec"]["selector"]["matchLabels"][key] == "primary"
    assert adopted.body["spec"]["template"]["metadata"]["labels"][key] == "primary"
    assert manifest.labels == {"pipecd.dev/managed-by": "piped", "mine": "y"}


@pytest.mark.parametrize(
    ("labels", "found"),
    [({"v": "canary"}, True), ({"v": "baseline"}, True), ({"v": "primary"}, False), ({}, False)],
)
def test_objects_of_a_canary_or_baseline_are_no_part_of_git(
    labels: dict[str, str], found: bool
) -> None:
    assert is_variant(labels, variant_key="v", primary="primary") is found


@pytest.mark.parametrize(
    ("kind", "name", "selector", "found"),
    [
        ("Service", "web-primary", {"app": "web", "v": "primary"}, True),
        ("Service", "web-admin", {"app": "web"}, False),
        ("Service", "other", {"v": "primary"}, False),
        ("Deployment", "web-primary", {"v": "primary"}, False),
        ("Service", "web-primary", "odd", False),
    ],
)
def test_a_service_that_a_stage_made_for_one_variant_is_known(
    kind: str, name: str, selector: Any, found: bool
) -> None:
    live = {"kind": kind, "metadata": {"name": name}, "spec": {"selector": selector}}
    assert is_variant_service(live, variant_key="v", services=["web"]) is found


def test_the_text_shows_three_changed_objects_and_counts_the_others() -> None:
    nodes = compare_exactly({"a": 1}, {"a": 2})
    changed = [
        ObjectDifference(
            key=ResourceKey("", "ConfigMap", "shop", f"c{number}"),
            change=DriftChange.CHANGE,
            nodes=nodes,
        )
        for number in range(5)
    ]
    text = format_drift(changed, commit="0123456789")
    assert text.count("#a\n") == 3
    assert "... 2 more changed objects" in text
    assert "git at 0123456 " in text
    assert "and 20 more objects" in format_drift(changed * (MOST_NAMED // 5 + 4), commit="x")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=6),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["name", "key", "a", "data"]), inner)
    ),
    max_leaves=8,
)


@given(live=st.dictionaries(st.text(max_size=4), JSON), more=JSON)
def test_an_object_never_differs_from_a_part_of_itself(live: dict[str, Any], more: Any) -> None:
    assert compare_structurally({**live, "more": more}, live) == []


@given(live=st.dictionaries(st.text(max_size=4), JSON), wanted=st.dictionaries(st.text(), JSON))
def test_no_shape_raises_and_no_secret_is_shown(
    live: dict[str, Any], wanted: dict[str, Any]
) -> None:
    nodes = compare_structurally(live, wanted)
    format_nodes(hide_values(nodes, SECRET, config_maps=True))


@given(metadata=JSON, spec=JSON)
def test_marks_of_a_live_object_of_any_shape_are_adopted_or_not(metadata: Any, spec: Any) -> None:
    manifest = Manifest({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}})
    adopt_marks(manifest, {"metadata": metadata, "spec": spec}, variant_key="v")
