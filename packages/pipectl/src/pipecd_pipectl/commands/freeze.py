# SPDX-License-Identifier: Apache-2.0
"""`pipectl application freeze` and `unfreeze`."""

import click

from pipecd_pipectl.client import Client, idempotency_key, use_client
from pipecd_pipectl.options import application_argument, dry_run_option, say_dry_run
from pipecd_pipectl.output import echo
from pipecd_pipectl.selection import read_application
from pipecd_runtime.terminal import make_printable_line
from pipecd_wire.pipecd.api import api_pb2 as pb
from pipecd_wire.rpc import call


@click.command()
@application_argument
@click.option("--reason", default="", help="Shown to everyone who wonders.")
@dry_run_option
@use_client
async def freeze(client: Client, *, name: str, app_id: str, reason: str, dry_run: bool) -> None:
    """Let no new deployment of an application begin, until `unfreeze`.

    Rollbacks are not stopped.
    """
    await _set(client, name, app_id, frozen=True, reason=reason, dry_run=dry_run)


@click.command()
@application_argument
@dry_run_option
@use_client
async def unfreeze(client: Client, *, name: str, app_id: str, dry_run: bool) -> None:
    """Let deployments of an application begin again."""
    await _set(client, name, app_id, frozen=False, reason="", dry_run=dry_run)


async def _set(
    client: Client, name: str, app_id: str, *, frozen: bool, reason: str, dry_run: bool
) -> None:
    found = await read_application(client, name, app_id)
    verb = "freeze" if frozen else "unfreeze"
    if dry_run:
        say_dry_run(f"{verb} the application {found.name} ({found.id})")
        return
    request = pb.SetFreezeRequest(application_id=found.id, frozen=frozen, reason=reason)
    await call(client.applications.SetFreeze, request, metadata=idempotency_key())
    done = "froze" if frozen else "unfroze"
    echo(f"{done} application {make_printable_line(found.name)} ({found.id})")
