# SPDX-License-Identifier: Apache-2.0
"""`pipectl api-key …`: keys for programs, made by people who are signed in."""

import time
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Final

import click

from pipecd_pipectl.client import Client, use_client
from pipecd_pipectl.completions import complete_api_keys
from pipecd_pipectl.connection import require_session
from pipecd_pipectl.lookup import find_api_key
from pipecd_pipectl.options import DURATION, dry_run_option, say_dry_run
from pipecd_pipectl.output import (
    echo,
    is_wide,
    list_option,
    output_option,
    print_data,
    wants_data,
    when,
)
from pipecd_pipectl.secretfile import check_writable, write_secret
from pipecd_pipectl.tables import Column, print_table, shorten_ids
from pipecd_pipectl.times import format_age
from pipecd_wire.model import apikey_pb2
from pipecd_wire.pipecd.api import access_pb2
from pipecd_wire.rpc import call
from pipecd_wire.webservice import service_pb2 as web

Item = access_pb2.ListApiKeysResponse.Item

ROLES: Final = {
    "read-only": apikey_pb2.APIKey.READ_ONLY,
    "read-write": apikey_pb2.APIKey.READ_WRITE,
}
WHAT: Final = "API keys are managed by people: a key cannot make another"


@click.group("api-key")
def api_key() -> None:
    """API keys for programs: make them, list them, disable them."""


@api_key.command()
@click.argument("name")
@click.option("--role", type=click.Choice(list(ROLES)), default="read-only", show_default=True)
@click.option("--expires-in", type=DURATION, help="How long it is good, e.g. 720h; else for ever.")
@click.option(
    "--key-file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the key to this new file, for its user alone, rather than print it.",
)
@output_option
@use_client
async def create(
    client: Client,
    *,
    name: str,
    role: str,
    expires_in: timedelta | None,
    key_file: Path | None,
    output: str,
) -> None:
    """Make an API key. It is shown once: only its hash is kept."""
    require_session(client.connection, WHAT)
    if key_file is not None:
        check_writable(key_file)
    ends = 0 if expires_in is None else int(time.time() + expires_in.total_seconds())
    request = access_pb2.GenerateApiKeyRequest(name=name, role=ROLES[role], expires_at=ends)
    key = (await call(client.api_keys.GenerateApiKey, request)).key
    key_id = key.partition(".")[0]
    if key_file is not None:
        write_secret(key_file, key, lost_hint=f"disable it: pipectl api-key disable {key_id}")
    if wants_data(output):
        shown = {"key": key} if key_file is None else {"keyFile": str(key_file)}
        print_data({"id": key_id, "name": name, **shown, "expiresAt": ends}, output)
    elif key_file is None:
        echo("The key is not shown again:", err=True)
        echo(key)
    else:
        echo(f"wrote the API key {name} ({key_id}) to {key_file}")


@api_key.command("list")
@list_option
@use_client
async def list_api_keys(client: Client, *, output: str) -> None:
    """List the project's API keys that are not disabled."""
    require_session(client.connection, WHAT)
    answer = await call(client.api_keys.ListApiKeys, access_pb2.ListApiKeysRequest())
    if wants_data(output):
        print_data(answer, output)
    elif output == "name":
        for item in answer.keys:
            echo(item.key.id)  # names need not be different
    elif answer.keys:
        _print_keys(answer.keys, wide=is_wide(output))
    else:
        echo("no API key; make one: pipectl api-key create NAME", err=True)


def _print_keys(items: Sequence[Item], *, wide: bool) -> None:
    short = {} if wide else shorten_ids(each.key.id for each in items)
    roles = {number: name for name, number in ROLES.items()}
    columns: list[Column[Item]] = [
        Column(heading="NAME", cell=lambda it: it.key.name),
        Column(
            heading="ROLE",
            cell=lambda it: roles.get(it.key.role, str(it.key.role)),
            fixed=True,
        ),
        Column(heading="LAST USED", cell=lambda it: format_age(it.key.last_used_at) or "never"),
        Column(heading="ENDS", cell=lambda it: when(it.expires_at) or "never"),
        Column(heading="ID", cell=lambda it: short.get(it.key.id, it.key.id), fixed=True),
        Column(heading="MADE BY", cell=lambda it: it.key.creator, wide=True),
        Column(heading="MADE", cell=lambda it: when(it.key.created_at), wide=True),
    ]
    print_table(columns, sorted(items, key=lambda it: (it.key.name, it.key.id)), wide=wide)


@api_key.command()
@click.argument("key", shell_complete=complete_api_keys)
@dry_run_option
@use_client
async def disable(client: Client, *, key: str, dry_run: bool) -> None:
    """Disable an API key for good, by name or id: it is refused from the next call on."""
    require_session(client.connection, WHAT)
    found = await find_api_key(client, key)
    if dry_run:
        say_dry_run(f"disable the API key {found.name} ({found.id}), for good")
        return
    await call(client.web.DisableAPIKey, web.DisableAPIKeyRequest(id=found.id))
    echo(f"disabled the API key {found.name} ({found.id})")
