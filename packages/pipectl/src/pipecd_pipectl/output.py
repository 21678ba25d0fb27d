# SPDX-License-Identifier: Apache-2.0
"""What a command prints: for people on a terminal, the Go implementation's JSON for programs.

Everything that pipectl prints passes `echo`, which escapes it: most of it comes from others. It is
also where colours are decided: on a terminal, unless NO_COLOR or `--color` says otherwise.
"""

import os
import shutil
import sys
import textwrap
from collections.abc import Callable, Sequence
from typing import Any, Final, TextIO, TypeVar

import click
from google.protobuf.message import Message

from pipecd_pipectl.data import dump_json, dump_yaml, to_data
from pipecd_pipectl.times import when
from pipecd_runtime.terminal import escape_for_json, make_printable, make_printable_line

__all__ = [
    "DATA_FORMATS",
    "color_option",
    "echo",
    "is_wide",
    "list_option",
    "logs_option",
    "output_option",
    "print_data",
    "print_fields",
    "print_json",
    "print_json_line",
    "rewrite_line",
    "wants_data",
    "wants_json",
    "when",
    "wrap_text",
]

F = TypeVar("F", bound=Callable[..., Any])

DATA_FORMATS: Final = frozenset({"json", "yaml"})
CLEAR_LINE: Final = "\r\x1b[K"


def color_option(command: F) -> F:
    """Adds `--color` to a command."""
    return click.option(
        "--color",
        type=click.Choice(["auto", "always", "never"]),
        default="auto",
        expose_value=False,
        callback=_set_color,
        help="auto: on a terminal, and not when NO_COLOR is set.",
    )(command)


def _set_color(ctx: click.Context, _param: click.Parameter, value: str) -> None:
    ctx.color = {"always": True, "never": False}.get(value)


def _make_output_option(formats: Sequence[str], text: str) -> Callable[[F], F]:
    def add(command: F) -> F:
        option = click.option(
            "--output", "-o", type=click.Choice(["auto", *formats]), default="auto", help=text
        )
        return option(color_option(command))

    return add


output_option = _make_output_option(
    ["table", "json", "yaml"], "auto: text on a terminal, else JSON."
)
"""For a command that shows one thing, or what it has done."""

list_option = _make_output_option(
    ["table", "wide", "json", "yaml", "name"],
    "auto: a table on a terminal, else JSON; wide: nothing is left out; name: for scripts.",
)
"""For a command that shows things which other commands take by name."""

logs_option = _make_output_option(["table", "json", "yaml"], "auto and table: text.")
"""For a command whose output is text unless data is asked for."""


def wants_json(choice: str) -> bool:
    return choice == "json" or (choice == "auto" and not sys.stdout.isatty())


def wants_data(choice: str) -> bool:
    """Returns whether a program reads what is printed: JSON or YAML."""
    return choice == "yaml" or wants_json(choice)


def is_wide(choice: str) -> bool:
    """Returns whether a table shows everything."""
    return choice == "wide"


def echo(text: str | bytes = "", *, nl: bool = True, err: bool = False) -> None:
    """Prints a text without control sequences other than colours.

    Bytes, which are the content of a file, are written to a pipe unchanged.
    """
    if isinstance(text, bytes):
        if not sys.stdout.isatty():
            click.echo(text, nl=nl, err=err)
            return
        text = text.decode(errors="backslashreplace")
    stream = sys.stderr if err else sys.stdout
    click.echo(_encodable(make_printable(text), stream), nl=nl, err=err, color=_color())


def rewrite_line(text: str) -> None:
    """Writes a line on stderr over the one that it wrote before; an empty text clears it.

    The line is cut to the width of the terminal: one that is wrapped could not be written over.
    """
    width = os.get_terminal_size(sys.stderr.fileno()).columns or 80
    shown = make_printable_line(text)
    if len(shown) >= width:
        shown = shown[: max(0, width - 2)] + "…"
    click.echo(CLEAR_LINE + _encodable(shown, sys.stderr), nl=False, err=True, color=True)


def _color() -> bool | None:
    """Returns whether colours are printed; None: where a terminal is."""
    ctx = click.get_current_context(silent=True)
    asked = ctx.color if ctx is not None else None
    if asked is None and (os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"):
        return False
    return asked


def _encodable(text: str, stream: TextIO) -> str:
    """Returns the text with what the terminal's encoding lacks replaced."""
    encoding = stream.encoding or "utf-8"
    return text.encode(encoding, "replace").decode(encoding)


def print_json(value: Message | dict[str, Any]) -> None:
    """Prints a value as indented JSON, with the fields of the Go implementation."""
    text = dump_json(to_data(value) if isinstance(value, Message) else value)
    click.echo(escape_for_json(text) if sys.stdout.isatty() else text)


def print_json_line(line: str) -> None:
    """Prints one line of JSON."""
    click.echo(escape_for_json(line) if sys.stdout.isatty() else line)


def print_data(value: Message | dict[str, Any], choice: str) -> None:
    """Prints a value as YAML, or as JSON for every other choice."""
    if choice != "yaml":
        print_json(value)
        return
    click.echo(dump_yaml(to_data(value) if isinstance(value, Message) else value), nl=False)


def print_fields(fields: Sequence[tuple[str, str]], *, indent: str = "") -> None:
    """Prints a `name  value` line for each field; empty values are left out."""
    shown = [(name, value) for name, value in fields if value]
    width = max((len(name) for name, _ in shown), default=0)
    for name, value in shown:
        first = f"{indent}{name.ljust(width)}  "
        echo(wrap_text(make_printable_line(value), first=first))


def wrap_text(text: str, *, first: str = "") -> str:
    """Returns a text in lines that fit the terminal, indented as its beginning `first` is.

    Where no terminal is, it is one line.
    """
    if not sys.stdout.isatty():
        return first + text
    width = max(40, shutil.get_terminal_size().columns)
    lines = textwrap.wrap(
        text,
        width,
        initial_indent=first,
        subsequent_indent=" " * len(first),
        break_on_hyphens=False,
    )
    return "\n".join(lines) or first
