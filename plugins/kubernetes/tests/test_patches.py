# SPDX-License-Identifier: Apache-2.0
"""Patches of a variant's manifests: every operation, documents within manifests, paths."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pipecd_plugin_kubernetes import patches
from pipecd_plugin_kubernetes.field_path import BadPathError, find_places, parse_path
from pipecd_plugin_kubernetes.manifest import Manifest, ManifestError, parse_manifests
from pipecd_plugin_kubernetes.patches import apply_patches
from pipecd_plugin_kubernetes.stage_config import Patch, PatchStep, PatchTarget

from pipecd_sdk.kit import yaml

CONFIG = """
apiVersion: v1
kind: ConfigMap
metadata: {name: conf, labels: {app: web}}
data:
  plain: hello 123 and hello 456
  count: "5"
  envoy.yaml: |
    routes:
    - {name: a, weight: 50}
    - {name: b, weight: 50}
  app.json: |
    {
      "debug": false,
      "name": "web"
    }
spec:
  replicas: 3
  paused: false
  image: web:v1
  list: [a, b]
  map: {k: v}
  nothing: null
"""


def patch(*steps: dict[str, Any], root: str = "", kind: str = "ConfigMap") -> dict[str, Any]:
    other = "apiVersion: v1\nkind: Service\nmetadata: {name: conf}\n---"
    manifests = parse_manifests(other + CONFIG, origin="a.yaml")
    before = [each.copy() for each in manifests]
    found = apply_patches(
        manifests,
        [
            Patch(
                target=PatchTarget(kind=kind, name="conf", document_root=root),
                ops=tuple(PatchStep(**step) for step in steps),
            )
        ],
    )
    assert manifests == before, "what is given is not changed"
    assert found[0] == manifests[0]
    return found[1].body


def refuse(*steps: dict[str, Any], root: str = "", kind: str = "ConfigMap") -> str:
    with pytest.raises(ManifestError) as caught:
        patch(*steps, root=root, kind=kind)
    return caught.value.reason()


@pytest.mark.parametrize(
    ("path", "value", "key", "expected"),
    [
        ("$.spec.image", "web:v2", "image", "web:v2"),
        ("$.spec.image", "5", "image", "5"),
        ("$.spec.image", 5, "image", "5"),
        ("$.spec.image", True, "image", "true"),
        ("$.spec.replicas", "5", "replicas", 5),
        ("$.spec.replicas", 5, "replicas", 5),
        ("$.spec.replicas", "all", "replicas", "all"),
        ("$.spec.paused", "true", "paused", True),
        ("$.spec.list[1]", "c", "list", ["a", "c"]),
        ("$.spec.list[*]", "c", "list", ["c", "c"]),
        ("$.spec.list", "[x]", "list", ["x"]),
        ("$.spec.map", "a: 1", "map", {"a": 1}),
        ("$.spec.map", {"a": 1}, "map", {"a": 1}),
        ("$.spec.'map'.k", "w", "map", {"k": "w"}),
        ("$.spec['map'].*", "w", "map", {"k": "w"}),
        ("$..k", "w", "map", {"k": "w"}),
    ],
)
def test_a_replaced_text_stays_a_text_and_anything_else_is_yaml(
    path: str, value: Any, key: str, expected: Any
) -> None:
    assert patch({"path": path, "value": value})["spec"][key] == expected


@pytest.mark.parametrize(
    ("path", "value", "key", "expected"),
    [
        ("$.spec.new", "x", "new", "x"),
        ("$.spec.new", "{a: [1]}", "new", {"a": [1]}),
        ("$.spec.nothing", "x", "nothing", "x"),
        ("$.spec.list", "c", "list", ["a", "b", "c"]),
        ("$.spec.list", "[c, d]", "list", ["a", "b", "c", "d"]),
        ("$.spec.map", "{a: 1}", "map", {"k": "v", "a": 1}),
        ("$.spec.map.a", 1, "map", {"k": "v", "a": 1}),
    ],
)
def test_what_is_not_there_is_added(path: str, value: Any, key: str, expected: Any) -> None:
    assert patch({"op": "yaml-add", "path": path, "value": value})["spec"][key] == expected


def test_fields_and_items_are_removed() -> None:
    spec = patch(
        {"op": "yaml-remove", "path": "$.spec.image"},
        {"op": "yaml-remove", "path": "$.spec.list[*]"},
        {"op": "yaml-remove", "path": "$..k"},
    )["spec"]
    assert "image" not in spec
    assert spec["list"] == []
    assert spec["map"] == {}


def test_a_document_within_the_manifest_is_patched_and_written_back() -> None:
    """The example of the documentation: weights of a proxy that is configured by a ConfigMap."""
    body = patch(
        {"path": "$.routes[0].weight", "value": "90"},
        {"path": "$.routes[1].weight", "value": 10},
        {"op": "yaml-add", "path": "$.routes", "value": "{name: c}"},
        root="$.data.'envoy.yaml'",
    )
    assert yaml.load(body["data"]["envoy.yaml"]) == {
        "routes": [{"name": "a", "weight": 90}, {"name": "b", "weight": 10}, {"name": "c"}]
    }


def test_a_json_document_stays_json() -> None:
    body = patch(
        {"op": "json-replace", "path": "$.debug", "value": "true"},
        {"op": "json-replace", "path": "$.name", "value": "canary"},
        root="$.data['app.json']",
    )
    text = body["data"]["app.json"]
    assert json.loads(text) == {"debug": True, "name": "canary"}
    assert text == '{\n  "debug": true,\n  "name": "canary"\n}\n'


@pytest.mark.parametrize(
    ("expression", "value", "expected"),
    [
        ("[0-9]+", "0", "hello 0 and hello 0"),
        ("hello ([0-9])", "X", "hello X23 and hello X56"),
        ("hello$|and", r"\1 $1", r"hello 123 \1 $1 hello 456"),
        ("(é)?123", "9", "hello 9 and hello 456"),
    ],
)
def test_an_expression_replaces_its_group_or_all_that_it_matches(
    expression: str, value: str, expected: str
) -> None:
    body = patch({"op": "text-regex", "path": expression, "value": value}, root="$.data.plain")
    assert body["data"]["plain"] == expected


def test_an_expression_that_makes_other_engines_think_for_years_is_done() -> None:
    manifest = Manifest(
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "a"},
            "data": {"t": "a" * 50_000},
        }
    )
    step = PatchStep(op="text-regex", path="(a+)+$x", value="")
    target = PatchTarget(kind="ConfigMap", name="a", document_root="$.data.t")
    with pytest.raises(ManifestError, match="is not found in the text"):
        apply_patches([manifest], [Patch(target=target, ops=(step,))])


def test_a_text_cannot_grow_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patches, "LARGEST_TEXT", 1000)
    step = {"op": "text-regex", "path": ".", "value": "x" * 100}
    assert "more than 1000 bytes" in refuse(step, root="$.data.plain")


@pytest.mark.parametrize(
    ("step", "root", "said"),
    [
        ({"path": "$.spec.nope"}, "", "operation 1 (yaml-replace): nothing is at '$.spec.nope'"),
        ({"path": "$.spec.list[2]"}, "", "nothing is at '$.spec.list[2]'"),
        ({"path": "$.spec.list.a"}, "", "nothing is at '$.spec.list.a'"),
        ({"path": "spec"}, "", "'spec' is not a path: must start with $, e.g. $.spec"),
        ({"path": "$"}, "", "nothing is at '$'"),
        ({"path": "$.spec.map", "value": "[1"}, "", "the value is not YAML: line 1"),
        ({"op": "yaml-add", "path": "$.x.y"}, "", "there is nothing to add to at '$.x.y'"),
        ({"op": "yaml-add", "path": "$.spec.image"}, "", "a text is already at '$.spec.image'"),
        (
            {"op": "yaml-add", "path": "$.spec.map", "value": "k: w"},
            "",
            "'k' is already at '$.spec.map' (use yaml-replace)",
        ),
        ({"op": "yaml-add", "path": "$.spec.list[7]"}, "", "the list has only 2 items"),
        ({"op": "yaml-remove", "path": "$.spec.nope"}, "", "nothing is at"),
        ({"op": "text-regex", "path": "a"}, "", "needs target.documentRoot"),
        ({"op": "text-regex", "path": "(?=a)"}, "$.data.plain", "is not a regular expression"),
        ({"op": "text-regex", "path": "zzz"}, "$.data.plain", "'zzz' is not found in the text"),
        ({"op": "text-regex", "path": "x*"}, "$.data.plain", "matches where there is nothing"),
        ({"path": "$.a"}, "$.spec.map", "a map is at the documentRoot '$.spec.map'"),
        ({"path": "$.a"}, "$.nope", "nothing is at the documentRoot '$.nope'"),
        ({"path": "$.a"}, "$.spec.list[*]", "2 fields are at the documentRoot"),
        ({"op": "json-replace", "path": "$.a"}, "$.data.plain", "is not JSON"),
        (
            {"op": "json-replace", "path": "$.debug", "value": "maybe"},
            "$.data['app.json']",
            "the value is not JSON",
        ),
        ({"path": "$.metadata.name", "value": "a/b"}, "", "patched (ConfigMap): metadata.name"),
        ({"op": "yaml-remove", "path": "$.kind"}, "", "patched: kind is missing"),
    ],
)
def test_what_cannot_be_done_is_said(step: dict[str, Any], root: str, said: str) -> None:
    assert said in refuse(step, root=root)


def test_a_manifest_that_is_not_there_is_named() -> None:
    assert "there is no Deployment 'conf' to patch" in refuse({"path": "$.a"}, kind="Deployment")


@pytest.mark.parametrize(
    "text",
    ["", "a", "$a", "$.", "$..", "$.a.", "$.a[", "$.a[x]", "$.a[-1]", "$.'a", "$['a'", "$[']"],
)
def test_what_is_no_path_is_refused(text: str) -> None:
    with pytest.raises(BadPathError):
        parse_path(text)


@given(st.text(max_size=30).map(lambda text: f"${text}"))
def test_any_text_is_a_path_or_a_sentence(text: str) -> None:
    try:
        steps = parse_path(text)
    except BadPathError:
        return
    assert all(place.parent is not None for place in find_places({"a": [1, {"b": 2}]}, steps))


names = st.text(st.characters(exclude_characters="'", codec="utf-8"), min_size=1, max_size=5)
trees = st.recursive(
    st.integers(),
    lambda inner: (
        st.lists(inner, min_size=1, max_size=3)
        | st.dictionaries(names, inner, min_size=1, max_size=3)
    ),
    max_leaves=12,
)


@given(st.dictionaries(names, trees, min_size=1, max_size=3), st.data())
def test_a_path_leads_to_exactly_the_field_that_it_is_made_of(
    tree: dict[str, Any], data: st.DataObject
) -> None:
    path = "$"
    at: Any = tree
    parent: Any = None
    key: Any = None
    for _ in range(data.draw(st.integers(1, 5))):
        if not isinstance(at, dict | list):
            break
        parent = at
        key = data.draw(st.sampled_from(sorted(at) if isinstance(at, dict) else range(len(at))))
        path += f".'{key}'" if isinstance(at, dict) else f"[{key}]"
        at = at[key]
    (place,) = find_places(tree, parse_path(path))
    assert place.parent is parent
    assert place.key == key
