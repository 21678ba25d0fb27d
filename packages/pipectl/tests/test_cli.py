# SPDX-License-Identifier: Apache-2.0
"""The command line as a whole: its list of commands is complete, true and fast."""

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from pipecd_pipectl.cli import cli
from pipecd_pipectl.registry import COMMANDS
from pipecd_runtime.lazy_commands import LazyGroup
from pipecd_test_support.command_lines import HEAVY, find_differing_help, find_imports

PIPECTL = Path(sys.executable).parent / "pipectl"


def test_the_list_says_of_each_command_what_the_command_says() -> None:
    assert isinstance(cli, LazyGroup)
    assert find_differing_help(cli) == {}


def test_the_list_imports_no_command_and_nothing_heavy() -> None:
    imported = find_imports("pipecd_pipectl.cli", "--help")

    assert not HEAVY & imported
    assert not {each for each in imported if each.startswith("pipecd_pipectl.commands")}


def test_the_lines_of_the_list_fit_80_columns() -> None:
    # click leaves two of them free.
    shown = CliRunner().invoke(cli, ["--help"], terminal_width=78).output

    for entry in COMMANDS:
        assert f"  {entry.name.ljust(12)}  {entry.short_help}\n" in shown


def walk(command: click.Command, *names: str) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    yield names, command
    if isinstance(command, click.Group):
        ctx = click.Context(command)
        for name in command.list_commands(ctx):
            if (below := command.get_command(ctx, name)) is not None:
                yield from walk(below, *names, name)


def find_examples(command: click.Command) -> Iterator[list[str]]:
    text = f"{command.help or ''}\n{command.epilog or ''}".replace("\\\n", " ")
    _, found, examples = text.partition("Example")
    if found:
        for line in examples.splitlines():
            if line.strip().startswith("pipectl "):
                yield shlex.split(re.split(r" [|>] ", line)[0])[1:]


EXAMPLES = [
    pytest.param(words, id=" ".join(words)[:60])
    for _, command in walk(cli)
    for words in find_examples(command)
    if words[0].islower()
]


@pytest.mark.parametrize("words", EXAMPLES)
def test_an_example_in_the_help_names_commands_and_options_that_exist(words: list[str]) -> None:
    """Asked for help, a command looks at its options before it looks at anything else."""
    end = words.index("--") if "--" in words else len(words)

    done = CliRunner().invoke(cli, [*words[:end], "--help"])

    assert done.exit_code == 0, done.output
    assert "Usage: " in done.output


@pytest.mark.parametrize("names", [names for names, _ in walk(cli)], ids=" ".join)
def test_the_help_of_a_command_is_text(names: tuple[str, ...]) -> None:
    """A mark of ours for click that it does not take for one would be printed."""
    shown = CliRunner().invoke(cli, [*names, "--help"]).output

    assert all(letter.isprintable() or letter == "\n" for letter in shown)


def test_the_commands_of_the_list_have_examples() -> None:
    """A group shows its commands instead."""
    small = {"version", "logout", "whoami", "completion"}
    without = {
        names[0]
        for names, command in walk(cli)
        if len(names) == 1
        and not isinstance(command, click.Group)
        and not any(find_examples(command))
    }

    assert without <= small


@pytest.mark.parametrize("word", ["--version", "version"])
def test_the_version_is_printed(word: str) -> None:
    done = subprocess.run([PIPECTL, word], capture_output=True, text=True, timeout=60, check=True)

    assert done.stdout.startswith("pipectl 0.")
