# SPDX-License-Identifier: Apache-2.0
"""Manifests: what is read from a text, what is refused, and the keys that find objects again."""

from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pipecd_plugin_kubernetes import manifest
from pipecd_plugin_kubernetes.manifest import Manifest, ManifestError, parse_manifests

SERVICE = "apiVersion: v1\nkind: Service\nmetadata: {name: web}\n"


def parse(text: str) -> list[Manifest]:
    return parse_manifests(text, origin="web.yaml")


def refuse(text: str) -> str:
    with pytest.raises(ManifestError) as caught:
        parse(text)
    return caught.value.reason()


@pytest.mark.parametrize(
    ("text", "key", "normalized"),
    [
        (
            "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web, namespace: default}",
            "apps:Deployment:default:web",
            "apps:deployment::web",
        ),
        (SERVICE, ":Service::web", ":service::web"),
        (
            "{apiVersion: a.io/v1, kind: Route, metadata: {name: web, namespace: shop}}",
            "a.io:Route:shop:web",
            "a.io:route:shop:web",
        ),
    ],
)
def test_a_key_is_group_kind_namespace_and_name(text: str, key: str, normalized: str) -> None:
    (found,) = parse(text)
    assert str(found.key) == key
    assert str(found.key.normalize()) == normalized


def test_several_documents_are_read_in_their_order_and_empty_ones_dropped() -> None:
    text = f"---\n# nothing\n---\n{SERVICE}---\n---\n{SERVICE.replace('web', 'api')}"
    assert [each.name for each in parse(text)] == ["web", "api"]


def test_lists_are_unfolded_whatever_they_are_lists_of() -> None:
    text = """
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: Service, metadata: {name: a}}
- apiVersion: v1
  kind: ConfigMapList
  metadata: {resourceVersion: "1"}
  items:
  - {metadata: {name: b}}
  - {metadata: {name: c}, data: {k: v}}
"""
    assert [str(each.key) for each in parse(text)] == [
        ":Service::a",
        ":ConfigMap::b",
        ":ConfigMap::c",
    ]


def test_a_kind_of_its_own_that_ends_in_list_stays_whole() -> None:
    """It has a name: the lists of the API have none."""
    text = "apiVersion: x.dev/v1\nkind: AllowList\nmetadata: {name: a}\nitems: [one]"
    assert [each.kind for each in parse(text)] == ["AllowList"]


def test_numbers_stay_numbers_and_whole_ones_are_written_whole() -> None:
    (found,) = parse(f"{SERVICE}spec: {{a: 3, b: 3.0, c: 0.5, d: '3', e: 1e3, f: 010}}\n")
    assert found.body["spec"] == {"a": 3, "b": 3, "c": 0.5, "d": "3", "e": 1000, "f": 8}
    assert type(found.body["spec"]["b"]) is int


def test_an_alias_becomes_a_tree_of_its_own() -> None:
    """A label that is added to the metadata must not become part of the selector."""
    text = """
apiVersion: v1
kind: Service
metadata: {name: web, labels: &labels {app: web}}
spec: {selector: *labels}
"""
    (found,) = parse(text)
    found.metadata["labels"]["more"] = "x"
    assert found.body["spec"]["selector"] == {"app": "web"}


def test_json_is_read_tabs_and_all() -> None:
    text = '{\n\t"apiVersion": "v1",\n\t"kind": "Service",\n\t"metadata": {"name": "web"}\n}'
    assert [each.name for each in parse(text)] == ["web"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: [1", "web.yaml: line 1: a bracket is opened here"),
        (f"{SERVICE}---\n{SERVICE}kind: Pod\n", "web.yaml: line 8: the key 'kind' is given twice"),
        ("- a", "web.yaml: a manifest must be a map, this is a list"),
        (f"{SERVICE}---\nkind: Pod", "web.yaml, document 2: apiVersion is missing"),
        ("apiVersion: 1", "apiVersion must be a text, it is a number"),
        ("apiVersion: a/b/c", "apiVersion cannot be 'a/b/c'"),
        ("apiVersion: v1", "kind is missing"),
        ("apiVersion: v1\nkind: ../x", "kind cannot be '../x'"),
        ("apiVersion: v1\nkind: Pod", "metadata is missing"),
        ("apiVersion: v1\nkind: Pod\nmetadata: []", "metadata must be a map, it is a list"),
        ("apiVersion: v1\nkind: Pod\nmetadata: {}", "(Pod): metadata.name is missing"),
        ("apiVersion: v1\nkind: Job\nmetadata: {generateName: a-}", "has generateName and no name"),
        ("apiVersion: v1\nkind: Pod\nmetadata: {name: 12}", "must be a text, it is a number"),
        ("apiVersion: v1\nkind: Pod\nmetadata: {name: a/../b}", "metadata.name cannot be"),
        ('apiVersion: v1\nkind: Pod\nmetadata: {name: "a\\u001b[31m"}', "cannot be 'a\\x1b[31m'"),
        (
            "apiVersion: v1\nkind: Pod\nmetadata: {name: a, namespace: A}",
            "namespace cannot be 'A'",
        ),
        (
            "apiVersion: v1\nkind: Pod\nmetadata: {name: a, annotations: {b: 1}}",
            "metadata.annotations 'b' must be a text, it is a number (put the value in quotes)",
        ),
        (
            "apiVersion: v1\nkind: Pod\nmetadata: {name: a, labels: [b]}",
            "metadata.labels must be a map, it is a list",
        ),
        ("apiVersion: v1\nkind: List\nitems: [{kind: Pod}]", "item 1: apiVersion is missing"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(text: str, said: str) -> None:
    assert said in refuse(text)


def test_an_explosion_of_aliases_is_refused() -> None:
    levels = "\n".join(f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 10)}]" for n in range(1, 9))
    assert "once aliases are written out" in refuse(f"l0: &l0 [1,1,1,1,1,1,1,1,1,1]\n{levels}")


def test_nesting_without_end_is_refused() -> None:
    assert "levels deep" in refuse("[" * 500 + "]" * 500)


def test_a_text_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifest, "MOST_CHARACTERS", 1024 * 1024)
    assert "longer than 1 million characters" in refuse("#" * (1024 * 1024 + 1))


def test_a_copy_is_a_tree_of_its_own_and_equal() -> None:
    (found,) = parse(SERVICE)
    other = found.copy()
    assert other == found
    other.metadata["name"] = "x"
    assert found.name == "web"
    assert other != found


plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"])),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.from_regex(r"[a-zA-Z.]{1,8}", fullmatch=True), inner, max_size=4)
    ),
    max_leaves=20,
)


@settings(max_examples=40)
@given(plain)
def test_what_is_written_is_read_again(data: object) -> None:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": data}
    assert parse(Manifest(body).to_yaml()) == [Manifest(body)]


@given(st.text(max_size=200))
def test_any_text_gives_manifests_or_a_sentence(text: str) -> None:
    with suppress(ManifestError):
        assert all(each.name for each in parse(text))
