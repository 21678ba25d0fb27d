# SPDX-License-Identifier: Apache-2.0
"""`pipectl application …`: what is deployed."""

import asyncio
from datetime import timedelta
from typing import Final

import click

from pipecd_model.errors import PipecdError, TimedOutError
from pipecd_wire.apiservice import service_pb2 as pb
from pipecd_wire.headers import TRIGGERED_DEPLOYMENT_ID
from pipecd_wire.model import application_pb2, command_pb2, common_pb2, deployment_pb2
from pipecd_wire.model.application_live_state_pb2 import ApplicationLiveStateSnapshot
from pipecd_wire.pipecd.api import api_pb2 as own
from pipecd_wire.rpc import CallError, call
from pipectl.client import Client, idempotency_key, use_client
from pipectl.commands.livestate import live_state, print_live_state
from pipectl.commands.waiting import STATUSES, status_numbers, wait_for_status
from pipectl.options import DURATION, PAIR
from pipectl.output import (
    echo,
    output_option,
    print_fields,
    print_json,
    print_table,
    wants_json,
    when,
)

KINDS: Final = list(common_pb2.ApplicationKind.keys())


@click.group()
def application() -> None:
    """Applications: add them, look at them, deploy them."""


@application.command()
@click.option("--app-name", required=True, help="The application's name, as in its file.")
@click.option("--piped-id", required=True, help="The piped that deploys it.")
@click.option("--repo-id", required=True, help="A repository of that piped.")
@click.option("--app-dir", required=True, help="Folder of the application in the repository.")
@click.option("--config-file-name", default="app.pipecd.yaml", show_default=True)
@click.option("--app-kind", type=click.Choice(KINDS), default=KINDS[0], help="For v0 pipeds.")
@click.option("--platform-provider", default="", help="For v0 pipeds.")
@click.option(
    "--deploy-target",
    "targets",
    type=PAIR,
    multiple=True,
    help="PLUGIN=TARGET, for v1 pipeds; may be repeated.",
)
@click.option("--description", default="")
@click.option("--labels", default="", help="k=v,k=v")
@output_option
@use_client
async def add(
    client: Client,
    *,
    app_name: str,
    piped_id: str,
    repo_id: str,
    app_dir: str,
    config_file_name: str,
    app_kind: str,
    platform_provider: str,
    targets: tuple[tuple[str, str], ...],
    description: str,
    labels: str,
    output: str,
) -> None:
    """Register an application of a repository."""
    request = pb.AddApplicationRequest(
        name=app_name,
        piped_id=piped_id,
        git_path=common_pb2.ApplicationGitPath(
            repo=common_pb2.ApplicationGitRepository(id=repo_id),
            path=app_dir,
            config_filename=config_file_name,
        ),
        kind=common_pb2.ApplicationKind.Value(app_kind),
        platform_provider=platform_provider,
        description=description,
        labels=dict(PAIR.convert(pair, None, None) for pair in labels.split(",") if pair),
    )
    made = await _add(client, request, targets)
    if wants_json(output):
        print_json(made)
    else:
        echo(f"added application {app_name} with id {made.application_id}")


async def _add(
    client: Client, request: pb.AddApplicationRequest, targets: tuple[tuple[str, str], ...]
) -> pb.AddApplicationResponse:
    """Registers an application with its deploy targets in one call, as piped deploys at once."""
    if not targets:
        return await call(client.api.AddApplication, request, metadata=idempotency_key())
    by_plugin: dict[str, deployment_pb2.DeployTargets] = {}
    for plugin, target in targets:
        chosen = by_plugin.setdefault(plugin, deployment_pb2.DeployTargets())
        chosen.deploy_targets.append(target)
    at_once = own.AddApplicationRequest(
        name=request.name,
        piped_id=request.piped_id,
        git_path=request.git_path,
        description=request.description,
        labels=request.labels,
        deploy_targets_by_plugin=by_plugin,
    )
    try:
        added = await call(client.applications.AddApplication, at_once, metadata=idempotency_key())
    except CallError as error:
        if error.status != "UNIMPLEMENTED":
            raise
    else:
        return pb.AddApplicationResponse(application_id=added.application_id)
    # A control plane of upstream's.
    made = await call(client.api.AddApplication, request, metadata=idempotency_key())
    await call(
        client.api.UpdateApplicationDeployTargets,
        pb.UpdateApplicationDeployTargetsRequest(
            application_id=made.application_id, deploy_targets_by_plugin=by_plugin
        ),
        metadata=idempotency_key(),
    )
    return made


@application.command()
@click.option("--app-id", required=True)
@click.option("--live", is_flag=True, help="Also what really runs; in JSON, only that.")
@output_option
@use_client
async def get(client: Client, *, app_id: str, live: bool, output: str) -> None:
    """Show one application."""
    answer = await call(client.api.GetApplication, pb.GetApplicationRequest(application_id=app_id))
    snapshot = await live_state(client, app_id) if live else None
    if wants_json(output):
        print_json(snapshot or ApplicationLiveStateSnapshot() if live else answer.application)
        return
    _print_application(answer.application)
    if live:
        print_live_state(snapshot)


