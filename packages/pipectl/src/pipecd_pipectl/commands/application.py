# SPDX-License-Identifier: Apache-2.0
"""`pipectl application …`: what is deployed."""

import asyncio
from datetime import timedelta

import click

from pipecd_model.errors import PipecdError, TimedOutError
from pipecd_pipectl.applicationview import (
    name_applications,
    print_application,
    print_applications,
    read_last_deployments,
    read_newest_deployment,
)
from pipecd_pipectl.client import Client, idempotency_key, use_client
from pipecd_pipectl.commands.applicationchange import KINDS, add, update
from pipecd_pipectl.commands.freeze import freeze, unfreeze
from pipecd_pipectl.commands.livestate import live_state, print_live_state
from pipecd_pipectl.commands.resource import resource
from pipecd_pipectl.commands.rollback import release, rollback
from pipecd_pipectl.commands.waiting import wait_deployed
from pipecd_pipectl.completions import complete_applications, complete_piped_ids
from pipecd_pipectl.controlview import read_control, read_controls
from pipecd_pipectl.lookup import find_piped_name
from pipecd_pipectl.options import (
    DURATION,
    PAIR,
    STRATEGIES,
    application_argument,
    dry_run_option,
    say_dry_run,
)
from pipecd_pipectl.output import (
    color_option,
    echo,
    is_wide,
    list_option,
    print_data,
    wants_data,
)
from pipecd_pipectl.paging import list_pages, say_more
from pipecd_pipectl.progress import showing_progress
from pipecd_pipectl.selection import Selected, read_application, select_application
from pipecd_pipectl.statuses import describe_application
from pipecd_pipectl.statusoption import STATUS, join_statuses
from pipecd_pipectl.times import format_duration
from pipecd_wire.apiservice import service_pb2 as pb
from pipecd_wire.headers import TRIGGERED_DEPLOYMENT_ID
from pipecd_wire.model import application_pb2, command_pb2
from pipecd_wire.model.application_live_state_pb2 import ApplicationLiveStateSnapshot
from pipecd_wire.model.common_pb2 import SyncStrategy
from pipecd_wire.pipecd.api import api_pb2
from pipecd_wire.rpc import call


@click.group()
def application() -> None:
    """Applications: add them, look at them, deploy them.

    Commands take an application by its name, its id, or the start of its id.
    """


application.add_command(add)
application.add_command(update)
application.add_command(resource)
application.add_command(rollback)
application.add_command(release)
application.add_command(freeze)
application.add_command(unfreeze)


@application.command()
@application_argument
@click.option("--live", is_flag=True, help="Also what really runs; in JSON, only that.")
@list_option
@use_client
async def get(client: Client, *, name: str, app_id: str, live: bool, output: str) -> None:
    """Show one application."""
    found = await read_application(client, name, app_id)
    if output == "name":
        echo(found.name)
        return
    snapshot = await live_state(client, found.id) if live else None
    if wants_data(output):
        print_data(snapshot or ApplicationLiveStateSnapshot() if live else found, output)
        return
    last = await read_last_deployments(client, [found])
    piped_name = await find_piped_name(client, found.piped_id)
    control = await read_control(client, found.id)
    newest = await read_newest_deployment(client, found)
    status = describe_application(found, last.get(found.id), control)
    print_application(found, newest, status, piped_name, control)
    if live:
        echo()
        print_live_state(snapshot)


@application.command()
@application_argument
@color_option
@use_client
async def diff(client: Client, *, name: str, app_id: str) -> None:
    """Show how what runs differs from what was deployed. Exits with 1 when it does."""
    found = await read_application(client, name, app_id)
    state = found.sync_state
    if state.status == application_pb2.SYNCED:
        echo("in sync: what runs is what was deployed")
        return
    status = application_pb2.ApplicationSyncStatus.Name(state.status).lower().replace("_", " ")
    echo(f"{status}: {state.short_reason}" if state.short_reason else status)
    if state.reason:
        echo(state.reason)
    raise click.exceptions.Exit(1)


@application.command("list")
@click.option(
    "--app-name",
    default="",
    help="Only those with this name.",
    shell_complete=complete_applications,
)
@click.option("--app-kind", default="", type=click.Choice(["", *KINDS]), help="For v0 pipeds.")
@click.option(
    "--piped-id",
    default="",
    help="Only those of this piped.",
    shell_complete=complete_piped_ids,
)
@click.option("--disabled", is_flag=True, help="The disabled ones instead of the enabled ones.")
@click.option("--label", "labels", type=PAIR, multiple=True, help="K:V, may be repeated.")
@click.option(
    "--limit", default=0, show_default="all", help="How many at most; says if more exist."
)
@click.option("--cursor", default="", help="Where the previous page ended.")
@list_option
@use_client
async def list_applications(
    client: Client,
    *,
    app_name: str,
    app_kind: str,
    piped_id: str,
    disabled: bool,
    labels: tuple[tuple[str, str], ...],
    limit: int,
    cursor: str,
    output: str,
) -> None:
    """List applications."""
    request = pb.ListApplicationsRequest(
        name=app_name,
        kind=app_kind,
        piped_id=piped_id,
        disabled=disabled,
        labels=dict(labels),
    )
    answer = pb.ListApplicationsResponse()
    async for page in list_pages(client.api.ListApplications, request, limit, cursor):
        answer.applications.extend(page.applications)
        answer.cursor = page.cursor
    if wants_data(output):
        print_data(answer, output)
    elif output == "name":
        for each in name_applications(answer.applications):
            echo(each)
    elif answer.applications:
        last = await read_last_deployments(client, answer.applications)
        controls = await read_controls(client)
        print_applications(answer.applications, last, controls, wide=is_wide(output))
    else:
        echo("no application", err=True)
    say_more(len(answer.applications), "applications", answer.cursor)


