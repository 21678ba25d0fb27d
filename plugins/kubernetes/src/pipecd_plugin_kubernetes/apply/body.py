# SPDX-License-Identifier: Apache-2.0
"""What is sent to the server for a manifest. Pure; comparing with the cluster uses the same."""

import base64
from typing import Any, Final

from pipecd_plugin_kubernetes.client import Object, ObjectRef
from pipecd_plugin_kubernetes.manifest import Manifest, find_map

_SET_BY_SERVER: Final = frozenset(
    {
        "creationTimestamp",
        "deletionTimestamp",
        "generation",
        "managedFields",
        "resourceVersion",
        "selfLink",
        "uid",
    }
)
"""Metadata that is in manifests which were copied out of a cluster, and means nothing there."""


def prepare_body(manifest: Manifest, ref: ObjectRef) -> Object:
    """Returns the body of a manifest as it is applied: a tree of its own.

    Without what only the server sets, with the namespace of the reference, and with the plain texts
    of a Secret (`stringData`) as `data`: the server keeps no record of who owns the former, so that
    a text removed from git would stay.
    """
    body = manifest.copy().body
    metadata = {
        key: value
        for key, value in find_map(body, "metadata").items()
        if key not in _SET_BY_SERVER and key != "namespace"
    }
    if ref.namespace:
        metadata["namespace"] = ref.namespace
    body["metadata"] = metadata
    if manifest.is_secret():
        _move_texts(body)
    return body


def _move_texts(body: dict[str, Any]) -> None:
    texts = body.get("stringData")
    data = body.get("data")
    if not isinstance(texts, dict) or not isinstance(data, dict | None):
        return
    if not all(isinstance(text, str) for text in texts.values()):
        return  # the server says what is wrong with it
    encoded = {key: base64.b64encode(text.encode()).decode() for key, text in texts.items()}
    body["data"] = {**(data or {}), **encoded}
    del body["stringData"]
