# SPDX-License-Identifier: Apache-2.0
"""Arguments of child processes: our own, and words from outside that must not be options."""

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, final

_ENDS_OF_OPTIONS: Final = frozenset({"--", "--end-of-options"})
_OPTION_NAME: Final = re.compile(r"--?[A-Za-z][A-Za-z0-9-]*=")
_KEY: Final = object()


class BadArgumentError(ValueError):
    """A word that a program must not get, e.g. because it would read it as an option."""


@final
class Argument:
    """One argument of a child process, made by `own`, `word` or `join_option`, which check it."""

    __slots__ = ("is_ours", "text")

    def __init__(self, text: str, *, is_ours: bool, key: object) -> None:
        if key is not _KEY:
            raise TypeError("an Argument is made by own(), word() or join_option()")
        if "\0" in text:
            raise BadArgumentError(f"{_shorten(text)} has a NUL character, which ends an argument")
        try:
            os.fsencode(text)
        except UnicodeEncodeError:
            raise BadArgumentError(f"{_shorten(text)} cannot be written as bytes") from None
        self.text = text
        self.is_ours = is_ours

    def __repr__(self) -> str:
        return f"{'own' if self.is_ours else 'word'}({self.text!r})"


def own(*texts: str) -> tuple[Argument, ...]:
    """Returns arguments that stand in our source as they are: names of commands, options."""
    return tuple(Argument(text, is_ours=True, key=_KEY) for text in texts)


def vouch_for(texts: Iterable[str]) -> tuple[Argument, ...]:
    """Returns arguments for which the caller vouches, options among them.

    For a command line that another author composes, e.g. that of a plugin. A test has the list of
    functions that may call this.
    """
    return own(*texts)


def word(text: str | Path) -> Argument:
    """Returns an argument that comes from outside: a request, a repository, a file, a path.

    It is refused when the command is started if it looks like an option and no `--` or
    `--end-of-options` stands before it.
    """
    return Argument(str(text), is_ours=False, key=_KEY)


def join_option(name: str, value: str | Path) -> Argument:
    """Returns an option of ours with a value from outside in one argument: `--git-dir=/x`."""
    if not _OPTION_NAME.fullmatch(name):
        raise BadArgumentError(f"{_shorten(name)} is not the name of an option that ends with '='")
    return Argument(f"{name}{value}", is_ours=True, key=_KEY)


def command_line(arguments: Sequence[Argument]) -> list[str]:
    """Returns the texts of a command. Raises BadArgumentError for a word that is an option."""
    if not arguments:
        raise BadArgumentError("there is no program to start")
    options_end = False
    for number, each in enumerate(arguments):
        if not isinstance(each, Argument):
            raise TypeError(f"{each!r} is not an Argument: use own(), word() or join_option()")
        if each.is_ours:
            options_end = options_end or each.text in _ENDS_OF_OPTIONS
        elif number and not options_end and each.text.startswith("-"):
            raise BadArgumentError(
                f"{_shorten(each.text)} begins with '-': {arguments[0].text!r} would read it as an"
                " option"
            )
    return [each.text for each in arguments]


def _shorten(text: str) -> str:
    return repr(text if len(text) <= 100 else f"{text[:100]}…")
