# SPDX-License-Identifier: Apache-2.0
"""`pipectl deployment …`: runs of a pipeline; here `list`, `get` and `logs`, which only read."""

from datetime import timedelta

import click

from pipecd_pipectl.client import Client, use_client
from pipecd_pipectl.commands.deploymentactions import approve, cancel, retry, rollback, skip
from pipecd_pipectl.commands.deploymentdiff import diff
from pipecd_pipectl.commands.deploymentwait import wait, wait_status
from pipecd_pipectl.commands.loglines import LineRange, LineRangeType, print_found_lines
from pipecd_pipectl.commands.logtails import read_logs
from pipecd_pipectl.commands.stagelogs import LogSelection, follow_logs, order_logs, print_logs
from pipecd_pipectl.completions import (
    complete_application_ids,
    complete_applications,
    complete_stage_ids,
    complete_stages,
)
from pipecd_pipectl.deploymentview import find_ahead, print_deployment, print_deployments
from pipecd_pipectl.lookup import choose_started, find_application, list_open_deployments
from pipecd_pipectl.options import DURATION, PAIR, deployment_argument
from pipecd_pipectl.output import echo, is_wide, list_option, logs_option, print_data, wants_data
from pipecd_pipectl.paging import list_pages, say_more
from pipecd_pipectl.queuetable import read_queued
from pipecd_pipectl.selection import read_deployment
from pipecd_pipectl.statusoption import STATUS, join_statuses
from pipecd_pipectl.storyview import print_story, read_record
from pipecd_wire.apiservice import service_pb2 as pb
from pipecd_wire.model import deployment_pb2


@click.group()
def deployment() -> None:
    """Deployments: follow them, approve them, stop them.

    Commands take a deployment by its id, the start of its id, or the name of its application: then
    it is the application's latest one, for `approve` and `skip` the one that waits, for `cancel`
    the one that is not completed.
    """


deployment.add_command(diff)
deployment.add_command(approve)
deployment.add_command(skip)
deployment.add_command(cancel)
deployment.add_command(retry)
deployment.add_command(rollback)
deployment.add_command(wait)
deployment.add_command(wait_status)


@deployment.command("list")
@click.argument("name", metavar="[APPLICATION]", default="", shell_complete=complete_applications)
@click.option("--status", "statuses", type=STATUS, multiple=True, help="Only these, may be a list.")
@click.option(
    "--app-id",
    "app_ids",
    multiple=True,
    help="Only those of this application.",
    shell_complete=complete_application_ids,
)
@click.option("--app-kind", "kinds", multiple=True, help="For v0 pipeds.")
@click.option(
    "--app-name",
    default="",
    help="Only those of applications with this name.",
    shell_complete=complete_applications,
)
@click.option("--label", "labels", type=PAIR, multiple=True, help="K:V, may be repeated.")
@click.option("--limit", default=30, show_default=True, help="How many at most; 0 is all.")
@click.option("--cursor", default="", help="Where the previous page ended.")
@list_option
@use_client
async def list_deployments(
    client: Client,
    *,
    name: str,
    statuses: tuple[tuple[str, ...], ...],
    app_ids: tuple[str, ...],
    kinds: tuple[str, ...],
    app_name: str,
    labels: tuple[tuple[str, str], ...],
    limit: int,
    cursor: str,
    output: str,
) -> None:
    """List deployments, the newest first."""
    if name:
        app_ids = (*app_ids, (await find_application(client, name)).id)
    request = pb.ListDeploymentsRequest(
        statuses=[f"DEPLOYMENT_{each}" for each in join_statuses(statuses)],
        kinds=kinds,
        application_ids=app_ids,
        application_name=app_name,
        labels=dict(labels),
    )
    answer = pb.ListDeploymentsResponse()
    async for page in list_pages(client.api.ListDeployments, request, limit, cursor):
        answer.deployments.extend(page.deployments)
        answer.cursor = page.cursor
    if wants_data(output):
        print_data(answer, output)
    elif output == "name":
        for each in answer.deployments:
            echo(each.id)
    elif answer.deployments:
        queued = await read_queued(client, answer.deployments)
        print_deployments(answer.deployments, wide=is_wide(output), queued=queued)
    else:
        echo("no deployment", err=True)
    say_more(len(answer.deployments), "deployments", answer.cursor)


@deployment.command()
@deployment_argument
@list_option
@use_client
async def get(client: Client, *, name: str, deployment_id: str, latest: bool, output: str) -> None:
    """Show one deployment with its stages."""
    found = await read_deployment(client, name, deployment_id, latest=latest)
    if wants_data(output):
        print_data(found, output)
    elif output == "name":
        echo(found.id)
    else:
        behind = None
        queued = (await read_queued(client, [found])).get(found.id)
        if found.status == deployment_pb2.DEPLOYMENT_PENDING:
            behind = find_ahead(found, await list_open_deployments(client, found.application_id))
        print_deployment(found, behind=behind, queued=queued, wide=is_wide(output))
        print_story(found, await read_record(client, found.id))


@deployment.command()
@deployment_argument
@click.option(
    "--stage",
    default="",
    help="Only this stage: its name or number, such as 2 or 2r.",
    shell_complete=complete_stages,
)
@click.option(
    "--stage-id",
    default="",
    help="Only this stage, by its id.",
    shell_complete=complete_stage_ids,
)
@click.option("--tail", type=click.IntRange(min=0), default=None, help="Only the last N lines.")
@click.option("--since", type=DURATION, default=None, help="Only the last 10m, 2h, …")
@click.option("--follow", "-f", is_flag=True, help="Go on until the deployment is completed.")
@click.option(
    "--grep", metavar="REGEX", default="", help="Only lines in which this is found, in any case."
)
@click.option(
    "--lines",
    type=LineRangeType(),
    default=None,
    metavar="FROM-TO",
    help="Only these lines of each stage, by their numbers: 100-200, 100- or 100.",
)
@logs_option
@use_client
async def logs(
    client: Client,
    *,
    name: str,
    deployment_id: str,
    latest: bool,
    stage: str,
    stage_id: str,
    tail: int | None,
    since: timedelta | None,
    follow: bool,
    grep: str,
    lines: LineRange | None,
    output: str,
) -> None:
    """Print the logs of a deployment's stages.

    They are text, each line with its time and its stage, also in a pipe; JSON needs -o json. Of an
    application the latest deployment that has begun is shown. With --grep and --lines each line has
    its number, and a log of any length is read in parts.
    """
    if stage and stage_id:
        raise click.UsageError("--stage and --stage-id exclude each other")
    as_data = output in {"json", "yaml"}
    if (grep or lines) and (follow or as_data or tail is not None or since is not None):
        raise click.UsageError("--grep and --lines go with --stage alone")
    if follow and as_data:
        raise click.UsageError("--follow prints text, as the log is written")
    found = await read_deployment(client, name, deployment_id, latest=latest, choose=choose_started)
    selection = LogSelection(stage=stage or stage_id, tail=tail, since=since)
    if grep or lines:
        await print_found_lines(
            client, found, selection, pattern=grep, lines=lines or LineRange(first=1, last=None)
        )
        return
    answer = await read_logs(client, found, selection, follow=follow)
    if as_data:
        print_data(order_logs(found, answer, selection), output)
    elif follow:
        await follow_logs(client, found, answer, selection)
    else:
        print_logs(found, answer, selection)
