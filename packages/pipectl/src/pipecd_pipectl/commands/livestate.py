# SPDX-License-Identifier: Apache-2.0
"""What runs, as `pipectl application get --live` prints it: a tree with the health of each."""

import click

from pipecd_pipectl.client import Client
from pipecd_pipectl.output import echo, when
from pipecd_pipectl.resourceview import get_health, get_health_colour, walk_tree
from pipecd_wire.model.application_live_state_pb2 import (
    ApplicationLiveStateSnapshot,
    ResourceState,
)
from pipecd_wire.pipecd.api import api_pb2 as own
from pipecd_wire.rpc import CallError, call


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
    for depth, resource in walk_tree(snapshot.application_live_state.resources):
        echo(f"  {_format_line(depth, resource)}")


def _format_line(depth: int, resource: ResourceState) -> str:
    parts = [resource.name]
    if resource.resource_type:
        parts.append(f"({resource.resource_type})")
    parts.append(click.style(get_health(resource), fg=get_health_colour(resource)))
    if resource.health_description:
        parts.append(resource.health_description)
    return "  " * depth + " ".join(parts)
