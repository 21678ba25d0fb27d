# SPDX-License-Identifier: Apache-2.0
"""The entry point: gathers the commands and turns failures into a sentence and an exit code."""

from importlib.metadata import version as distribution_version

import click

from pipecd_model.errors import add_hint, explain
from pipecd_runtime.command_line import run_program
from pipecd_wire.rpc import CallError
from pipectl.commands.application import application
from pipectl.commands.deployment import deployment
from pipectl.commands.encrypt import encrypt
from pipectl.commands.keygen import keygen
from pipectl.commands.lint import lint
from pipectl.commands.migrate import migrate
from pipectl.commands.piped import piped
from pipectl.commands.planpreview import plan_preview
from pipectl.commands.plugin import plugin
from pipectl.commands.render import render
from pipectl.commands.schema import schema
from pipectl.commands.simulate import simulate
from pipectl.output import echo

# What a script can tell apart: 2 the call is wrong, 4 not found or not allowed, 5 try again later.
EXIT_CODES = {
    "INVALID_ARGUMENT": 2,
    "NOT_FOUND": 4,
    "PERMISSION_DENIED": 4,
    "UNAUTHENTICATED": 4,
    "UNAVAILABLE": 5,
    "DEADLINE_EXCEEDED": 5,
}

HINTS = {
    "UNAUTHENTICATED": "check --api-key or --api-key-file",
    "UNAVAILABLE": "check --address; a server without TLS needs --insecure",
    "UNIMPLEMENTED": "this control plane does not offer that",
}


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
def cli() -> None:
    """Work with a PipeCD control plane from the command line.

    What talks to it takes --address and --api-key or --api-key-file. They can also come from the
    environment: PIPECTL_ADDRESS, PIPECTL_API_KEY, PIPECTL_API_KEY_FILE, PIPECTL_INSECURE.

    Exit codes: 0 done, 1 failed, 2 wrong call, 3 timed out, 4 not found or not allowed,
    5 not reachable.
    """


@cli.command()
def version() -> None:
    """Print the version."""
    echo(f"pipectl {distribution_version('pipectl')}")


cli.add_command(application)
cli.add_command(deployment)
cli.add_command(encrypt)
cli.add_command(keygen)
cli.add_command(piped)
cli.add_command(plan_preview)
cli.add_command(plugin)
cli.add_command(lint)
cli.add_command(simulate)
cli.add_command(schema)
cli.add_command(migrate)
cli.add_command(render)


def main() -> None:
    """Runs `pipectl`, and exits with its exit code."""
    run_program(cli, explain=_explain)


def _explain(error: Exception) -> tuple[str, int] | None:
    if isinstance(error, CallError):
        message = add_hint(error, HINTS.get(error.status, ""))
        return message, EXIT_CODES.get(error.status, 1)
    return explain(error)
