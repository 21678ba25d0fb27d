# SPDX-License-Identifier: Apache-2.0
"""`pipectl hook …`: where git hosts say that something was pushed."""

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import click

from pipecd_model.errors import StateError
from pipecd_pipectl.client import Client, idempotency_key, use_client
from pipecd_pipectl.lookup import find_hook
from pipecd_pipectl.options import DURATION, dry_run_option, say_dry_run
from pipecd_pipectl.output import (
    echo,
    is_wide,
    list_option,
    output_option,
    print_data,
    wants_data,
    when,
    wrap_text,
)
from pipecd_pipectl.secretfile import check_writable, write_secret
from pipecd_pipectl.tables import Column, print_table, shorten_ids
from pipecd_pipectl.times import format_age
from pipecd_runtime.terminal import make_printable_line
from pipecd_wire.pipecd.api import repositories_pb2 as pb
from pipecd_wire.rpc import call

HOSTS: Final = {
    "github": pb.Hook.GITHUB,
    "gitlab": pb.Hook.GITLAB,
    "gitea": pb.Hook.GITEA,
    "forgejo": pb.Hook.GITEA,
    "bitbucket": pb.Hook.BITBUCKET,
    "bitbucket-server": pb.Hook.BITBUCKET_SERVER,
    "generic": pb.Hook.GENERIC,
}
NAMES: Final = {number: name for name, number in HOSTS.items() if name != "forgejo"}

WHERE: Final = {
    pb.Hook.GITHUB: "Settings > Webhooks > Add webhook; content type application/json, the push"
    " event",
    pb.Hook.GITLAB: "Settings > Webhooks > Add new webhook; push events; the secret is the secret"
    " token",
    pb.Hook.GITEA: "Settings > Webhooks > Add webhook > Gitea or Forgejo; POST, application/json,"
    " push events",
    pb.Hook.BITBUCKET: "Repository settings > Webhooks > Add webhook; repository push",
    pb.Hook.BITBUCKET_SERVER: "Repository settings > Webhooks > Create webhook; repository push",
    pb.Hook.GENERIC: "sign each request with the secret: docs/guides/webhooks.md shows how",
}
"""What to do at the host."""

_ANY_HOSTS: Final = frozenset({"0.0.0.0", "::"})  # noqa: S104 - compared with, not bound to

secret_file_option = click.option(
    "--secret-file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the secret to this new file, for its user alone, rather than print it.",
)


@click.group()
def hook() -> None:
    """Hooks: let git hosts say at once that something was pushed.

    Without hooks agents poll their repositories. Commands take a hook by its name, its id, or the
    start of its id.
    """


@hook.command()
@click.argument("name")
@click.option("--host", required=True, type=click.Choice(list(HOSTS)), help="Who sends.")
@click.option(
    "--repository", default="", metavar="URL", help="Only pushes to this repository; else all."
)
@secret_file_option
@dry_run_option
@output_option
@use_client
async def add(
    client: Client,
    *,
    name: str,
    host: str,
    repository: str,
    secret_file: Path | None,
    dry_run: bool,
    output: str,
) -> None:
    """Make a hook, and print the URL and the secret for the git host.

    The secret is shown only once.
    """
    if secret_file is not None:
        check_writable(secret_file)
    if dry_run:
        say_dry_run(f"make a hook {name!r} for {host}")
        return
    made = await call(
        client.repositories.AddHook,
        pb.AddHookRequest(name=name, host=HOSTS[host], repository_url=repository),
        metadata=idempotency_key(),
    )
    _print_secret(client, made, secret_file, output)


@hook.command("list")
@list_option
@use_client
async def list_hooks(client: Client, *, output: str) -> None:
    """List the project's hooks, and when each was used last."""
    answer = await call(client.repositories.ListHooks, pb.ListHooksRequest())
    if wants_data(output):
        print_data(answer, output)
    elif output == "name":
        for each in answer.hooks:
            echo(make_printable_line(each.name))
    elif answer.hooks:
        _print_hooks(client, answer.hooks, wide=is_wide(output))
    else:
        echo("no hook; make one: pipectl hook add NAME --host github", err=True)


@hook.command()
@click.argument("name", metavar="HOOK")
@click.option(
    "--overlap",
    type=DURATION,
    help="How long the secret before is taken, e.g. 2h; a day by default, 0s not at all.",
)
@secret_file_option
@dry_run_option
@output_option
@use_client
async def rotate(
    client: Client,
    *,
    name: str,
    overlap: timedelta | None,
    secret_file: Path | None,
    dry_run: bool,
    output: str,
) -> None:
    """Give a hook a new secret, and print it.

    The one before is taken until the overlap is over, so that the git host can be changed in peace.
    """
    if secret_file is not None:
        check_writable(secret_file)
    found = await find_hook(client, name)
    if dry_run:
        say_dry_run(f"give the hook {found.name} ({found.id}) a new secret")
        return
    request = pb.RotateHookRequest(hook_id=found.id)
    if overlap is not None:
        request.overlap.FromTimedelta(overlap)
    made = await call(client.repositories.RotateHook, request, metadata=idempotency_key())
    _print_secret(client, made, secret_file, output)


