# SPDX-License-Identifier: Apache-2.0
"""What our click programs share: exit codes and error messages, `--version`, durations.

This module, `lazy_commands` and `checkup_output` need click beside the standard library.
"""

import sys
from collections.abc import Callable
from datetime import timedelta
from typing import Any, NoReturn, TypeVar

import click

from pipecd_runtime.terminal import make_printable

_Decorated = TypeVar("_Decorated", bound=Callable[..., Any])

INTERRUPTED = 130
"""The exit code of a program that was ended with Ctrl-C."""

Explain = Callable[[Exception], tuple[str, int] | None]
"""Returns the message for an error and the exit code, or None for a bug."""


def run_program(command: click.Command, *, explain: Explain, name: str | None = None) -> NoReturn:
    """Runs a command line and exits; prints an error that `explain` knows as one line on stderr.

    An error for which `explain` returns None is a bug, and is raised with its traceback.
    """
    try:
        # With standalone_mode off, click returns the exit code of the command.
        code = command.main(prog_name=name, standalone_mode=False)
    except click.exceptions.Exit as ended:
        sys.exit(ended.exit_code)
    except click.UsageError as wrong:
        wrong.show()  # with the usage; the words in it are the caller's own
        sys.exit(wrong.exit_code)
    except click.ClickException as wrong:
        _say(f"Error: {wrong.format_message()}")
        sys.exit(wrong.exit_code)
    except click.Abort:
        _say("interrupted")
        sys.exit(INTERRUPTED)
    except Exception as error:
        explained = explain(error)
        if explained is None:
            raise
        message, exit_code = explained
        _say(f"error: {message}")
        sys.exit(exit_code)
    sys.exit(code if isinstance(code, int) else 0)


def version_option(format_version: Callable[[], str]) -> Callable[[_Decorated], _Decorated]:
    """Returns the decorator that adds `--version`; the text is made only when it is asked for."""

    def show(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
        if wanted and not ctx.resilient_parsing:
            click.echo(format_version())
            ctx.exit()

    return click.option(
        "--version",
        is_flag=True,
        expose_value=False,
        is_eager=True,
        callback=show,
        help="Print the version and exit.",
    )


class DurationParam(click.ParamType[timedelta]):
    """A click parameter for a duration, in the form that `parse` reads."""

    name = "duration"

    def __init__(
        self,
        parse: Callable[[str], timedelta],
        *,
        format_error: Callable[[ValueError], str] = str,
    ) -> None:
        """`parse` raises ValueError for a bad text; `format_error` makes it a message."""
        self._parse = parse
        self._format_error = format_error

    def convert(
        self,
        value: str | timedelta,
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> timedelta:
        """Returns the duration; fails with a usage error."""
        if isinstance(value, timedelta):
            return value
        try:
            return self._parse(value)
        except ValueError as error:
            self.fail(self._format_error(error), param, ctx)


def _say(text: str) -> None:
    click.echo(make_printable(text), err=True)
