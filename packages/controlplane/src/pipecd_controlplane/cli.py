# SPDX-License-Identifier: Apache-2.0
"""The command `pipecd`: flags become settings, errors become a sentence and an exit code.

What a command needs is imported when it runs, so that `--help` and `version` are fast.
"""

import click

from pipecd_controlplane.serve.subcommands import LazyCommands
from pipecd_model.errors import explain
from pipecd_runtime.command_line import run_program, version_option


def _format_version() -> str:
    from importlib.metadata import version as version_of  # noqa: PLC0415 - slow to import

    return f"pipecd {version_of('pipecd-controlplane')}"


@click.group(
    cls=LazyCommands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@version_option(_format_version)
def cli() -> None:
    """PipeCD: GitOps progressive delivery for any platform.

    `pipecd server` is the control plane: it keeps what is known about every deployment, and tells
    agents what people ask for. The agent itself is `piped`; people use `pipectl`.
    """


@cli.command()
def version() -> None:
    """Print the version."""
    click.echo(_format_version())


@cli.command(context_settings={"ignore_unknown_options": True, "allow_extra_args": True})
def ops() -> None:
    """Nothing to run: on SQLite the server does the timed work itself."""
    click.echo("on SQLite the server runs the timed jobs itself; there is nothing to do here")


def main() -> None:
    """Runs `pipecd`, and exits with its exit code."""
    run_program(cli, explain=explain, name="pipecd")
