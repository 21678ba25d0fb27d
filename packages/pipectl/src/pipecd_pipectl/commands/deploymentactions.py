# SPDX-License-Identifier: Apache-2.0
"""`pipectl deployment approve`, `skip`, `cancel`, `retry` and `rollback`: what a person decides."""

from datetime import timedelta

import click

from pipecd_model.deployment import COMPLETED, find_stage_to_decide
from pipecd_model.errors import NotFoundError, StateError
from pipecd_model.stage import format_stage_number
from pipecd_pipectl.client import Client, idempotency_key, use_client
from pipecd_pipectl.commands.stagelogs import LogSelection
from pipecd_pipectl.commands.waiting import wait_command
from pipecd_pipectl.completions import complete_stage_ids, complete_stages
from pipecd_pipectl.lookup import choose_open, choose_started, choose_waiting
from pipecd_pipectl.options import (
    DURATION,
    comment_option,
    deployment_argument,
    dry_run_option,
    say_dry_run,
)
from pipecd_pipectl.output import echo
from pipecd_pipectl.selection import read_deployment, select_deployment
from pipecd_pipectl.statuses import is_waiting_for_approval
from pipecd_wire.model import deployment_pb2
from pipecd_wire.pipecd.api import api_pb2
from pipecd_wire.rpc import call


@click.command()
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


@click.command()
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


@click.command()
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


@click.command()
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


@click.command()
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