@application.command()
@click.option("--app-id", required=True)
@use_client
async def diff(client: Client, *, app_id: str) -> None:
    """Show how what runs differs from what was deployed. Exits with 1 when it does."""
    answer = await call(client.api.GetApplication, pb.GetApplicationRequest(application_id=app_id))
    state = answer.application.sync_state
    if state.status == application_pb2.SYNCED:
        echo("in sync: what runs is what was deployed")
        return
    status = application_pb2.ApplicationSyncStatus.Name(state.status).lower().replace("_", " ")
    echo(f"{status}: {state.short_reason}" if state.short_reason else status)
    if state.reason:
        echo(state.reason)
    raise click.exceptions.Exit(1)


def _print_application(app: application_pb2.Application) -> None:
    done = app.most_recently_successful_deployment
    triggered = app.most_recently_triggered_deployment
    print_fields(
        [
            ("id", app.id),
            ("name", app.name + (" (disabled)" if app.disabled else "")),
            ("description", app.description),
            ("labels", ", ".join(f"{k}={v}" for k, v in sorted(app.labels.items()))),
            ("piped", app.piped_id),
            ("repository", f"{app.git_path.repo.id} ({app.git_path.repo.remote})"),
            ("file", f"{app.git_path.path}/{app.git_path.config_filename}"),
            ("sync state", _sync_state(app)),
            ("reason", app.sync_state.reason),
            ("deploying", "yes" if app.deploying else ""),
            ("last success", f"{done.deployment_id} {when(done.started_at)}".strip()),
            ("last triggered", f"{triggered.deployment_id} {when(triggered.started_at)}".strip()),
        ]
    )


def _sync_state(app: application_pb2.Application) -> str:
    return application_pb2.ApplicationSyncStatus.Name(app.sync_state.status)


@application.command("list")
@click.option("--app-name", default="")
@click.option("--app-kind", default="", type=click.Choice(["", *KINDS]))
@click.option("--piped-id", default="")
@click.option("--disabled", is_flag=True, help="The disabled ones instead of the enabled ones.")
@click.option("--label", "labels", type=PAIR, multiple=True, help="K:V, may be repeated.")
@click.option("--limit", default=10, show_default=True, help="0 lists all.")
@click.option("--cursor", default="", help="Where the previous page ended.")
@output_option
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
    """List applications, the last changed first."""
    request = pb.ListApplicationsRequest(
        name=app_name,
        kind=app_kind,
        piped_id=piped_id,
        disabled=disabled,
        labels=dict(labels),
        limit=limit,
        cursor=cursor,
    )
    answer = await call(client.api.ListApplications, request)
    if wants_json(output):
        print_json(answer)
        return
    print_table(
        ["ID", "NAME", "SYNC STATE", "UPDATED", "FILE"],
        [
            [
                app.id,
                app.name,
                "DEPLOYING" if app.deploying else _sync_state(app),
                when(app.updated_at),
                f"{app.git_path.repo.id}:{app.git_path.path}/{app.git_path.config_filename}",
            ]
            for app in answer.applications
        ],
    )
    if answer.cursor:
        echo(f"\nmore: --cursor {answer.cursor}", err=True)


@application.command()
@click.option("--app-id", required=True)
@click.option("--wait-status", type=click.Choice(STATUSES), multiple=True, help="Wait for one.")
@click.option("--check-interval", type=DURATION, default="15s", hidden=True)
@click.option("--timeout", "limit", type=DURATION, default="5m", show_default=True)
@use_client
async def sync(
    client: Client,
    *,
    app_id: str,
    wait_status: tuple[str, ...],
    check_interval: timedelta,
    limit: timedelta,
) -> None:
    """Deploy the head of the application's branch now. Prints the deployment's id."""
    del check_interval  # taken for the sake of existing scripts; nothing here is polled that slowly
    answer = await call(
        client.api.SyncApplication,
        pb.SyncApplicationRequest(application_id=app_id),
        metadata=idempotency_key(),
    )
    command = await _wait_handled(client, answer.command_id, limit)
    if command.status != command_pb2.COMMAND_SUCCEEDED:
        status = command_pb2.CommandStatus.Name(command.status)
        reason = command.metadata.get("reason", "")
        raise PipecdError(f"the piped refused the sync: {reason or status}")
    deployment_id = command.metadata[TRIGGERED_DEPLOYMENT_ID]
    echo(deployment_id)
    if wait_status:
        reached = await wait_for_status(client, deployment_id, status_numbers(wait_status), limit)
        if not reached.wanted:
            raise PipecdError(f"the deployment ended as {reached.name}: {reached.reason}")


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
        raise TimedOutError(
            f"the piped has not taken the command within {limit}", hint="is it running?"
        ) from None


@application.command()
@click.option("--app-id", required=True)
@use_client
async def enable(client: Client, *, app_id: str) -> None:
    """Let an application be deployed again."""
    await call(
        client.api.EnableApplication,
        pb.EnableApplicationRequest(application_id=app_id),
        metadata=idempotency_key(),
    )
    echo(f"enabled application {app_id}")


@application.command()
@click.option("--app-id", required=True)
@use_client
async def disable(client: Client, *, app_id: str) -> None:
    """Stop deploying an application; what runs keeps running."""
    await call(
        client.api.DisableApplication,
        pb.DisableApplicationRequest(application_id=app_id),
        metadata=idempotency_key(),
    )
    echo(f"disabled application {app_id}")


@application.command()
@click.option("--app-id", required=True)
@use_client
async def delete(client: Client, *, app_id: str) -> None:
    """Forget an application; what runs keeps running."""
    await call(
        client.api.DeleteApplication,
        pb.DeleteApplicationRequest(application_id=app_id),
        metadata=idempotency_key(),
    )
    echo(f"deleted application {app_id}")
