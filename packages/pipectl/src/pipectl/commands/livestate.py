# SPDX-License-Identifier: Apache-2.0
"""What runs, as `pipectl application get --live` prints it: a tree with the health of each."""

from collections.abc import Iterator, Sequence

import click

from pipecd_wire.model.application_live_state_pb2 import (
    ApplicationLiveStateSnapshot,
    ResourceState,
)
from pipecd_wire.pipecd.api import api_pb2 as own
from pipecd_wire.rpc import CallError, call
from pipectl.client import Client
from pipectl.output import echo, when

_COLOURS = {ResourceState.HEALTHY: "green", ResourceState.UNHEALTHY: "red"}


async def live_state(client: Client, application_id: str) -> ApplicationLiveStateSnapshot | None:
    """Returns the live state of an application; None when none has been reported yet."""
    request = own.GetLiveStateRequest(application_id=application_id)
    try:
        return (await call(client.applications.GetLiveState, request)).snapshot
    except CallError as error:
        if error.status == "NOT_FOUND":
            return None
        raise


def print_live_state(snapshot: ApplicationLiveStateSnapshot | None) -> None:
    """Prints the live state as a tree."""
    if snapshot is None:
        echo("live state    nothing is known yet")
        return
    status = ApplicationLiveStateSnapshot.Status.Name(snapshot.health_status).lower()
    echo(f"live state    {status}, as of {when(snapshot.version.timestamp)}")
    for line in _tree(snapshot.application_live_state.resources):
        echo(f"  {line}")


def _tree(resources: Sequence[ResourceState]) -> Iterator[str]:
    known = {resource.id for resource in resources}
    children: dict[str, list[ResourceState]] = {}
    for resource in resources:
        parents = [each for each in resource.parent_ids if each in known]
        for parent in parents or [""]:
            children.setdefault(parent, []).append(resource)
    yield from _branch("", children, depth=0, above=frozenset())


def _branch(
    parent: str, children: dict[str, list[ResourceState]], *, depth: int, above: frozenset[str]
) -> Iterator[str]:
    for resource in sorted(children.get(parent, ()), key=lambda it: (it.deploy_target, it.name)):
        yield "  " * depth + _line(resource)
        if resource.id not in above:  # a circle of parents must not be walked for ever
            yield from _branch(resource.id, children, depth=depth + 1, above=above | {resource.id})


def _line(resource: ResourceState) -> str:
    health = ResourceState.HealthStatus.Name(resource.health_status).lower()
    colour = _COLOURS.get(resource.health_status, "yellow")
    parts = [resource.name]
    if resource.resource_type:
        parts.append(f"({resource.resource_type})")
    parts.append(click.style(health, fg=colour))
    if resource.health_description:
        parts.append(resource.health_description)
    return " ".join(parts)
