# SPDX-License-Identifier: Apache-2.0
"""Hides values of definitions that opened secrets were put into. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

from pipecd_sdk.kit.diff import MASK, MISSING, Node

_HIDDEN: Final = frozenset(
    {
        *("environment", "environmentfiles", "options", "command", "entrypoint"),
        *("dockerlabels", "driveropts"),
    }
)
"""Fields of containers and volumes that may hold a secret in clear text."""


def hide_values(definition: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a definition whose variables, options and commands are masked."""
    return {
        str(key): _mask(value) if str(key).lower() in _HIDDEN else _descend(value)
        for key, value in definition.items()
    }


def _descend(value: Any) -> Any:
    if isinstance(value, Mapping):
        return hide_values(value)
    return [_descend(each) for each in value] if isinstance(value, list) else value


def _mask(value: Any) -> Any:
    """Returns a value with its texts masked; the names of variables stay."""
    if isinstance(value, Mapping):
        return {
            str(key): item if str(key).lower() == "name" else _mask(item)
            for key, item in value.items()
        }
    if isinstance(value, list):
        return [_mask(each) for each in value]
    return MASK if value not in (None, "") else value


def hide_nodes(nodes: Iterable[Node]) -> list[Node]:
    """Returns differences whose values are masked where they may hold a secret."""
    return [
        replace(node, old=_mask_node(node.old), new=_mask_node(node.new))
        if any(str(key).lower() in _HIDDEN for key in node.keys) or _holds_any(node)
        else node
        for node in nodes
    ]


def _holds_any(node: Node) -> bool:
    return any(isinstance(value, Mapping | list) for value in (node.old, node.new))


def _mask_node(value: Any) -> Any:
    return value if value is MISSING else MASK
