# SPDX-License-Identifier: Apache-2.0
"""A group whose commands are imported when they run, and listed without."""

import sys
from pathlib import Path

import click
import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner

from pipecd_runtime.lazy_commands import CommandEntry, LazyGroup

MODULE = "late_commands_of_this_test"
ENTRIES = (
    CommandEntry("greet", f"{MODULE}:greet", "Say hello.", "Manners"),
    CommandEntry("part", f"{MODULE}:part", "Say goodbye.", "Manners"),
    CommandEntry("count", f"{MODULE}:count", "Count to three.", "Numbers"),
)


@pytest.fixture
def group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LazyGroup:
    source = "import click\n" + "".join(
        f"@click.command()\ndef {entry.name}():\n"
        f"    '''{entry.short_help} And more.'''\n    click.echo('{entry.name}')\n"
        for entry in ENTRIES
    )
    (tmp_path / f"{MODULE}.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, MODULE, raising=False)
    made = LazyGroup("program", entries=ENTRIES)
    made.add_command(click.Command("version", help="Print the version."))
    return made


def test_the_list_has_sections_and_imports_nothing(group: LazyGroup) -> None:
    shown = CliRunner().invoke(group, ["--help"]).output

    assert shown.endswith(
        "Manners:\n"
        "  greet    Say hello.\n"
        "  part     Say goodbye.\n"
        "\n"
        "Numbers:\n"
        "  count    Count to three.\n"
        "  version  Print the version.\n"
    )
    assert MODULE not in sys.modules


def test_a_command_is_imported_when_it_runs(group: LazyGroup) -> None:
    assert CliRunner().invoke(group, ["part"]).output == "part\n"
    assert MODULE in sys.modules


def test_a_command_without_a_text_in_the_registry_tells_its_own(group: LazyGroup) -> None:
    asked = LazyGroup("program", entries=[entry._replace(short_help="") for entry in ENTRIES])

    assert "Say goodbye." in CliRunner().invoke(asked, ["--help"]).output


def test_a_word_that_is_nearly_a_command_is_answered_with_it(group: LazyGroup) -> None:
    """Among the commands that were never imported."""
    done = CliRunner().invoke(group, ["great"])

    assert done.exit_code == 2
    assert "No such command 'great'. Did you mean 'greet'?" in done.output
    assert MODULE not in sys.modules


def test_an_option_that_does_not_exist_is_still_an_option(group: LazyGroup) -> None:
    assert "No such option" in CliRunner().invoke(group, ["--nothing"]).output


def test_completion_knows_the_names_and_imports_nothing(group: LazyGroup) -> None:
    complete = ShellComplete(group, {}, "program", "_PROGRAM_COMPLETE")

    found = complete.get_completions([], "")
    begun = complete.get_completions([], "co")

    assert [(each.value, each.help) for each in begun] == [("count", "Count to three.")]
    assert [each.value for each in found] == ["greet", "part", "count", "version"]
    assert [each.value for each in complete.get_completions([], "--")] == ["--help"]
    assert MODULE not in sys.modules
