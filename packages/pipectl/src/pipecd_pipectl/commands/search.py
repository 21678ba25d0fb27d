# SPDX-License-Identifier: Apache-2.0
"""`pipectl search`: applications by words of their names and by any property."""

import click

from pipecd_pipectl.client import Client, use_client
from pipecd_pipectl.options import PAIR
from pipecd_pipectl.output import echo, is_wide, list_option, print_data, wants_data
from pipecd_pipectl.overviewview import print_found
from pipecd_pipectl.paging import say_more
from pipecd_wire.model.application_pb2 import ApplicationSyncStatus
from pipecd_wire.pipecd.api import overview_pb2 as pb
from pipecd_wire.rpc import call

PAGE = 200
"""The most that the control plane answers at once."""

STATUSES = {
    "never": pb.NEVER_DEPLOYED,
    "running": pb.IN_PROGRESS,
    "waiting": pb.WAITING,
    "succeeded": pb.SUCCEEDED,
    "failed": pb.FAILED,
    "cancelled": pb.CANCELLED,
}
SYNCS = {
    "unknown": "UNKNOWN",
    "synced": "SYNCED",
    "deploying": "DEPLOYING",
    "out-of-sync": "OUT_OF_SYNC",
    "invalid-config": "INVALID_CONFIG",
}
ORDERS = {
    "urgency": pb.SearchApplicationsRequest.URGENCY,
    "name": pb.SearchApplicationsRequest.NAME,
    "changed": pb.SearchApplicationsRequest.CHANGED,
}


@click.command()
@click.argument("words", nargs=-1)
@click.option(
    "--status",
    "statuses",
    type=click.Choice(list(STATUSES)),
    multiple=True,
    help="How the newest deployment is. May be repeated.",
)
@click.option(
    "--sync", "syncs", type=click.Choice(list(SYNCS)), multiple=True, help="May be repeated."
)
@click.option("--label", "labels", type=PAIR, multiple=True, help="K:V, may be repeated.")
@click.option("--kind", "kinds", multiple=True, help="Such as kubernetes. May be repeated.")
@click.option(
    "--order",
    type=click.Choice(list(ORDERS)),
    default="urgency",
    show_default=True,
    help="urgency: what needs a look first.",
)
@click.option("--disabled", is_flag=True, help="Also those that are disabled.")
@click.option("--limit", default=50, show_default=True, help="How many at most; 0 is all.")
@click.option("--cursor", default="", help="Where the previous page ended.")
@list_option
@use_client
async def search(
    client: Client,
    *,
    words: tuple[str, ...],
    statuses: tuple[str, ...],
    syncs: tuple[str, ...],
    labels: tuple[tuple[str, str], ...],
    kinds: tuple[str, ...],
    order: str,
    disabled: bool,
    limit: int,
    cursor: str,
    output: str,
) -> None:
    """Find applications by words, labels and state.

    All words have to be in the name, in any case.

    \b
    Examples:
      pipectl search shop web
      pipectl search --status failed --status waiting
      pipectl search --sync out-of-sync --label env:prod
    """
    values: dict[str, list[str]] = {}
    for key, value in labels:
        values.setdefault(key, []).append(value)
    wanted = pb.SearchApplicationsRequest
    request = wanted(
        text=" ".join(words),
        statuses=[STATUSES[each] for each in statuses],
        sync_statuses=[ApplicationSyncStatus.Value(SYNCS[each]) for each in syncs],
        labels=[wanted.LabelChoice(key=key, values=each) for key, each in values.items()],
        kinds=kinds,
        order=ORDERS[order],
        activity=wanted.ANY if disabled else wanted.ENABLED,
    )
    answer = await _read(client, request, limit, cursor)
    if wants_data(output):
        print_data(answer, output)
    elif output == "name":
        for each in answer.applications:
            echo(each.application.id)
    elif answer.applications:
        print_found(answer.applications, wide=is_wide(output))
    else:
        echo("no application is like that", err=True)
    say_more(len(answer.applications), "applications", answer.cursor)


async def _read(
    client: Client, request: pb.SearchApplicationsRequest, limit: int, cursor: str
) -> pb.SearchApplicationsResponse:
    """Returns all pages as one; their counts are those of the first."""
    answer = pb.SearchApplicationsResponse()
    request.cursor = cursor
    while True:
        left = limit - len(answer.applications) if limit > 0 else PAGE
        request.page_size = min(left, PAGE)
        page = await call(client.overview.SearchApplications, request)
        answer.MergeFrom(page)
        answer.cursor = page.cursor
        request.without_facets = True
        is_full = limit > 0 and len(answer.applications) >= limit
        if not page.cursor or page.cursor == request.cursor or is_full:
            return answer
        request.cursor = page.cursor
