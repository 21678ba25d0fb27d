# SPDX-License-Identifier: Apache-2.0
"""Small manifests for tests."""

from typing import Any


def make_deployment(
    name: str, *, image: str = "web:1", replicas: int = 2, **pod_fields: Any
) -> dict[str, Any]:
    """Return a Deployment with one container `web`, and further fields of its pods' spec."""
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"containers": [{"name": "web", "image": image}], **pod_fields},
            },
        },
    }
