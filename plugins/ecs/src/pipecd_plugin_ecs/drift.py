# SPDX-License-Identifier: Apache-2.0
"""Where a live service differs from git, field by field. The commit tag plays no part. Pure."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from pipecd_plugin_ecs.masking import hide_nodes
from pipecd_plugin_ecs.provider.ecs import TASK_SET_FIELDS
from pipecd_plugin_ecs.provider.model import Service, TaskSet
from pipecd_sdk import SyncState, SyncStatus
from pipecd_sdk.kit.diff import Node, diff, render
from pipecd_sdk.kit.text import make_printable

MOST_NAMED: Final = 3
_UNCOMPARED: Final = frozenset(
    {"clientToken", "cluster", "loadBalancers", "role", "tags", "taskDefinition"}
)
"""Fields of a definition that are not part of the service, or that piped adds to."""
_SETS: Final = frozenset({"securityGroups", "subnets", "requiresCompatibilities"})
"""Lists whose order means nothing."""


def compare(
    *,
    service: Service,
    primary: TaskSet | None,
    live_task: Mapping[str, Any],
    wanted_service: Mapping[str, Any],
    wanted_task: Mapping[str, Any],
    comparable: Collection[str],
) -> list[Node]:
    """Returns where what runs differs from the definitions, which are in the API's shape.

    `comparable` are the fields that AWS tells of a service; of others nothing can be said.
    """
    live = dict(service.body)
    if primary is not None:
        live |= {key: primary.body[key] for key in TASK_SET_FIELDS if key in primary.body}
    wanted = {
        key: value
        for key, value in wanted_service.items()
        if key in comparable and key not in _UNCOMPARED
    }
    if not wanted.get("desiredCount"):
        wanted.pop("desiredCount", None)  # left to whoever scales the service
    if wanted.get("platformVersion") == "LATEST":
        wanted.pop("platformVersion")  # AWS tells which one that was
    task = {key: value for key, value in wanted_task.items() if key not in _UNCOMPARED}
    return diff(
        {"service": _normalize(live), "task": _normalize(live_task)},
        {"service": _normalize(wanted), "task": _normalize(task)},
        equate_empty=True,
        ignore_adding_map_keys=True,
        numeric_strings=True,
        bool_strings=True,
    )


def _normalize(value: Any, key: str = "") -> Any:
    """Returns a value without host ports, which AWS chooses, and with lists in one order."""
    if isinstance(value, Mapping):
        return {
            str(name): _normalize(item, str(name))
            for name, item in value.items()
            if name != "hostPort"
        }
    if not isinstance(value, list):
        return value
    items = [_normalize(item) for item in value]
    if key in _SETS:
        return sorted(items, key=str)
    if items and all(isinstance(each, Mapping) and "name" in each for each in items):
        return sorted(items, key=lambda each: str(each["name"]))
    return items


def describe(
    nodes: Sequence[Node], *, ignored: Collection[str], hides_values: bool
) -> tuple[SyncState, str]:
    """Returns the state for these differences, and the differences as a diff."""
    found = [node for node in nodes if not any(node.is_under(prefix) for prefix in ignored)]
    if not found:
        return SyncState(status=SyncStatus.SYNCED), ""
    text = make_printable(render(hide_nodes(found) if hides_values else found))
    names = ", ".join(node.path for node in found[:MOST_NAMED])
    more = f" and {len(found) - MOST_NAMED} more" if len(found) > MOST_NAMED else ""
    short = f"{len(found)} field{'s' if len(found) > 1 else ''} differ from git: {names}{more}"
    return (
        SyncState(status=SyncStatus.OUT_OF_SYNC, short_reason=short, reason=f"{short}\n\n{text}"),
        text,
    )


def describe_missing(reason: str) -> SyncState:
    """Returns the state of a service that is not there, or has nothing that runs."""
    return SyncState(status=SyncStatus.OUT_OF_SYNC, short_reason=reason, reason=reason)
