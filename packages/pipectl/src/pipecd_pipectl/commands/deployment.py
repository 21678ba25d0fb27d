# SPDX-License-Identifier: Apache-2.0
"""`pipectl deployment …`: runs of a pipeline."""

from datetime import timedelta

import click

from pipecd_model.deployment import COMPLETED, find_stage_to_decide
from pipecd_model.errors import NotFoundError, PipecdError, StateError
from pipecd_model.gitnames import check_commit
from pipecd_model.stage import format_stage_number
from pipecd_pipectl.client import Client, idempotency_key, use_client
from pipecd_pipectl.commands.deploymentdiff import diff
from pipecd_pipectl.commands.loglines import LineRange, LineRangeType, print_found_lines
from pipecd_pipectl.commands.stagelogs import LogSelection, follow_logs, order_logs, print_logs
from pipecd_pipectl.commands.waiting import (
    status_numbers,
    wait_command,
    wait_for_commit,
    wait_for_status,
)
from pipecd_pipectl.completions import (
    complete_application_ids,
    complete_applications,
    complete_stage_ids,
    complete_stages,
)
from pipecd_pipectl.deploymentview import find_ahead, print_deployment, print_deployments
from pipecd_pipectl.lookup import (
    choose_open,
    choose_started,
    choose_waiting,
    find_application,
    list_open_deployments,
)
from pipecd_pipectl.options import (
    DURATION,
    PAIR,
    check_one_given,
    comment_option,
    deployment_argument,
    dry_run_option,
    say_dry_run,
)
from pipecd_pipectl.output import (
    color_option,
    echo,
    is_wide,
    list_option,
    logs_option,
    print_data,
    wants_data,
)
from pipecd_pipectl.paging import list_pages, say_more
from pipecd_pipectl.progress import showing_progress
from pipecd_pipectl.queuetable import read_queued
from pipecd_pipectl.selection import read_deployment, select_deployment
from pipecd_pipectl.statuses import is_waiting_for_approval
from pipecd_pipectl.statusoption import STATUS, join_statuses
from pipecd_pipectl.storyview import print_story, read_record
from pipecd_wire.apiservice import service_pb2 as pb
from pipecd_wire.model import deployment_pb2
from pipecd_wire.pipecd.api import api_pb2
from pipecd_wire.rpc import call


@click.group()
def deployment() -> None:
    """Deployments: follow them, approve them, stop them.

    Commands take a deployment by its id, the start of its id, or the name of its application: then
    it is the application's latest one, for `approve` and `skip` the one that waits, for `cancel`
    the one that is not completed.
    """


deployment.add_command(diff)


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
    request = pb.ListStageLogsRequest(deployment_id=found.id)
    answer = await call(client.api.ListStageLogs, request)
    if as_data:
        print_data(order_logs(found, answer, selection), output)
    elif follow:
        await follow_logs(client, found, answer, selection)
    else:
        print_logs(found, answer, selection)


@deployment.command()
@deployment_argument
@click.option(
    "--stage-id",
    default="",
    help="Default: the stage that waits for approval now.",
    shell_complete=complete_stage_ids,
)
@comment_option
@dry_run_option
@use_client
async def approve(
    client: Client,
    *,
    name: str,
    deployment_id: str,
    latest: bool,
    stage_id: str,
    comment: str,
    dry_run: bool,
) -> None:
    """Approve a stage that waits for it."""
    if dry_run:
        found = await read_deployment(
            client, name, deployment_id, latest=latest, choose=choose_waiting
        )
        say_dry_run(f"approve {_describe_waiting(found, stage_id)}")
        return
    chosen = await select_deployment(
        client, name, deployment_id, latest=latest, choose=choose_waiting
    )
    request = api_pb2.ApproveStageRequest(
        deployment_id=chosen.id, stage_id=stage_id, comment=comment
    )
    answer = await call(client.deployments.ApproveStage, request, metadata=idempotency_key())
    echo(f"approved stage {chosen.name_stage(answer.stage_id)} of deployment {chosen.label}")


