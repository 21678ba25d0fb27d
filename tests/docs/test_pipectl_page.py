# SPDX-License-Identifier: Apache-2.0
"""Every command of docs/pipectl.md is one that pipectl takes, and what it shows fits a terminal."""

import re
import shlex
from pathlib import Path

import click
import pytest

from pipecd_pipectl.cli import cli

PAGE = Path(__file__).parents[2] / "docs" / "pipectl.md"
BLOCKS = re.findall(r"```(sh|console)\n(.*?)```", PAGE.read_text(), re.DOTALL)
COMMANDS = [
    line.removeprefix("$ ")
    for kind, block in BLOCKS
    for line in block.splitlines()
    if line.startswith("$ " if kind == "console" else "pipectl ")
]


def test_the_page_has_commands() -> None:
    assert len(COMMANDS) > 25


@pytest.mark.parametrize("line", COMMANDS)
def test_a_command_of_the_page_is_taken(line: str) -> None:
    program, *arguments = shlex.split(line, comments=True)
    command: click.Command = cli
    name, path = program, [program]

    while isinstance(command, click.Group):
        ctx = click.Context(command, info_name=name)
        name = arguments.pop(0)
        found = command.get_command(ctx, name)
        assert found is not None, line
        command = found
        path.append(name)
    command.make_context(" ".join(path), arguments)  # raises for a wrong option or value


def test_what_is_shown_fits_eighty_columns() -> None:
    shown = [line for kind, block in BLOCKS if kind == "console" for line in block.splitlines()]

    assert [line for line in shown if len(line) > 80] == []
