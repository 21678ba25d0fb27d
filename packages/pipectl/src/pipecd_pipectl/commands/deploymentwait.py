# SPDX-License-Identifier: Apache-2.0
"""`pipectl deployment wait`: waits until a deployment has a status."""

from datetime import timedelta

import click

from pipecd_model.deployment import COMPLETED
from pipecd_model.errors import PipecdError
from pipecd_model.gitnames import check_commit
from pipecd_pipectl.client import Client, use_client
from pipecd_pipectl.commands.waiting import status_numbers, wait_for_commit, wait_for_status
from pipecd_pipectl.lookup import find_application
from pipecd_pipectl.options import DURATION, check_one_given, deployment_argument
from pipecd_pipectl.output import color_option, echo
from pipecd_pipectl.progress import showing_progress
from pipecd_pipectl.selection import select_deployment
from pipecd_pipectl.statusoption import STATUS, join_statuses
from pipecd_wire.model import deployment_pb2


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


@click.command()
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


@click.command("wait-status", hidden=True)
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
