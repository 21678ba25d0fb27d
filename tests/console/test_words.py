# SPDX-License-Identifier: Apache-2.0
"""What the console tells people to type exists."""

import re
from collections.abc import Iterator
from typing import Final

import click
import pytest

from pipecd_controlplane.cli import cli as pipecd
from pipecd_pipectl.cli import cli as pipectl
from pipecd_piped.cli import cli as piped
from pipecd_test_support.console_site import ROOT

PROGRAMS: Final = {"pipectl": pipectl, "pipecd": pipecd, "piped": piped}
TYPED: Final = re.compile(r"""["'`>]((?:pipectl|pipecd|piped) [a-z-][^"'`<\n]*)""")


def list_commands() -> Iterator[tuple[str, str]]:
    """Yields the command lines that the sources name, each with its file."""
    source = ROOT / "console" / "src"
    for file in sorted(source.rglob("*.tsx")):
        for line in TYPED.findall(file.read_text()):
            yield file.relative_to(source).as_posix(), line


COMMANDS: Final = sorted(set(list_commands()))


@pytest.mark.parametrize(("file", "line"), COMMANDS, ids=str)
def test_a_command_that_the_console_names_exists(file: str, line: str) -> None:
    words = line.split()
    command: click.Command = PROGRAMS[words[0]]
    rest = words[1:]
    while isinstance(command, click.Group) and rest and not rest[0].startswith("-"):
        inner = command.get_command(click.Context(command), rest[0])
        assert inner is not None, f"{file}: {line}: there is no {rest[0]!r}"
        command, rest = inner, rest[1:]
    known = {"-h", "--help", "--version"} | {
        name for each in command.params for name in (*each.opts, *each.secondary_opts)
    }
    for word in rest:
        if word.startswith("-"):
            assert word.partition("=")[0] in known, f"{file}: {line}: there is no {word}"


def test_the_empty_pages_name_commands() -> None:
    """What looks for them finds them: without one, the test above would say nothing."""
    pages = {file for file, _ in COMMANDS}
    assert {"pages/Pipeds.tsx", "pages/Chains.tsx", "pages/settings/Windows.tsx"} <= pages
