# SPDX-License-Identifier: Apache-2.0
"""`pipectl version`: the same as `pipectl --version`, as upstream's command line spells it."""

import click

from pipecd_pipectl.output import echo
from pipecd_pipectl.version import format_version


@click.command()
def version() -> None:
    """Print the version."""
    echo(format_version())
