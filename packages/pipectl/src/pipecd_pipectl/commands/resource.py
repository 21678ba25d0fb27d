# SPDX-License-Identifier: Apache-2.0
"""`pipectl application resource`: what runs of an application, and one resource opened."""

from collections.abc import Sequence
from difflib import get_close_matches
from typing import Final

import click

from pipecd_model.errors import ConfigError, NotFoundError
from pipecd_pipectl.client import Client, use_client
from pipecd_pipectl.commands.livestate import live_state
from pipecd_pipectl.options import application_argument
from pipecd_pipectl.output import echo, is_wide, list_option, print_data, wants_data
from pipecd_pipectl.resourceview import print_resource, print_resources, to_details_data, walk_tree
from pipecd_pipectl.selection import Selected, select_application
from pipecd_runtime.terminal import make_printable_line
from pipecd_wire.model.application_live_state_pb2 import (
    ApplicationLiveStateSnapshot,
    ResourceState,
)
from pipecd_wire.pipecd.api import api_pb2
from pipecd_wire.rpc import call

USUAL_LINES: Final = 100
MOST_LINES: Final = 2000
ANSWER_SECONDS: Final = 45.0
"""Longer than the control plane waits for the piped: it says more than a deadline does."""
MOST_LISTED: Final = 10
"""Candidates that a refusal lists."""


@click.command()
@application_argument
@click.argument("resource", metavar="[RESOURCE]", default="")
@click.option("--target", default="", help="Only resources of this deploy target.")
@click.option("--logs", "container", default="", metavar="CONTAINER", help="Only its last lines.")
@click.option("--previous", is_flag=True, help="With --logs: of the run before this one.")
@click.option(
    "--tail",
    type=click.IntRange(1, MOST_LINES),
    default=USUAL_LINES,
    show_default=True,
    help="How many of the last lines of each container.",
)
@list_option
@use_client
async def resource(
    client: Client,
    *,
    name: str,
    app_id: str,
    resource: str,
    target: str,
    container: str,
    previous: bool,
    tail: int,
    output: str,
) -> None:
    """Show what runs of an application; with RESOURCE, one of it in full.

    RESOURCE is the name of a resource, KIND/NAME, or its id. The piped is asked for what is live
    now, what git says instead, events, and the last lines of containers. Nothing of it is stored.
    """
    if app_id and name and not resource:
        name, resource = "", name  # the application is named by its id: what follows is a resource
    if previous and not container:
        raise click.UsageError("--previous is for the lines of a container: give --logs, too")
    if container and not resource:
        raise click.UsageError("which resource? --logs is for one: give its name")
    chosen = await select_application(client, name, app_id)
    snapshot = await _read_live_state(client, chosen, target)
    if not resource:
        _print_all(snapshot, output)
        return
    opened = await _open(
        client, chosen, find_resource(_list(snapshot), resource), container=container, tail=tail
    )
    if container:
        echo(_take_lines(opened, container, previous=previous), nl=False)
    elif wants_data(output):
        print_data(to_details_data(opened), output)
    elif output == "name":
        echo(opened.resource.id)
    else:
        print_resource(opened)


async def _read_live_state(
    client: Client, chosen: Selected, target: str
) -> ApplicationLiveStateSnapshot:
    snapshot = await live_state(client, chosen.id)
    if snapshot is None:
        raise NotFoundError(
            f"nothing is known yet of what runs of {chosen.label}",
            hint="it is read after its first deployment, if its plugin can",
        )
    if target:
        state = snapshot.application_live_state
        kept = [each for each in state.resources if each.deploy_target == target]
        if not kept:
            known = sorted({each.deploy_target for each in state.resources})
            raise NotFoundError(
                f"nothing of {chosen.label} runs on {target!r}",
                hint=f"there is {', '.join(known)}" if known else "",
            )
        del state.resources[:]
        state.resources.extend(kept)
    return snapshot


def _list(snapshot: ApplicationLiveStateSnapshot) -> Sequence[ResourceState]:
    return snapshot.application_live_state.resources


def _print_all(snapshot: ApplicationLiveStateSnapshot, output: str) -> None:
    resources = _list(snapshot)
    if wants_data(output):
        print_data(snapshot, output)
    elif output == "name":
        for _depth, each in walk_tree(resources):
            echo(make_printable_line(name_resource(each, resources)))
    elif resources:
        print_resources(resources, wide=is_wide(output))
    else:
        echo("no resource", err=True)


def name_resource(resource: ResourceState, resources: Sequence[ResourceState]) -> str:
    """Returns what the command takes for a resource: KIND/NAME, or its id where that is shared."""
    short = _format_short(resource)
    same = [each for each in resources if _format_short(each) == short]
    return short if len(same) == 1 and resource.resource_type else resource.id


def find_resource(resources: Sequence[ResourceState], text: str) -> ResourceState:
    """Returns the resource with this id, name or KIND/NAME.

    Raises NotFoundError, or ConfigError with the candidates when there are several.
    """
    ways = (
        [each for each in resources if each.id == text],
        [each for each in resources if each.name == text],
        [each for each in resources if _format_short(each).casefold() == text.casefold()],
    )
    found = next((each for each in ways if each), [])
    if len(found) == 1:
        return found[0]
    if found:
        lines = [f"  {_describe(each)}" for each in found[:MOST_LISTED]]
        if len(found) > MOST_LISTED:
            lines.append(f"  … and {len(found) - MOST_LISTED} more")
        raise ConfigError(
            f"{text!r} can be any of {len(found)} resources; give KIND/NAME, the id or --target:\n"
            + "\n".join(lines)
        )
    known = {each.name for each in resources} | {_format_short(each) for each in resources}
    near = get_close_matches(text, sorted(known), n=3, cutoff=0.6)
    hint = (
        f"did you mean {' or '.join(repr(each) for each in near)}?"
        if near
        else "`pipectl application resource APPLICATION` shows what there is"
    )
    raise NotFoundError(f"the application has no resource {text!r}", hint=hint)


def _format_short(resource: ResourceState) -> str:
    return f"{resource.resource_type}/{resource.name}"


def _describe(resource: ResourceState) -> str:
    parts = (_format_short(resource), f"on {resource.deploy_target}", f"id {resource.id}")
    return make_printable_line("  ".join(parts))


async def _open(
    client: Client, chosen: Selected, resource: ResourceState, *, container: str, tail: int
) -> api_pb2.OpenResourceResponse:
    request = api_pb2.OpenResourceRequest(
        application_id=chosen.id,
        resource_id=resource.id,
        plugin_name=resource.plugin_name,
        deploy_target=resource.deploy_target,
        container=container,
        log_lines=tail,
    )
    return await call(client.applications.OpenResource, request, deadline=ANSWER_SECONDS)


def _take_lines(opened: api_pb2.OpenResourceResponse, container: str, *, previous: bool) -> str:
    """Returns the lines of a container. Raises NotFoundError when it has none."""
    for log in opened.details.logs:
        if log.container == container and log.previous == previous:
            return log.text if not log.text or log.text.endswith("\n") else f"{log.text}\n"
    run = "a previous run of the container" if previous else "a container"
    raise NotFoundError(
        f"{opened.resource.name} has no lines of {run} {container!r}",
        hint=" ".join(make_printable_line(note) for note in opened.details.notes),
    )
