# SPDX-License-Identifier: Apache-2.0
"""The text that the shell reads, from the commands that people wrote. Pure."""

from collections.abc import Iterator, Sequence


def shell_text(commands: Sequence[str]) -> str:
    """Returns one script of all commands, in one shell; it ends after the first that fails."""
    if len(commands) == 1:
        return commands[0] + "\n"
    return "".join(
        f"{command}\n{_check(number, len(commands))}"
        for number, command in enumerate(commands, start=1)
    )


def _check(number: int, total: int) -> str:
    """Returns shell text that exits with the exit code of the command before, if it failed.

    `case` looks at `$?` without changing it. The empty line in front ends a command whose last
    character is a backslash.
    """
    note = f"pipecd: command {number} of {total} failed with exit code"
    return f'\ncase $? in 0) ;; *) set -- $?; echo "{note} $1" >&2; exit $1 ;; esac\n'


def format_commands(commands: Sequence[str]) -> Iterator[str]:
    """Yields the lines of the commands as the stage log shows them."""
    for command in commands:
        for line in command.rstrip("\n").split("\n"):
            yield f"  {line}"
