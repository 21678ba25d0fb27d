# SPDX-License-Identifier: Apache-2.0
"""Resources as people read them: the live state as a table in the form of a tree, and one opened.

All texts come from the platform. They are printed through `echo`, which shows controls as text.
"""

import time
from collections.abc import Iterator, Sequence
from typing import Any, Final

import click

from pipecd_pipectl.data import to_data
from pipecd_pipectl.output import echo, print_fields
from pipecd_pipectl.tables import Column, print_table
from pipecd_pipectl.times import format_age, format_moment, format_timestamp
from pipecd_runtime.terminal import make_printable_line
from pipecd_wire.model.application_live_state_pb2 import ResourceState
from pipecd_wire.pipecd.api import api_pb2
from pipecd_wire.pipecd.details import details_pb2

HEALTH_COLOURS: Final = {ResourceState.HEALTHY: "green", ResourceState.UNHEALTHY: "red"}

Placed = tuple[int, ResourceState]
"""A resource with its depth in the tree."""


def walk_tree(resources: Sequence[ResourceState]) -> Iterator[Placed]:
    """Yields every resource below its parents; what is below it only where it comes first.

    Parents are of the same plugin and deploy target: others may use the same ids. Whatever was
    reported, each resource comes at least once, and at most once for each of its parents.
    """
    known = {_identify(each) for each in resources}
    children: dict[_Identity | None, list[ResourceState]] = {}
    for resource in resources:
        plugin, target, _ = _identify(resource)
        named = [(plugin, target, each) for each in dict.fromkeys(resource.parent_ids)]
        parents: list[_Identity | None] = [each for each in named if each in known]
        for parent in parents or [None]:
            children.setdefault(parent, []).append(resource)
    walked: set[_Identity] = set()
    yield from _walk_below(None, children, walked)
    for resource in resources:
        if _identify(resource) not in walked:  # a circle of parents hangs nowhere
            walked.add(_identify(resource))
            yield 0, resource
            for depth, below in _walk_below(_identify(resource), children, walked):
                yield depth + 1, below


_Identity = tuple[str, str, str]


def _identify(resource: ResourceState) -> _Identity:
    return resource.plugin_name, resource.deploy_target, resource.id


def _walk_below(
    root: _Identity | None,
    children: dict[_Identity | None, list[ResourceState]],
    walked: set[_Identity],
) -> Iterator[Placed]:
    def sort(found: Sequence[ResourceState]) -> list[ResourceState]:
        return sorted(found, key=lambda it: (it.deploy_target, it.name, it.id), reverse=True)

    # A stack of our own: the tree may be deeper than Python's.
    waiting = [(0, each) for each in sort(children.get(root, ()))]
    while waiting:
        depth, resource = waiting.pop()
        yield depth, resource
        if _identify(resource) not in walked:
            walked.add(_identify(resource))
            below = sort(children.get(_identify(resource), ()))
            waiting += [(depth + 1, each) for each in below]


def get_health(resource: ResourceState) -> str:
    return ResourceState.HealthStatus.Name(resource.health_status).lower()


def get_health_colour(resource: ResourceState) -> str:
    return HEALTH_COLOURS.get(resource.health_status, "yellow")


def print_resources(resources: Sequence[ResourceState], *, wide: bool) -> None:
    """Prints the resources as a table, each below its parents."""
    now = time.time()
    columns: list[Column[Placed]] = [
        Column(heading="KIND", cell=lambda it: it[1].resource_type, fixed=True),
        Column(heading="NAME", cell=_indent_name),
        Column(
            heading="HEALTH",
            cell=lambda it: get_health(it[1]),
            colour=lambda it: get_health_colour(it[1]),
            fixed=True,
        ),
        Column(heading="TARGET", cell=lambda it: it[1].deploy_target),
        Column(heading="AGE", cell=lambda it: format_age(it[1].created_at, now), fixed=True),
        Column(heading="PLUGIN", cell=lambda it: it[1].plugin_name, wide=True),
        Column(heading="ID", cell=lambda it: it[1].id, wide=True),
        Column(heading="REASON", cell=lambda it: it[1].health_description),
    ]
    print_table(columns, walk_tree(resources), wide=wide)


def _indent_name(placed: Placed) -> str:
    depth, resource = placed
    return f"└{'─' * (depth - 1)} {resource.name}" if depth else resource.name


def print_resource(opened: api_pb2.OpenResourceResponse) -> None:
    """Prints a resource with all that is known of it; what changes most comes last."""
    resource, details = opened.resource, opened.details
    title = "/".join(each for each in (resource.resource_type, resource.name) if each)
    health = click.style(get_health(resource), fg=get_health_colour(resource), bold=True)
    echo(f"{click.style(make_printable_line(title), bold=True)}  {health}")
    echo()
    print_fields(
        [
            ("reason", resource.health_description),
            ("target", f"{resource.deploy_target} ({resource.plugin_name})"),
            ("created", format_moment(resource.created_at, time.time())),
            ("id", resource.id),
            *((key, value) for key, value in sorted(resource.resource_metadata.items())),
            *(("note", note) for note in details.notes),
        ]
    )
    if details.manifest:
        _print_section("live now", details.manifest)
    if details.HasField("difference"):
        nothing = "none: what runs is what git says"
        _print_section("difference: - runs, + git", details.difference or nothing)
    if details.events:
        _print_events(details.events)
    for log in details.logs:
        title = f"last lines of {log.container}"
        _print_section(f"{title}, its previous run" if log.previous else title, log.text or "none")


def _print_events(events: Sequence[details_pb2.ResourceEvent]) -> None:
    now = time.time()
    echo()
    echo(click.style("events", bold=True))
    columns: list[Column[details_pb2.ResourceEvent]] = [
        Column(heading="AGE", cell=lambda it: format_age(it.at.seconds, now), fixed=True),
        Column(heading="KIND", cell=lambda it: it.kind, colour=_get_event_colour),
        Column(heading="REASON", cell=lambda it: it.reason),
        Column(heading="TIMES", cell=lambda it: str(it.count or ""), fixed=True),
        Column(heading="MESSAGE", cell=lambda it: it.message),
    ]
    # Whole messages: they are what an event is for.
    print_table(columns, events, wide=True)


def _get_event_colour(event: details_pb2.ResourceEvent) -> str | None:
    return "yellow" if event.kind == "Warning" else None


def _print_section(title: str, text: str) -> None:
    echo()
    echo(click.style(make_printable_line(title), bold=True))
    echo(text.rstrip("\n"))


def to_details_data(opened: api_pb2.OpenResourceResponse) -> dict[str, Any]:
    """Returns an opened resource as a program reads it. `difference` is null when it is unknown."""
    details = opened.details
    return {
        "resource": to_data(opened.resource),
        "manifest": details.manifest,
        "language": details.language,
        "difference": details.difference if details.HasField("difference") else None,
        "events": [
            {
                "at": format_timestamp(each.at.seconds) if each.HasField("at") else None,
                "kind": each.kind,
                "reason": each.reason,
                "message": each.message,
                "count": each.count,
            }
            for each in details.events
        ],
        "logs": [
            {"container": each.container, "previous": each.previous, "text": each.text}
            for each in details.logs
        ],
        "notes": list(details.notes),
    }
