# SPDX-License-Identifier: Apache-2.0
"""`pipectl application rollback` and `release`: go back to an earlier version, and on again."""

import re
import sys
from datetime import timedelta
from typing import Final

import click

from pipecd_model.errors import ConfigError, StateError
from pipecd_pipectl.client import Client, idempotency_key, use_client
from pipecd_pipectl.commands.waiting import wait_command, wait_deployed
from pipecd_pipectl.controlview import describe_hold, describe_pinned, read_control
from pipecd_pipectl.lookup import list_recent_deployments
from pipecd_pipectl.options import (
    DURATION,
    STRATEGIES,
    application_argument,
    confirm,
    dry_run_option,
    say_dry_run,
)
from pipecd_pipectl.output import color_option, echo, wrap_text
from pipecd_pipectl.progress import showing_progress
from pipecd_pipectl.rollbackview import print_preview
from pipecd_pipectl.selection import read_application
from pipecd_pipectl.typeable import format_typeable
from pipecd_runtime.terminal import make_printable_line
from pipecd_wire.model.application_pb2 import Application
from pipecd_wire.pipecd.api import api_pb2 as pb
from pipecd_wire.rpc import call

MOST_LOOKED_AT: Final = 200
"""Deployments of the application among which `--to` is looked for."""

START: Final = re.compile(r"[0-9a-f-]{4,64}")
COMMIT: Final = re.compile(r"[0-9a-f]{7,64}")


@click.command()
@application_argument
@click.option(
    "--to",
    default="",
    metavar="DEPLOYMENT|COMMIT",
    help="Its id or hash, or the start of it. Default: what ran before the last deployment.",
)
@click.option("--reason", default="", help="Shown to everyone who wonders why it is pinned.")
@click.option(
    "--strategy",
    type=click.Choice(list(STRATEGIES)),
    default="auto",
    show_default=True,
    help="auto: a quick sync, or the pipeline where no plugin offers one.",
)
@click.option("--wait", is_flag=True, help="Wait until the deployment is completed.")
@click.option("--timeout", "limit", type=DURATION, default="5m", show_default=True)
@click.option("--yes", "-y", is_flag=True, help="Do not show what would change, and do not ask.")
@dry_run_option
@color_option
@use_client
async def rollback(
    client: Client,
    *,
    name: str,
    app_id: str,
    to: str,
    reason: str,
    strategy: str,
    wait: bool,
    limit: timedelta,
    yes: bool,
    dry_run: bool,
) -> None:
    """Bring an application back to an earlier version, and pin it there.

    Shows what would change, and asks. Newer commits wait until `pipectl application release`.
    Prints the id of the deployment.
    """
    if not (yes or dry_run or sys.stdin.isatty()):
        raise click.UsageError("there is no terminal to ask at; give --yes or --dry-run")
    found = await read_application(client, name, app_id)
    request = await _read_target(client, found, to)
    request.reason = reason
    request.strategy = STRATEGIES[strategy]
    if dry_run or not yes:
        await _show(client, found, request)
        if dry_run:
            say_dry_run(f"roll back {found.name} to {request.commit_hash[:7]} and pin it there")
            return
        if not confirm(f"Roll {found.name} back?"):
            raise StateError("nothing was changed")
        if request.deployment_id:
            request.commit_hash = ""
    answer = await call(
        client.applications.RollBackApplication, request, metadata=idempotency_key()
    )
    async with showing_progress() as progress:
        progress.update(f"asking the piped of {found.name} to roll back")
        await wait_command(client, answer.command_id, limit, "the roll-back")
        progress.clear()
        echo(answer.deployment_id)
        typed = format_typeable(found.name, found.id)
        echo(
            f"pinned to {answer.commit_hash[:7]}; newer commits wait until:"
            f" pipectl application release {typed}",
            err=True,
        )
        if wait:
            await wait_deployed(client, answer.deployment_id, (), limit, progress)


async def _show(client: Client, found: Application, request: pb.RollBackApplicationRequest) -> None:
    """Print what the roll-back would change, and fill in what it was that was meant."""
    asking = pb.RollBackApplicationRequest()
    asking.CopyFrom(request)
    asking.dry_run = True
    async with showing_progress() as progress:
        progress.update(f"asking the piped of {found.name} what would change")
        answer = await call(client.applications.RollBackApplication, asking)
        progress.clear()
    print_preview(found.name, answer.preview)
    request.deployment_id = answer.target_deployment_id
    request.commit_hash = answer.commit_hash