def _describe_waiting(found: deployment_pb2.Deployment, stage_id: str) -> str:
    waiting = [
        each
        for each in found.stages
        if (each.id == stage_id if stage_id else is_waiting_for_approval(each))
    ]
    if not waiting:
        raise StateError(
            f"no stage of the deployment {found.id} waits for approval now",
            hint=f"`pipectl why {found.id[:8]}` says what it waits for",
        )
    stage = waiting[0]
    where = f"of the deployment {found.id} of {found.application_name}"
    return f"stage {format_stage_number(stage)} {stage.name} {where}"


@deployment.command()
@deployment_argument
@click.option(
    "--stage",
    default="",
    help="Its name or number. Default: the one that runs.",
    shell_complete=complete_stages,
)
@comment_option
@dry_run_option
@use_client
async def skip(
    client: Client,
    *,
    name: str,
    deployment_id: str,
    latest: bool,
    stage: str,
    comment: str,
    dry_run: bool,
) -> None:
    """Skip a running stage whose plugin offers that, such as WAIT or ANALYSIS."""
    found = await read_deployment(client, name, deployment_id, latest=latest, choose=choose_started)
    chosen = _choose_stage_to_skip(found, stage)
    label = f"stage {format_stage_number(chosen)} {chosen.name} of {found.application_name}"
    if dry_run:
        say_dry_run(f"skip {label}")
        return
    request = api_pb2.SkipStageRequest(deployment_id=found.id, stage_id=chosen.id, comment=comment)
    await call(client.deployments.SkipStage, request, metadata=idempotency_key())
    echo(f"asked to skip {label}")


def _choose_stage_to_skip(
    found: deployment_pb2.Deployment, wanted: str
) -> deployment_pb2.PipelineStage:
    selection = LogSelection(stage=wanted)
    running = [
        each
        for each in found.stages
        if selection.has_stage(each) and (wanted or each.status == deployment_pb2.STAGE_RUNNING)
    ]
    if not running:
        what = f"no stage {wanted!r}" if wanted else "no stage that runs now"
        raise NotFoundError(f"the deployment {found.id} has {what}")
    return running[0]


@deployment.command()
@deployment_argument
@click.option("--force-rollback", is_flag=True, help="Roll back even if autoRollback is false.")
@click.option("--force-no-rollback", is_flag=True, help="Do not roll back.")
@comment_option
@dry_run_option
@use_client
async def cancel(
    client: Client,
    *,
    name: str,
    deployment_id: str,
    latest: bool,
    force_rollback: bool,
    force_no_rollback: bool,
    comment: str,
    dry_run: bool,
) -> None:
    """Stop a deployment, queued or running."""
    if force_rollback and force_no_rollback:
        raise click.UsageError("--force-rollback and --force-no-rollback exclude each other")
    if dry_run:
        found = await read_deployment(
            client, name, deployment_id, latest=latest, choose=choose_open
        )
        if found.status in COMPLETED:
            raise StateError(f"the deployment {found.id} is completed")
        say_dry_run(f"cancel the deployment {found.id} of {found.application_name}")
        return
    chosen = await select_deployment(client, name, deployment_id, latest=latest, choose=choose_open)
    request = api_pb2.CancelDeploymentRequest(
        deployment_id=chosen.id,
        force_rollback=force_rollback,
        force_no_rollback=force_no_rollback,
        comment=comment,
    )
    await call(client.deployments.CancelDeployment, request, metadata=idempotency_key())
    echo(f"asked to cancel deployment {chosen.label}")


@deployment.command()
@deployment_argument
@comment_option
@click.option("--timeout", "limit", type=DURATION, default="5m", show_default=True)
@dry_run_option
@use_client
async def retry(
    client: Client,
    *,
    name: str,
    deployment_id: str,
    latest: bool,
    comment: str,
    limit: timedelta,
    dry_run: bool,
) -> None:
    """Run a failed stage again, in a deployment that waits for it.

    A deployment waits after a failure when its application file says `onFailure: wait`.
    """
    found = await read_deployment(client, name, deployment_id, latest=latest, choose=choose_open)
    failed = find_stage_to_decide(found)
    if failed is None:
        raise StateError(
            f"the deployment {found.id} does not wait for a person after a failure",
            hint=f"`pipectl why {found.id[:8]}` says what it waits for",
        )
    label = f"stage {format_stage_number(failed)} {failed.name} of {found.application_name}"
    if dry_run:
        say_dry_run(f"run {label} again")
        return
    request = api_pb2.RetryStageRequest(deployment_id=found.id, stage_id=failed.id, comment=comment)
    answer = await call(client.deployments.RetryStage, request, metadata=idempotency_key())
    await wait_command(client, answer.command_id, limit, "the retry")
    echo(f"runs {label} again, as attempt {answer.attempt + 1}")