@application.command()
@application_argument
@click.option(
    "--strategy",
    type=click.Choice(list(STRATEGIES)),
    default="auto",
    show_default=True,
    help="quick: what is in git at once, without the pipeline. pipeline: all its stages. auto: as"
    " the application's file and its plugins say.",
)
@click.option("--wait", is_flag=True, help="Wait until the deployment is completed.")
@click.option("--wait-status", type=STATUS, multiple=True, help="Wait for one of these statuses.")
@click.option("--check-interval", type=DURATION, default="15s", hidden=True)
@click.option("--timeout", "limit", type=DURATION, default="5m", show_default=True)
@dry_run_option
@color_option
@use_client
async def sync(
    client: Client,
    *,
    name: str,
    app_id: str,
    strategy: str,
    wait: bool,
    wait_status: tuple[tuple[str, ...], ...],
    check_interval: timedelta,
    limit: timedelta,
    dry_run: bool,
) -> None:
    """Deploy the head of the application's branch now. Prints the deployment's id."""
    del check_interval  # taken for the sake of existing scripts; nothing here is polled that slowly
    if dry_run:
        found = await read_application(client, name, app_id)
        branch = f"{found.git_path.repo.id}, branch {found.git_path.repo.branch}"
        how = {"quick": " with a quick sync", "pipeline": " with its pipeline"}.get(strategy, "")
        say_dry_run(f"deploy the head of {branch} to the application {found.name}{how}")
        return
    chosen = await select_application(client, name, app_id)
    async with showing_progress() as progress:
        progress.update(f"asking the piped of {chosen.label} to deploy")
        deployment_id = await _start_sync(client, chosen.id, STRATEGIES[strategy], limit)
        progress.clear()
        echo(deployment_id)
        if wait or wait_status:
            await wait_deployed(client, deployment_id, join_statuses(wait_status), limit, progress)


async def _start_sync(
    client: Client, application_id: str, strategy: SyncStrategy.ValueType, limit: timedelta
) -> str:
    command_id = await _ask_to_sync(client, application_id, strategy)
    command = await _wait_handled(client, command_id, limit)
    if command.status != command_pb2.COMMAND_SUCCEEDED:
        status = command_pb2.CommandStatus.Name(command.status)
        reason = command.metadata.get("reason", "")
        raise PipecdError(f"the piped refused the sync: {reason or status}")
    return command.metadata[TRIGGERED_DEPLOYMENT_ID]


async def _ask_to_sync(
    client: Client, application_id: str, strategy: SyncStrategy.ValueType
) -> str:
    """Returns the id of the command. A control plane of upstream's knows no strategy but AUTO."""
    if strategy == SyncStrategy.AUTO:
        usual = pb.SyncApplicationRequest(application_id=application_id)
        answer = await call(client.api.SyncApplication, usual, metadata=idempotency_key())
        return answer.command_id
    request = api_pb2.SyncApplicationRequest(application_id=application_id, strategy=strategy)
    issued = await call(client.applications.SyncApplication, request, metadata=idempotency_key())
    return issued.command_id


async def _wait_handled(client: Client, command_id: str, limit: timedelta) -> command_pb2.Command:
    """Ask until the command has an outcome; a command has no stream of its own."""
    try:
        async with asyncio.timeout(limit.total_seconds()):
            pause = 0.05
            while True:
                request = pb.GetCommandRequest(command_id=command_id)
                command = (await call(client.api.GetCommand, request)).command
                if command.status != command_pb2.COMMAND_NOT_HANDLED_YET:
                    return command
                await asyncio.sleep(pause)
                pause = min(1.0, pause * 1.5)
    except TimeoutError:
        passed = format_duration(limit.total_seconds())
        raise TimedOutError(
            f"the piped has not taken the command within {passed}",
            hint="is it running? see `pipectl piped list`",
        ) from None


async def _choose(
    client: Client, name: str, app_id: str, *, verb: str, dry_run: bool
) -> Selected | None:
    """Returns the application to change; None for a dry run, which says what would be done."""
    if dry_run:
        found = await read_application(client, name, app_id)
        say_dry_run(f"{verb} the application {found.name} ({found.id})")
        return None
    return await select_application(client, name, app_id)


@application.command()
@application_argument
@dry_run_option
@use_client
async def enable(client: Client, *, name: str, app_id: str, dry_run: bool) -> None:
    """Let an application be deployed again."""
    if chosen := await _choose(client, name, app_id, verb="enable", dry_run=dry_run):
        request = pb.EnableApplicationRequest(application_id=chosen.id)
        await call(client.api.EnableApplication, request, metadata=idempotency_key())
        echo(f"enabled application {chosen.label}")


@application.command()
@application_argument
@dry_run_option
@use_client
async def disable(client: Client, *, name: str, app_id: str, dry_run: bool) -> None:
    """Stop deploying an application; what runs keeps running."""
    if chosen := await _choose(client, name, app_id, verb="disable", dry_run=dry_run):
        request = pb.DisableApplicationRequest(application_id=chosen.id)
        await call(client.api.DisableApplication, request, metadata=idempotency_key())
        echo(f"disabled application {chosen.label}")


@application.command()
@application_argument
@dry_run_option
@use_client
async def delete(client: Client, *, name: str, app_id: str, dry_run: bool) -> None:
    """Forget an application; what runs keeps running."""
    if chosen := await _choose(client, name, app_id, verb="delete", dry_run=dry_run):
        request = pb.DeleteApplicationRequest(application_id=chosen.id)
        await call(client.api.DeleteApplication, request, metadata=idempotency_key())
        echo(f"deleted application {chosen.label}")
