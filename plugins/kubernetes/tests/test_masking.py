# SPDX-License-Identifier: Apache-2.0
"""Values of Secrets are never shown, whatever shape a Secret has."""

import json
from typing import Any

import pytest
from pipecd_plugin_kubernetes.masking import mask_object

NEEDLE = "b3BlbiBzZXNhbWU="


def secret(**parts: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, **parts}


def test_the_names_of_the_values_are_left_and_nothing_of_the_values() -> None:
    shown = mask_object(
        secret(data={"password": NEEDLE}, stringData={"user": NEEDLE}, type="Opaque"),
        is_secret=True,
    )

    assert shown["data"] == {"password": "***"}
    assert shown["stringData"] == {"user": "***"}
    assert shown["type"] == "Opaque"
    assert NEEDLE not in json.dumps(shown)


@pytest.mark.parametrize(
    "body",
    [
        secret(data=NEEDLE),
        secret(data=[NEEDLE]),
        secret(data={"deep": {"er": NEEDLE}}),
        secret(values={"password": NEEDLE}),
        secret(more=NEEDLE),
        {"data": {"a": NEEDLE}},
        {"kind": "ConfigMap", "data": {"a": NEEDLE}},
        secret(metadata=NEEDLE),
        secret(metadata={"name": "s", "annotations": NEEDLE}),
        secret(metadata={"name": "s", "annotations": {"tool/copy": f'{{"data":"{NEEDLE}"}}'}}),
        secret(
            metadata={
                "name": "s",
                "annotations": {
                    "kubectl.kubernetes.io/last-applied-configuration": f'{{"data":"{NEEDLE}"}}'
                },
            }
        ),
        secret(
            metadata={
                "name": "s",
                "managedFields": [{"manager": "m", "fieldsV1": {"f:data": {NEEDLE: {}}}}],
            }
        ),
    ],
)
def test_no_shape_of_a_secret_shows_its_values(body: dict[str, Any]) -> None:
    """The API says that it is a Secret; the body may say anything."""
    assert NEEDLE in json.dumps(body)
    assert NEEDLE not in json.dumps(mask_object(body, is_secret=True))


def test_other_objects_are_shown_without_bookkeeping() -> None:
    body = {
        "spec": {"replicas": 2},
        "metadata": {
            "name": "web",
            "managedFields": [{"manager": "piped"}],
            "annotations": {
                "kubectl.kubernetes.io/last-applied-configuration": "{}",
                "team": "shop",
            },
        },
        "kind": "Deployment",
        "apiVersion": "apps/v1",
    }

    shown = mask_object(body, is_secret=False)

    assert list(shown) == ["apiVersion", "kind", "metadata", "spec"]
    assert shown["metadata"] == {"name": "web", "annotations": {"team": "shop"}}
    assert "managedFields" in str(body), "the one that was given is as it was"


def test_our_own_annotations_of_a_secret_are_shown() -> None:
    metadata = {"name": "s", "annotations": {"pipecd.dev/application": "a", "other": "b"}}

    shown = mask_object(secret(metadata=metadata), is_secret=True)

    assert shown["metadata"]["annotations"] == {"pipecd.dev/application": "a", "other": "***"}