@deployment.command()
@deployment_argument
@click.option("--reason", default="", help="Shown to everyone who wonders.")
@click.option("--timeout", "limit", type=DURATION, default="5m", show_default=True)
@dry_run_option
@use_client
async def rollback(
    client: Client,
    *,
    name: str,
    deployment_id: str,
    latest: bool,
    reason: str,
    limit: timedelta,
    dry_run: bool,
) -> None:
    """Go back to what ran before a deployment.

    One that waits after a failure (`onFailure: wait`) is rolled back itself. Of any other, the
    application is brought back and pinned, as `pipectl application rollback` does. Prints the id of
    the deployment that does it.
    """
    found = await read_deployment(client, name, deployment_id, latest=latest)
    if dry_run:
        what = f"go back to what ran before the deployment {found.id}"
        say_dry_run(f"{what} of {found.application_name}")
        return
    request = api_pb2.RollBackDeploymentRequest(deployment_id=found.id, reason=reason)
    answer = await call(client.deployments.RollBackDeployment, request, metadata=idempotency_key())
    await wait_command(client, answer.command_id, limit, "the roll-back")
    echo(answer.deployment_id)


async def _wait(
    client: Client, deployment_id: str, statuses: tuple[str, ...], limit: timedelta
) -> None:
    wanted = status_numbers(statuses) or COMPLETED
    async with showing_progress() as progress:
        reached = await wait_for_status(client, deployment_id, wanted, limit, progress)
    echo(f"{reached.name}" + (f": {reached.reason}" if reached.reason else ""))
    if not reached.wanted:
        raise PipecdError(f"the deployment ended as {reached.name}")
    if not statuses and reached.status != deployment_pb2.DEPLOYMENT_SUCCESS:
        raise click.exceptions.Exit(1)


@deployment.command()
@deployment_argument
@click.option(
    "--status",
    "statuses",
    type=STATUS,
    multiple=True,
    help="Default: until it is completed; then the exit code is 0 only for SUCCESS.",
)
@click.option(
    "--commit",
    default="",
    metavar="HASH",
    help="The application's deployment of this commit; waits for one if there is none yet.",
)
@click.option("--timeout", "limit", type=DURATION, default="15m", show_default=True)
@color_option
@use_client
async def wait(
    client: Client,
    *,
    name: str,
    deployment_id: str,
    latest: bool,
    statuses: tuple[tuple[str, ...], ...],
    commit: str,
    limit: timedelta,
) -> None:
    """Wait until a deployment has a status.

    Meanwhile the stage that runs is shown on stderr.
    """
    if not commit:
        chosen = await select_deployment(client, name, deployment_id, latest=latest)
        await _wait(client, chosen.id, join_statuses(statuses), limit)
        return
    if not name or deployment_id or latest:
        raise click.UsageError("--commit goes with the name of an application")
    check_commit(commit)
    application = await find_application(client, name)
    async with showing_progress() as progress:
        found, left = await wait_for_commit(client, application, commit, limit, progress)
    await _wait(client, found.id, join_statuses(statuses), left)


@deployment.command("wait-status", hidden=True)
@deployment_argument
@click.option("--status", "statuses", required=True, type=STATUS, multiple=True)
@click.option("--check-interval", type=DURATION, default="15s")
@click.option("--timeout", "limit", type=DURATION, default="15m")
@use_client
async def wait_status(
    client: Client,
    *,
    name: str,
    deployment_id: str,
    latest: bool,
    statuses: tuple[tuple[str, ...], ...],
    check_interval: timedelta,
    limit: timedelta,
) -> None:
    """The name existing scripts know; `wait` is the same."""
    del check_interval  # changes are pushed, nothing is polled
    check_one_given("deployment", name=name, deployment_id=deployment_id)
    chosen = await select_deployment(client, name, deployment_id, latest=latest)
    await _wait(client, chosen.id, join_statuses(statuses), limit)
