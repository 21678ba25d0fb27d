# SPDX-License-Identifier: Apache-2.0
"""What is suggested fits the state that the quickstart is in, and a terminal."""

import shlex
import subprocess
from pathlib import Path

import pytest

from pipecd_quickstart import example
from pipecd_quickstart.folder import QuickstartFolder
from pipecd_quickstart.suggestions import (
    APPROVE,
    BREAK,
    DRIFT,
    LOOK,
    MEND,
    PUBLISH,
    choose_suggestions,
    enter_repository,
    find_pipectl,
    format_suggestions,
)


@pytest.fixture
def folder(tmp_path: Path) -> QuickstartFolder:
    made = QuickstartFolder(tmp_path / "it's here")
    example.create(made)
    return made


def test_approval_comes_first_while_a_deployment_waits_for_it(folder: QuickstartFolder) -> None:
    assert choose_suggestions(folder, is_waiting=True)[0] is PUBLISH
    assert choose_suggestions(folder, is_waiting=False)[0] is LOOK


def test_what_is_broken_is_mended_before_it_is_broken_again(folder: QuickstartFolder) -> None:
    example.write(folder, "hello/publish.sh", "echo published\nexit 1\n")

    shown = choose_suggestions(folder, is_waiting=False)

    assert shown[0] is MEND
    assert shown.index(BREAK) < len(shown) - 1
    assert shown[shown.index(BREAK) + 1] is MEND


def test_an_older_repository_is_not_asked_for_what_it_lacks(folder: QuickstartFolder) -> None:
    (folder.repository / "website" / "app.pipecd.yaml").unlink()

    assert DRIFT not in choose_suggestions(folder, is_waiting=True)


def test_each_commit_to_hello_is_approved_before_the_next_suggestion(
    folder: QuickstartFolder,
) -> None:
    """One that nobody approves holds up all that follow."""
    for suggestion in choose_suggestions(folder, is_waiting=True):
        if any("git commit" in command for command in suggestion.commands):
            assert suggestion.commands[-1] == APPROVE or "cancel" in suggestion.commands[-1]


def test_the_text_fits_a_terminal_and_quotes_the_folder(folder: QuickstartFolder) -> None:
    suggestions = choose_suggestions(folder, is_waiting=True)

    lines = format_suggestions(folder, suggestions, again="Press h").splitlines()

    [enter] = [line for line in lines if line.startswith("  cd ")]
    assert shlex.split(enter) == ["cd", str(folder.repository)]
    assert all(len(line) <= 80 for line in lines if line != enter)
    assert lines[lines.index(enter) + 1] == '  export PATH="$PWD/..:$PATH"'
    assert "Press h" in lines


def test_pipectl_is_found_also_in_a_folder_that_cannot_be_in_the_path(tmp_path: Path) -> None:
    folder = QuickstartFolder(tmp_path / "it's: here")
    folder.repository.mkdir(parents=True)
    program = folder.repository.parent / "pipectl"
    program.write_text('#!/bin/sh\necho "found $1"\n')
    program.chmod(0o755)

    for shell in ("sh", "bash"):
        shown = subprocess.run(
            [shell, "-c", f"{enter_repository(folder)}\n{find_pipectl(folder)}\npipectl it"],
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        ).stdout
        assert shown == "found it\n"
