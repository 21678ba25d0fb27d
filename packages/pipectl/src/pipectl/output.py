# SPDX-License-Identifier: Apache-2.0
"""What a command prints: a table for people, the Go implementation's JSON for programs.

Everything that pipectl prints passes `echo`, which escapes it: most of it comes from others.
"""

import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import click
from google.protobuf.message import Message

from pipecd_model import gojson
from pipecd_runtime.terminal import escape_for_json, make_printable, make_printable_line

output_option = click.option(
    "--output",
    "-o",
    type=click.Choice(["auto", "table", "json"]),
    default="auto",
    help="auto: a table on a terminal, else one line of JSON.",
)


def wants_json(choice: str) -> bool:
    return choice == "json" or (choice == "auto" and not sys.stdout.isatty())


def echo(text: str | bytes = "", *, nl: bool = True, err: bool = False) -> None:
    """Prints a text without control sequences other than colours.

    Bytes, which are the content of a file, are written to a pipe unchanged.
    """
    if isinstance(text, bytes):
        if not sys.stdout.isatty():
            click.echo(text, nl=nl, err=err)
            return
        text = text.decode(errors="backslashreplace")
    click.echo(make_printable(text), nl=nl, err=err)


def print_json(value: Message | dict[str, Any]) -> None:
    """Prints a value as the Go implementation writes it, in one line."""
    text = gojson.dumps(gojson.to_value(value) if isinstance(value, Message) else value)
    click.echo(escape_for_json(text) if sys.stdout.isatty() else text)


def print_table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Prints a table; each column is as wide as its widest cell."""
    shown = [headings, *([make_printable_line(cell) for cell in row] for row in rows)]
    widths = [max(len(row[i]) for row in shown) for i in range(len(headings))]
    for row in shown:
        line = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        echo(line.rstrip())


def print_fields(fields: Sequence[tuple[str, str]]) -> None:
    """Prints a `name  value` line for each field; empty values are left out."""
    shown = [(name, value) for name, value in fields if value]
    width = max((len(name) for name, _ in shown), default=0)
    for name, value in shown:
        echo(f"{name.ljust(width)}  {make_printable_line(value)}")


def when(seconds: int) -> str:
    """Returns a Unix time as text in the local time zone; empty for 0.

    One out of range is returned as its number: a wrong report must not break the list.
    """
    if not seconds:
        return ""
    try:
        moment = datetime.fromtimestamp(seconds, UTC).astimezone()
    except (OverflowError, OSError, ValueError):
        return str(seconds)
    return moment.strftime("%Y-%m-%d %H:%M:%S")
