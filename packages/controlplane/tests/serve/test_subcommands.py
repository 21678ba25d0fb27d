# SPDX-License-Identifier: Apache-2.0
"""The commands of `pipecd` that live in other modules, or in other distributions."""

from importlib.metadata import EntryPoint

import click
import pytest
from click.testing import CliRunner

from pipecd_controlplane.cli import cli
from pipecd_controlplane.serve.subcommands import GROUP, LazyCommands
from pipecd_model.errors import StateError
from pipecd_runtime.lazy_commands import LazyGroup
from pipecd_test_support.command_lines import HEAVY, find_differing_help, find_imports


@click.command
def greet() -> None:
    """Say hello."""
    click.echo("hello")


def test_a_command_of_an_installed_distribution_is_listed_and_runs() -> None:
    entry = EntryPoint(name="greet", value=f"{greet.callback.__module__}:greet", group=GROUP)
    commands = LazyCommands("pipecd", find=lambda: [entry])

    listed = CliRunner().invoke(commands, ["--help"])
    ran = CliRunner().invoke(commands, ["greet"])

    assert "Say hello." in listed.output
    assert ran.output == "hello\n"


def test_a_command_that_is_not_installed_says_what_to_install() -> None:
    commands = LazyCommands("pipecd", find=list)

    ran = CliRunner().invoke(commands, ["quickstart", "--check"])

    assert isinstance(ran.exception, StateError)
    assert str(ran.exception) == "`pipecd quickstart` is not installed"
    assert ran.exception.hint == "run `pip install pipecd-quickstart`"


def test_a_command_that_is_not_installed_is_listed_with_its_distribution() -> None:
    listed = CliRunner().invoke(LazyCommands("pipecd", find=list), ["--help"])

    assert "Not installed: it is in pipecd-quickstart." in listed.output


@pytest.mark.parametrize("name", ["backup", "move", "restore", "project", "quickstart"])
def test_every_command_of_this_installation_can_be_loaded(name: str) -> None:
    ran = CliRunner().invoke(LazyCommands("pipecd"), [name, "--help"])

    assert ran.exit_code == 0
    assert "Usage:" in ran.output


def test_an_unknown_command_is_refused() -> None:
    ran = CliRunner().invoke(LazyCommands("pipecd"), ["dance"])

    assert ran.exit_code == 2


def test_the_list_says_of_each_command_what_the_command_says() -> None:
    assert isinstance(cli, LazyGroup)
    assert find_differing_help(cli) == {}


def test_the_list_imports_no_command_and_nothing_heavy() -> None:
    imported = find_imports("pipecd_controlplane.cli", "--help")

    assert not HEAVY & imported
    assert not imported & {"pipecd_quickstart", "pipecd_controlplane.serve.server_command"}


def test_the_server_is_found_without_looking_for_other_distributions() -> None:
    def find() -> list[EntryPoint]:
        raise AssertionError("asked for the installed distributions")

    ran = CliRunner().invoke(LazyCommands("pipecd", find=find), ["server", "--help"])

    assert ran.exit_code == 0