async def _read_target(
    client: Client, found: Application, to: str
) -> pb.RollBackApplicationRequest:
    """Returns the request for what `--to` names: a deployment, or else a commit."""
    request = pb.RollBackApplicationRequest(application_id=found.id)
    start = to.lower()
    if not to:
        return request
    if not START.fullmatch(start):
        raise ConfigError(
            f"--to {to!r} is neither a deployment nor a commit",
            hint="give the id of one or the hash of the other, or the start of it",
        )
    recent = await list_recent_deployments(client, found.id, MOST_LOOKED_AT)
    named = [each for each in recent if each.id.startswith(start)]
    commits = {each.trigger.commit.hash for each in recent}
    if len(named) > 1 or (named and any(each.startswith(start) for each in commits)):
        raise ConfigError(
            f"--to {to!r} can be several things", hint="give more of its digits, or all of them"
        )
    if named or "-" in start:
        request.deployment_id = named[0].id if named else start
    elif COMMIT.fullmatch(start):
        request.commit_hash = start
    else:
        raise ConfigError(f"--to {to!r} is too short for a commit", hint="give 7 digits or more")
    return request


@click.command()
@application_argument
@click.option("--hold", "only_hold", is_flag=True, help="Where it is held and pinned: the hold.")
@click.option("--pin", "only_pin", is_flag=True, help="Where it is held and pinned: the pin.")
@click.option("--reason", default="", help="Shown with the deployment of a held commit.")
@click.option("--wait", is_flag=True, help="Wait until a held commit is deployed.")
@click.option("--timeout", "limit", type=DURATION, default="5m", show_default=True)
@dry_run_option
@color_option
@use_client
async def release(
    client: Client,
    *,
    name: str,
    app_id: str,
    only_hold: bool,
    only_pin: bool,
    reason: str,
    wait: bool,
    limit: timedelta,
    dry_run: bool,
) -> None:
    """Let an application go on after a failure or a roll-back.

    A commit that is held, because its deployment failed, is deployed again. An application that is
    pinned, because somebody rolled it back, gets its newest commit.
    """
    if only_hold and only_pin:
        raise click.UsageError("--hold and --pin exclude each other")
    found = await read_application(client, name, app_id)
    control = await read_control(client, found.id)
    held, pinned = describe_hold(control, 0), describe_pinned(control, 0)
    if not held and not pinned:
        raise StateError(f"the application {found.name!r} is neither held nor pinned")
    if held and pinned and not (only_hold or only_pin):
        raise click.UsageError(f"it is held ({held}) and pinned ({pinned}); give --hold or --pin")
    if dry_run:
        what = f"release the hold: {held}" if held and not only_pin else f"release what is {pinned}"
        say_dry_run(what)
        return
    if pinned and not only_hold:
        await _release_pin(client, found)
    else:
        await _release_hold(client, found, reason=reason, wait=wait, limit=limit)


async def _release_pin(client: Client, found: Application) -> None:
    request = pb.ReleasePinRequest(application_id=found.id)
    pin = (await call(client.applications.ReleasePin, request, metadata=idempotency_key())).pin
    echo(
        wrap_text(
            make_printable_line(
                f"released {found.name} from {pin.commit_hash[:7]}; its newest commit is deployed,"
                " if it is another one"
            )
        )
    )


async def _release_hold(
    client: Client, found: Application, *, reason: str, wait: bool, limit: timedelta
) -> None:
    request = pb.ReleaseHoldRequest(application_id=found.id, reason=reason)
    answer = await call(client.applications.ReleaseHold, request, metadata=idempotency_key())
    async with showing_progress() as progress:
        progress.update(f"asking the piped of {found.name} to deploy {answer.commit_hash[:7]}")
        await wait_command(client, answer.command_id, limit, "to deploy the held commit")
        progress.clear()
        echo(answer.deployment_id)
        if wait:
            await wait_deployed(client, answer.deployment_id, (), limit, progress)
