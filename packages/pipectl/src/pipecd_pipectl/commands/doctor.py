# SPDX-License-Identifier: Apache-2.0
"""`pipectl doctor`: what is wrong between this machine, the control plane and its agents."""

import asyncio
from pathlib import Path
from typing import Any, Final

import click

from pipecd_model.errors import PipecdError
from pipecd_pipectl.client import add_connection_options, open_client, take_connection
from pipecd_pipectl.connection import ControlPlaneConnection
from pipecd_pipectl.doctor.control_plane import check_control_plane
from pipecd_pipectl.doctor.here import check_git, check_piped_file
from pipecd_runtime.checkup import CheckRow, fail, has_failed
from pipecd_runtime.checkup_output import print_rows
from pipecd_runtime.reach import check_reach

_FILE: Final = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command()
@click.option(
    "--piped-config",
    type=_FILE,
    help="Check this configuration of a piped instead, on the machine where it shall run.",
)
@click.option(
    "--output", "-o", type=click.Choice(["text", "json"]), default="text", show_default=True
)
@add_connection_options
def doctor(*, piped_config: Path | None, output: str, **flags: Any) -> None:
    """Find out what is wrong, and what to do about it.

    Checks the way to the control plane (name, port, certificate, clock), the credentials, the
    agents with their plugins, and the repositories of the applications. Nothing is changed.
    Exits with 1 when a check fails; warnings do not count.

    \b
    Examples:
      pipectl doctor
      pipectl doctor --output json
      pipectl doctor --piped-config piped.yaml
    """
    if piped_config is not None:
        rows = check_piped_file(
            piped_config, insecure=flags["insecure"], cert_file=flags["cert_file"]
        )
    else:
        rows = _check_connection(flags)
    print_rows(rows, as_json=output == "json")
    if has_failed(rows):
        raise click.exceptions.Exit(1)


def _check_connection(flags: dict[str, Any]) -> list[CheckRow]:
    try:
        connection = take_connection(flags)
    except click.UsageError as error:
        return [fail("settings", error.format_message(), "pipectl doctor --help")]
    except PipecdError as error:
        return [fail("settings", str(error), error.hint or "pipectl doctor --help")]
    return [*asyncio.run(_check_all(connection)), check_git()]


async def _check_all(connection: ControlPlaneConnection) -> list[CheckRow]:
    tls = not connection.insecure
    rows = await check_reach(connection.address, tls=tls, roots=connection.roots)
    if has_failed(rows):
        return rows
    async with open_client(connection) as client:
        return [*rows, *await check_control_plane(client, tls=tls)]
