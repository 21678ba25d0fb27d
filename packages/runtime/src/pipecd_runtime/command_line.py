# SPDX-License-Identifier: Apache-2.0
"""What our click programs share: their end, and options that are lengths of time.

The one module here that needs more than the standard library: who imports it has click.
"""

import sys
from collections.abc import Callable
from datetime import timedelta
from typing import NoReturn

import click

from pipecd_runtime.terminal import make_printable

INTERRUPTED = 130
"""The exit code of a program that was ended with Ctrl-C."""

Explain = Callable[[Exception], tuple[str, int] | None]
"""Returns what is said of an error and the exit code, or None for a bug."""


def run_program(command: click.Command, *, explain: Explain, name: str | None = None) -> NoReturn:
    """Run a command line and exit: an error that can be explained is one line on stderr.

    An error that `explain` knows nothing of is a bug, and goes on with its traceback.
    """
    try:
        # Not standing alone, click returns the code that a command ended with.
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


class DurationParam(click.ParamType[timedelta]):
    """A length of time; how it is written is the parser's."""

    name = "duration"

    def __init__(
        self,
        parse: Callable[[str], timedelta],
        *,
        format_error: Callable[[ValueError], str] = str,
    ) -> None:
        """`parse` raises ValueError for a text that is none; `format_error` puts it in words."""
        self._parse = parse
        self._format_error = format_error

    def convert(
        self,
        value: str | timedelta,
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> timedelta:
        """Returns the length; fails with a usage error."""
        if isinstance(value, timedelta):
            return value
        try:
            return self._parse(value)
        except ValueError as error:
            self.fail(self._format_error(error), param, ctx)


def _say(text: str) -> None:
    click.echo(make_printable(text), err=True)