@hook.command()
@click.argument("name", metavar="HOOK")
@dry_run_option
@use_client
async def revoke(client: Client, *, name: str, dry_run: bool) -> None:
    """Refuse the secret before the last rotation from now on."""
    found = await find_hook(client, name)
    if not found.older_secret_until:
        raise StateError(
            f"the hook {make_printable_line(found.name)!r} has one secret",
            hint="make a new one first: pipectl hook rotate",
        )
    if dry_run:
        say_dry_run(f"refuse the older secret of the hook {found.name} ({found.id})")
        return
    request = pb.RevokeOlderHookSecretRequest(hook_id=found.id)
    await call(client.repositories.RevokeOlderHookSecret, request, metadata=idempotency_key())
    echo(f"revoked the older secret of the hook {make_printable_line(found.name)} ({found.id})")


@hook.command()
@click.argument("name", metavar="HOOK")
@dry_run_option
@use_client
async def delete(client: Client, *, name: str, dry_run: bool) -> None:
    """Delete a hook: what its host sends is refused from now on."""
    found = await find_hook(client, name)
    if dry_run:
        say_dry_run(f"delete the hook {found.name} ({found.id})")
        return
    request = pb.DeleteHookRequest(hook_id=found.id)
    await call(client.repositories.DeleteHook, request, metadata=idempotency_key())
    echo(f"deleted the hook {make_printable_line(found.name)} ({found.id})")


def _print_secret(
    client: Client,
    made: pb.AddHookResponse | pb.RotateHookResponse,
    secret_file: Path | None,
    output: str,
) -> None:
    """Prints what belongs into the settings of the git host."""
    hook, url = made.hook, _make_url(client, made.url, made.hook)
    if secret_file is not None:
        hint = f"make another: pipectl hook rotate {hook.id}"
        write_secret(secret_file, made.secret, lost_hint=hint)
    shown = {"secret": made.secret} if secret_file is None else {"secret_file": str(secret_file)}
    if wants_data(output):
        told = {"id": hook.id, "name": hook.name, "host": NAMES.get(hook.host, ""), "url": url}
        print_data({**told, **shown, "older_secret_until": hook.older_secret_until}, output)
        return
    # Not wrapped: both are copied.
    echo(f"URL:    {make_printable_line(url)}")
    echo(f"Secret: {make_printable_line(next(iter(shown.values())))}")
    if hook.older_secret_until:
        echo(f"The secret before is taken until {when(hook.older_secret_until)}.")
    echo(wrap_text(f"At the git host: {WHERE.get(hook.host, '')}."))
    if secret_file is None:
        echo("The secret is not shown again.", err=True)


def _make_url(client: Client, url: str, hook: pb.Hook) -> str:
    """Returns the address for the git host.

    A control plane that was not told its own address may know only that it listens everywhere.
    """
    parts = urlsplit(url)
    if (parts.hostname or "") not in _ANY_HOSTS:
        return url
    return f"{parts.scheme}://{client.connection.address}{hook.path}"


def _print_hooks(client: Client, hooks: Sequence[pb.Hook], *, wide: bool) -> None:
    short = {} if wide else shorten_ids(each.id for each in hooks)
    columns: list[Column[pb.Hook]] = [
        Column(heading="NAME", cell=lambda it: it.name),
        Column(heading="HOST", cell=lambda it: NAMES.get(it.host, str(it.host)), fixed=True),
        Column(heading="LAST DELIVERY", cell=lambda it: format_age(it.last_accepted_at) or "never"),
        Column(heading="LAST REFUSED", cell=lambda it: format_age(it.last_refused_at) or "never"),
        Column(heading="OLDER SECRET", cell=_describe_older),
        Column(heading="ID", cell=lambda it: short.get(it.id, it.id), fixed=True),
        Column(heading="REPOSITORY", cell=lambda it: it.repository_url or "all", wide=True),
        Column(heading="PATH", cell=lambda it: it.path, wide=True),
        Column(heading="MADE BY", cell=lambda it: it.creator, wide=True),
        Column(heading="MADE", cell=lambda it: when(it.created_at), wide=True),
    ]
    print_table(columns, hooks, wide=wide)


def _describe_older(hook: pb.Hook) -> str:
    if not hook.older_secret_until:
        return "none"
    used = format_age(hook.older_secret_used_at)
    return f"until {when(hook.older_secret_until)}, {'used ' + used if used else 'not used'}"
