# SPDX-License-Identifier: Apache-2.0
"""`pipectl event …` and `pipectl trace …`: what programs told, and what commits have caused."""

import time
from typing import Any

import click

from pipecd_pipectl.client import Client, idempotency_key, use_client
from pipecd_pipectl.connection import require_session
from pipecd_pipectl.data import name_state
from pipecd_pipectl.options import PAIR, parse_pairs
from pipecd_pipectl.output import echo, is_wide, list_option, output_option, print_data, wants_data
from pipecd_pipectl.paging import say_more
from pipecd_pipectl.statuses import COLOURS, status_name
from pipecd_pipectl.tables import Column, print_table, shorten_ids
from pipecd_pipectl.times import format_age, when
from pipecd_wire.apiservice import service_pb2 as api
from pipecd_wire.model.event_pb2 import Event, EventStatus
from pipecd_wire.rpc import call
from pipecd_wire.webservice import service_pb2 as web

STATUSES = {
    "not-handled": "EVENT_NOT_HANDLED",
    "success": "EVENT_SUCCESS",
    "failure": "EVENT_FAILURE",
    "outdated": "EVENT_OUTDATED",
}
Trace = web.ListDeploymentTracesResponse.DeploymentTraceRes


@click.group()
def event() -> None:
    """Events: what programs told, and what became of it."""


@event.command("list")
@click.option("--name", default="", help="Only those with this name.")
@click.option(
    "--status", "statuses", type=click.Choice(list(STATUSES)), multiple=True, help="Only these."
)
@click.option("--label", "labels", type=PAIR, multiple=True, help="K:V, may be repeated.")
@click.option("--limit", default=30, show_default=True, help="How many at most.")
@click.option("--cursor", default="", help="Where the previous page ended.")
@list_option
@use_client
async def list_events(
    client: Client,
    *,
    name: str,
    statuses: tuple[str, ...],
    labels: tuple[tuple[str, str], ...],
    limit: int,
    cursor: str,
    output: str,
) -> None:
    """List events, the newest first."""
    require_session(client.connection, "events are listed by people")
    options = web.ListEventsRequest.Options(
        name=name,
        statuses=[EventStatus.Value(STATUSES[each]) for each in statuses],
        labels=dict(labels),
    )
    request = web.ListEventsRequest(options=options, page_size=limit, cursor=cursor)
    answer = await call(client.web.ListEvents, request)
    if wants_data(output):
        print_data(answer, output)
    elif output == "name":
        for each in answer.events:
            echo(each.id)
    elif answer.events:
        _print_events(list(answer.events), wide=is_wide(output))
    else:
        echo("no event", err=True)
    say_more(len(answer.events), "events", answer.cursor)


@event.command("register")
@click.option("--name", required=True, help="What an application file waits for.")
@click.option("--data", required=True, help="What is new, such as a version.")
@click.option("--labels", default="", help="k=v,k=v")
@click.option("--contexts", default="", help="k=v,k=v: written into the commit that follows.")
@click.option("--commit-hash", default="", help="Of the program: a trace then begins with it.")
@click.option("--commit-url", default="")
@click.option("--commit-title", default="")
@click.option("--commit-message", default="")
@click.option("--commit-author", default="")
@click.option("--commit-timestamp", default=0, help="Unix seconds.")
@output_option
@use_client
async def register(
    client: Client, /, *, labels: str, contexts: str, output: str, **told: Any
) -> None:
    """Tell of something new, which applications may wait for. Prints the id of the event."""
    request = api.RegisterEventRequest(
        labels=parse_pairs(labels),
        contexts=parse_pairs(contexts),
        **told,
    )
    answer = await call(client.api.RegisterEvent, request, metadata=idempotency_key())
    if wants_data(output):
        print_data(answer, output)
    else:
        echo(answer.event_id)


def _print_events(events: list[Event], *, wide: bool) -> None:
    short = {} if wide else shorten_ids(each.id for each in events)
    now = time.time()

    def name_status(it: Event) -> str:
        return name_state(EventStatus.DESCRIPTOR, it.status)

    columns: list[Column[Event]] = [
        Column(heading="ID", cell=lambda it: short.get(it.id, it.id), fixed=True),
        Column(heading="NAME", cell=lambda it: it.name),
        Column(
            heading="STATUS",
            cell=name_status,
            colour=lambda it: COLOURS.get(name_status(it)),
            fixed=True,
        ),
        Column(heading="CREATED", cell=lambda it: format_age(it.created_at, now), fixed=True),
        Column(heading="DATA", cell=lambda it: it.data),
        Column(heading="LABELS", cell=_format_labels, wide=True),
        Column(heading="HANDLED", cell=lambda it: when(it.handled_at), wide=True),
        Column(heading="WHY", cell=lambda it: it.status_description),
    ]
    print_table(columns, events, wide=wide)


def _format_labels(it: Event) -> str:
    return ",".join(f"{key}:{value}" for key, value in sorted(it.labels.items()))


@click.group()
def trace() -> None:
    """Traces: from the commit of a program to what it has deployed."""


@trace.command("list")
@click.option("--commit", default="", help="Only that of this commit: its whole hash.")
@click.option("--limit", default=30, show_default=True, help="How many at most.")
@click.option("--cursor", default="", help="Where the previous page ended.")
@list_option
@use_client
async def list_traces(client: Client, *, commit: str, limit: int, cursor: str, output: str) -> None:
    """List commits with the deployments that they caused, the newest first."""
    require_session(client.connection, "traces are listed by people")
    request = web.ListDeploymentTracesRequest(
        options=web.ListDeploymentTracesRequest.Options(commit_hash=commit),
        page_size=limit,
        cursor=cursor,
    )
    answer = await call(client.web.ListDeploymentTraces, request)
    if wants_data(output):
        print_data(answer, output)
    elif output == "name":
        for each in answer.traces:
            echo(each.trace.id)
    elif answer.traces:
        _print_traces(list(answer.traces), wide=is_wide(output))
    else:
        echo("no trace", err=True)
    say_more(len(answer.traces), "traces", answer.cursor)


def _print_traces(traces: list[Trace], *, wide: bool) -> None:
    now = time.time()
    columns: list[Column[Trace]] = [
        Column(heading="COMMIT", cell=lambda it: it.trace.commit_hash[:7], fixed=True),
        Column(
            heading="CREATED",
            cell=lambda it: format_age(it.trace.commit_timestamp, now),
            fixed=True,
        ),
        Column(heading="AUTHOR", cell=lambda it: it.trace.author),
        Column(heading="TITLE", cell=lambda it: it.trace.title),
        Column(heading="URL", cell=lambda it: it.trace.commit_url, wide=True),
        Column(heading="DEPLOYMENTS", cell=_describe_deployments),
    ]
    print_table(columns, traces, wide=wide)


def _describe_deployments(it: Trace) -> str:
    return ", ".join(
        f"{each.application_name} {status_name(each.status)}" for each in it.deployments
    )
