# SPDX-License-Identifier: Apache-2.0
"""What a command prints: a table for people, the Go implementation's JSON for programs."""

import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import click
from google.protobuf.message import Message

from pipecd_model import gojson

output_option = click.option(
    "--output",
    "-o",
    type=click.Choice(["auto", "table", "json"]),
    default="auto",
    help="auto: a table on a terminal, else one line of JSON.",
)


def wants_json(choice: str) -> bool:
    return choice == "json" or (choice == "auto" and not sys.stdout.isatty())


def print_json(value: Message | dict[str, Any]) -> None:
    click.echo(gojson.dumps(gojson.to_value(value) if isinstance(value, Message) else value))


def print_table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Columns as wide as their widest cell."""
    widths = [max(len(row[i]) for row in [headings, *rows]) for i in range(len(headings))]
    for row in [headings, *rows]:
        line = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        click.echo(line.rstrip())


def print_fields(fields: Sequence[tuple[str, str]]) -> None:
    """One `name  value` line each; empty values are left out."""
    shown = [(name, value) for name, value in fields if value]
    width = max((len(name) for name, _ in shown), default=0)
    for name, value in shown:
        click.echo(f"{name.ljust(width)}  {value}")


def when(seconds: int) -> str:
    """A Unix time in the reader's own zone; nothing for 0."""
    if not seconds:
        return ""
    return datetime.fromtimestamp(seconds, UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S")
