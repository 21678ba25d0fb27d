# SPDX-License-Identifier: Apache-2.0
"""The simulated nodes of a cluster."""

from typing import Any, Final

from pipecd_test_support.kubernetes.api import Api

NODES: Final = ("node-1", "node-2", "node-3")


def add_nodes(api: Api) -> None:
    """Add the nodes, and wait until pods can be scheduled onto each."""
    for name in NODES:
        api.create(
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
            }
        )
    for name in NODES:
        api.wait("v1", "Node", name, is_right=_can_take_pods)


def _can_take_pods(node: dict[str, Any] | None) -> bool:
    if node is None or node.get("spec", {}).get("taints"):
        return False
    conditions = node.get("status", {}).get("conditions", ())
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)
