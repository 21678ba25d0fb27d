# SPDX-License-Identifier: Apache-2.0
"""The command `piped`: turns errors into a sentence and an exit code.

Nothing heavy is imported here, so that `--help` and `version` stay fast.
"""

from typing import Final

import click

from pipecd_model.errors import explain
from pipecd_piped.version import find_version
from pipecd_runtime.command_line import run_program, version_option
from pipecd_runtime.lazy_commands import CommandEntry, LazyGroup

COMMANDS: Final = (
    CommandEntry(
        "check",
        "pipecd_piped.check_command:check",
        "Check a configuration: the control plane, git, the plugins.",
    ),
    CommandEntry(
        "run",
        "pipecd_piped.run_command:run",
        "Run piped until it is told to stop (SIGTERM, Ctrl-C); told twice, it stops at once.",
    ),
)


def _format_version() -> str:
    return f"piped {find_version()}"


@click.group(
    cls=LazyGroup,
    entries=COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@version_option(_format_version)
def cli() -> None:
    """piped, the agent of PipeCD: watches git and runs deployments, through its plugins."""


@cli.command()
def version() -> None:
    """Print the version."""
    click.echo(_format_version())


def main() -> None:
    """Run the command line; the entry point of the executable `piped`."""
    run_program(cli, explain=explain, name="piped")
