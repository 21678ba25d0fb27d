# SPDX-License-Identifier: Apache-2.0
"""Prints a line on the terminal, with its time."""

from datetime import datetime

import click

from pipecd_runtime.terminal import make_printable


def say(text: str, *, colour: str | None = None) -> None:
    """Prints one line with the time before it."""
    at = click.style(datetime.now().astimezone().strftime("%H:%M:%S"), dim=True)
    click.echo(f"{at} {make_printable(click.style(text, fg=colour))}")
