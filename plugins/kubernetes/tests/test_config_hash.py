# SPDX-License-Identifier: Apache-2.0
"""The hash of what pods are configured with: that of existing deployments, to the byte."""

import base64
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pipecd_plugin_kubernetes.config_hash import (
    add_config_hashes,
    compute_digest,
    compute_hash,
    encode_digest,
)
from pipecd_plugin_kubernetes.manifest import Manifest, ManifestError, find_map, parse_manifests


def encode(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def config_map(name: str = "", **body: Any) -> Manifest:
    return Manifest({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, **body})


def secret(name: str = "", **body: Any) -> Manifest:
    return Manifest({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, **body})


@pytest.mark.parametrize(
    ("manifest", "expected"),
    [
        # Kubernetes has published these for its own hash, which is the same one.
        (config_map(data={}, binaryData={}), "42745tchd9"),
        (config_map(data={"one": ""}), "9g67k2htb6"),
        (config_map(data={"two": "2", "one": "", "three": "3"}), "f5h7t85m9b"),
        (config_map(binaryData={}), "dk855m5d49"),
        (config_map(binaryData={"one": ""}), "mk79584b8c"),
        (
            config_map(binaryData={"two": encode("2"), "one": "", "three": encode("3")}),
            "t458mc6db2",
        ),
        (config_map(data={"one": ""}, binaryData={"two": ""}), "698h7c7t9m"),
        (secret(type="my-type", data={}), "t75bgf6ctb"),
        (secret(type="my-type", data={"one": ""}), "74bd68bm66"),
        (
            secret(type="my-type", data={"two": encode("2"), "one": "", "three": encode("3")}),
            "dgcb6h9tmk",
        ),
        # Computed with Go's own encoder.
        (
            config_map(
                "web",
                immutable=True,
                data={
                    "page": '<a href="x">&\u2028\u2029\b\f\n\t\x01\x7f é 😀\\',
                    "é": "",
                    "z": "1",
                    "Z": "2",
                },
            ),
            "t7c28fbbm7",
        ),
    ],
)
def test_the_hash_is_that_of_existing_deployments(manifest: Manifest, expected: str) -> None:
    assert compute_hash([manifest]) == expected


@pytest.mark.parametrize(("digest", "expected"), [("0123456789", "gh2k456789"), ("abcde", "mbcdt")])
def test_digits_that_make_words_are_others(digest: str, expected: str) -> None:
    assert encode_digest(digest) == expected


def test_line_breaks_in_base64_make_no_difference() -> None:
    plain = encode("x" * 100)
    assert compute_hash([secret(data={"a": plain})]) == compute_hash(
        [secret(data={"a": f"{plain[:76]}\n{plain[76:]}\n"})]
    )


def test_string_data_is_not_part_of_the_hash_and_is_of_the_digest() -> None:
    """The hash is that of deployments that exist, which have never counted it."""
    given: list[dict[str, Any]] = [{}, {"stringData": {}}]
    given += [{"stringData": {"b": "1"}}, {"stringData": {"b": ""}}]
    manifests = [[secret(data={"a": ""}, **each)] for each in given]
    plain, empty, one, none = map(compute_digest, manifests)
    assert {compute_hash(each) for each in manifests} == {plain}
    assert empty == plain
    assert len({plain, one, none}) == 3


def test_the_digest_tells_secrets_apart() -> None:
    first, second = secret("a", stringData={"k": "1"}), secret("b", stringData={"k": "2"})
    turned = secret("a", stringData={"k": "2"}), secret("b", stringData={"k": "1"})
    assert compute_digest([first, second]) != compute_digest(turned)


@pytest.mark.parametrize(
    ("manifest", "said"),
    [
        (config_map("a", data={"port": 80}), "ConfigMap a: data 'port' must be a text"),
        (config_map("a", data=[]), "ConfigMap a: data must be a map, it is a list"),
        (secret("a", data={"key": "hunter2!"}), "Secret a: data 'key' is not base64"),
        (secret("a", data={"key": 1}), "Secret a: data 'key' is not base64"),
        (secret("a", data={"key": "ä"}), "Secret a: data 'key' is not base64"),
    ],
)
def test_a_wrong_value_is_named_and_not_shown(manifest: Manifest, said: str) -> None:
    with pytest.raises(ManifestError) as caught:
        compute_hash([manifest])
    assert said in caught.value.reason()
    assert "hunter2" not in caught.value.reason()


@given(st.dictionaries(st.text(max_size=5), st.text(max_size=20), max_size=5))
def test_the_order_of_keys_makes_no_difference(data: dict[str, str]) -> None:
    turned = dict(reversed(data.items()))
    assert compute_hash([config_map("a", data=data)]) == compute_hash(
        [config_map("a", data=turned)]
    )


WORKLOAD = """
apiVersion: apps/v1
kind: KIND
metadata: {name: web}
spec:
  template:
    spec:
      volumes:
      - {name: a, configMap: {name: in-volume}}
      - {name: b, secret: {secretName: secret-in-volume}}
      - {name: c, projected: {sources: [{configMap: {name: projected}}]}}
      initContainers:
      - {name: i, envFrom: [{configMapRef: {name: in-init}}]}
      containers:
      - name: c
        env: [{name: A, valueFrom: {secretKeyRef: {name: secret-in-env, key: k}}}]
        envFrom: [{secretRef: {name: elsewhere}}]
"""
NAMES = ["in-volume", "in-init", "projected", "unused"]
SECRETS = ["secret-in-volume", "secret-in-env"]


def make_all(kind: str, changed: str = "") -> list[Manifest]:
    return [
        *parse_manifests(WORKLOAD.replace("KIND", kind), origin="a"),
        *(config_map(name, data={"a": "2" if name == changed else "1"}) for name in NAMES),
        *(secret(name, stringData={"a": "2" if name == changed else "1"}) for name in SECRETS),
    ]


def hash_of(kind: str, changed: str = "") -> str | None:
    manifests = make_all(kind, changed)
    add_config_hashes(manifests)
    annotations = find_map(manifests[0].body, "spec", "template", "metadata", "annotations")
    return annotations.get("pipecd.dev/config-hash")


def digest_of(kind: str, changed: str = "") -> str:
    manifests = make_all(kind, changed)
    add_config_hashes(manifests)
    return manifests[0].annotations["pipecd.dev/config-digest"]


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet", "DaemonSet"])
def test_a_change_of_what_pods_use_changes_the_hash(kind: str) -> None:
    before = hash_of(kind)
    assert before is not None
    for name in ["in-volume", "in-init"]:
        assert hash_of(kind, name) != before
    for name in SECRETS:
        assert hash_of(kind, name) == before
        assert digest_of(kind, name) != digest_of(kind)
    for name in ["unused", "projected"]:
        assert digest_of(kind, name) == digest_of(kind)
        assert hash_of(kind, name) == before, "existing deployments do not count these"


def test_the_hash_is_over_config_maps_by_name_and_then_secrets_by_name() -> None:
    expected = compute_hash(
        [
            config_map("in-init", data={"a": "1"}),
            config_map("in-volume", data={"a": "1"}),
            secret("secret-in-env", stringData={"a": "1"}),
            secret("secret-in-volume", stringData={"a": "1"}),
        ]
    )
    assert hash_of("Deployment") == expected


def test_what_uses_nothing_of_ours_has_no_hash() -> None:
    manifests = parse_manifests(WORKLOAD.replace("KIND", "Deployment"), origin="a")
    add_config_hashes(manifests)
    assert "metadata" not in manifests[0].body["spec"]["template"]
    assert hash_of("Job") is None


def test_the_config_map_of_the_own_namespace_counts() -> None:
    (web,) = parse_manifests(WORKLOAD.replace("KIND", "Deployment"), origin="a")
    here, there = config_map("in-init", data={"a": "1"}), config_map("in-init", data={"a": "2"})
    there.metadata["namespace"] = "other"
    add_config_hashes([web, here, there])
    assert web.body["spec"]["template"]["metadata"]["annotations"] == {
        "pipecd.dev/config-hash": compute_hash([here])
    }
