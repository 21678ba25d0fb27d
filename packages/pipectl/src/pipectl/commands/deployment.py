# SPDX-License-Identifier: Apache-2.0
"""`pipectl deployment …`: runs that bring an application to a commit."""

from datetime import timedelta

import click

from pipecd_model.deployment import COMPLETED
from pipecd_model.errors import PipecdError
from pipecd_model.stage import format_stage_number
from pipecd_wire.apiservice import service_pb2 as pb
from pipecd_wire.model import deployment_pb2
from pipecd_wire.pipecd.api import api_pb2
from pipecd_wire.rpc import call
from pipectl.client import Client, idempotency_key, use_client
from pipectl.commands.stagelogs import follow_logs, print_logs
from pipectl.commands.waiting import (
    STATUSES,
    status_name,
    status_numbers,
    wait_for_status,
)
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

deployment_id_option = click.option("--deployment-id", required=True)


@click.group()
def deployment() -> None:
    """Deployments: follow them, approve them, stop them."""


@deployment.command("list")
@click.option("--status", "statuses", type=click.Choice(STATUSES), multiple=True)
@click.option("--app-id", "app_ids", multiple=True)
@click.option("--app-kind", "kinds", multiple=True)
@click.option("--app-name", default="")
@click.option("--label", "labels", type=PAIR, multiple=True, help="K:V, may be repeated.")
@click.option("--limit", default=30, show_default=True)
@click.option("--cursor", default="", help="Where the previous page ended.")
@output_option
@use_client
async def list_deployments(
    client: Client,
    *,
    statuses: tuple[str, ...],
    app_ids: tuple[str, ...],
    kinds: tuple[str, ...],
    app_name: str,
    labels: tuple[tuple[str, str], ...],
    limit: int,
    cursor: str,
    output: str,
) -> None:
    """List deployments, the last changed first."""
    request = pb.ListDeploymentsRequest(
        statuses=[f"DEPLOYMENT_{name}" for name in statuses],
        kinds=kinds,
        application_ids=app_ids,
        application_name=app_name,
        labels=dict(labels),
        limit=limit,
        cursor=cursor,
    )
    answer = await call(client.api.ListDeployments, request)
    if wants_json(output):
        print_json(answer)
        return
    print_table(
        ["ID", "APPLICATION", "STATUS", "COMMIT", "CREATED", "SUMMARY"],
        [
            [
                each.id,
                each.application_name,
                status_name(each.status),
                each.trigger.commit.hash[:7],
                when(each.created_at),
                each.status_reason or each.summary,
            ]
            for each in answer.deployments
        ],
    )
    if answer.cursor:
        echo(f"\nmore: --cursor {answer.cursor}", err=True)


@deployment.command()
@deployment_id_option
@output_option
@use_client
async def get(client: Client, *, deployment_id: str, output: str) -> None:
    """Show one deployment with its stages."""
    request = pb.GetDeploymentRequest(deployment_id=deployment_id)
    found = (await call(client.api.GetDeployment, request)).deployment
    if wants_json(output):
        print_json(found)
        return
    commit = found.trigger.commit
    print_fields(
        [
            ("id", found.id),
            ("application", found.application_name),
            ("status", status_name(found.status)),
            ("reason", found.status_reason),
            ("summary", found.summary),
            ("commit", f"{commit.hash[:7]} {commit.message}"),
            ("by", found.trigger.commander or commit.author),
            ("created", when(found.created_at)),
            ("completed", when(found.completed_at)),
        ]
    )
    echo()
    print_table(
        ["#", "STAGE", "STATUS", "ID", "REASON"], [_stage_row(stage) for stage in found.stages]
    )


def _stage_row(stage: deployment_pb2.PipelineStage) -> list[str]:
    status = deployment_pb2.StageStatus.Name(stage.status).removeprefix("STAGE_")
    return [format_stage_number(stage), stage.name, status, stage.id, stage.status_reason]


@deployment.command()
@deployment_id_option
@click.option("--stage-id", default="", help="Only this stage.")
@click.option("--follow", "-f", is_flag=True, help="Go on until the deployment is completed.")
@output_option
@use_client
async def logs(
    client: Client, *, deployment_id: str, stage_id: str, follow: bool, output: str
) -> None:
    """Print the logs of a deployment's stages, each line behind its stage's name."""
    if follow:
        await follow_logs(client, deployment_id, stage_id)
        return
    answer = await call(
        client.api.ListStageLogs, pb.ListStageLogsRequest(deployment_id=deployment_id)
    )
    if wants_json(output):
        print_json(answer)
        return
    request = pb.GetDeploymentRequest(deployment_id=deployment_id)
    found = (await call(client.api.GetDeployment, request)).deployment
    print_logs(found, answer, stage_id)


@deployment.command()
@deployment_id_option
@click.option("--stage-id", default="", help="Default: the stage that waits for approval now.")
@use_client
async def approve(client: Client, *, deployment_id: str, stage_id: str) -> None:
    """Approve a stage that waits for it."""
    request = api_pb2.ApproveStageRequest(deployment_id=deployment_id, stage_id=stage_id)
    answer = await call(client.deployments.ApproveStage, request, metadata=idempotency_key())
    echo(f"approved stage {answer.stage_id}")


@deployment.command()
@deployment_id_option
@click.option("--force-rollback", is_flag=True, help="Roll back even if autoRollback is false.")
@click.option("--force-no-rollback", is_flag=True, help="Do not roll back.")
@use_client
async def cancel(
    client: Client, *, deployment_id: str, force_rollback: bool, force_no_rollback: bool
) -> None:
    """Stop a deployment, queued or running."""
    if force_rollback and force_no_rollback:
        raise click.UsageError("--force-rollback and --force-no-rollback exclude each other")
    request = api_pb2.CancelDeploymentRequest(
        deployment_id=deployment_id,
        force_rollback=force_rollback,
        force_no_rollback=force_no_rollback,
    )
    await call(client.deployments.CancelDeployment, request, metadata=idempotency_key())
    echo(f"asked to cancel deployment {deployment_id}")


async def _wait(
    client: Client, deployment_id: str, statuses: tuple[str, ...], limit: timedelta
) -> None:
    wanted = status_numbers(statuses) or COMPLETED
    reached = await wait_for_status(client, deployment_id, wanted, limit)
    echo(f"{reached.name}" + (f": {reached.reason}" if reached.reason else ""))
    if not reached.wanted:
        raise PipecdError(f"the deployment ended as {reached.name}")
    if not statuses and reached.status != deployment_pb2.DEPLOYMENT_SUCCESS:
        raise click.exceptions.Exit(1)


@deployment.command()
@deployment_id_option
@click.option(
    "--status",
    "statuses",
    type=click.Choice(STATUSES),
    multiple=True,
    help="Default: until it is completed; then the exit code is 0 only for SUCCESS.",
)
@click.option("--timeout", "limit", type=DURATION, default="15m", show_default=True)
@use_client
async def wait(
    client: Client, *, deployment_id: str, statuses: tuple[str, ...], limit: timedelta
) -> None:
    """Wait until a deployment has a status."""
    await _wait(client, deployment_id, statuses, limit)


@deployment.command("wait-status", hidden=True)
@deployment_id_option
@click.option("--status", "statuses", required=True, help="One or more, separated by commas.")
@click.option("--check-interval", type=DURATION, default="15s")
@click.option("--timeout", "limit", type=DURATION, default="15m")
@use_client
async def wait_status(
    client: Client,
    *,
    deployment_id: str,
    statuses: str,
    check_interval: timedelta,
    limit: timedelta,
) -> None:
    """The name existing scripts know; `wait` is the same."""
    del check_interval  # changes are pushed, nothing is polled
    names = tuple(name.strip().removeprefix("DEPLOYMENT_") for name in statuses.split(","))
    if unknown := [name for name in names if name not in STATUSES]:
        raise click.BadParameter(f"{unknown[0]!r} is none of {', '.join(STATUSES)}")
    await _wait(client, deployment_id, names, limit)
