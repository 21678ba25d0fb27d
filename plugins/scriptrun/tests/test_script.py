# SPDX-License-Identifier: Apache-2.0
"""The text for the shell, given to a real one."""

import subprocess
from pathlib import Path

import pytest
from pipecd_plugin_scriptrun.script import format_commands, shell_text


def run(commands: list[str], folder: Path) -> "subprocess.CompletedProcess[str]":
    file = folder / "script.sh"
    file.write_text(shell_text(commands))
    return subprocess.run(
        ["/bin/sh", str(file)], cwd=folder, capture_output=True, text=True, timeout=30, check=False
    )


def test_a_list_stops_at_the_first_command_that_fails(tmp_path: Path) -> None:
    ended = run(["echo one", "sh -c 'exit 7'", "echo three"], tmp_path)

    assert ended.returncode == 7
    assert ended.stdout == "one\n"
    assert ended.stderr == "pipecd: command 2 of 3 failed with exit code 7\n"


def test_the_commands_of_a_list_share_one_shell(tmp_path: Path) -> None:
    ended = run(["mkdir inner && cd inner", "NAME=shop", "echo $NAME $(basename $PWD)"], tmp_path)

    assert ended.returncode == 0
    assert ended.stdout == "shop inner\n"


@pytest.mark.parametrize(
    ("commands", "output"),
    [
        (["cat <<EOF\nin a document\nEOF", "echo after"], "in a document\nafter\n"),
        (["echo a # a comment", "echo b"], "a\nb\n"),
        (["echo a \\", "echo b"], "a\nb\n"),
        (["if true; then\n  echo yes\nfi", "echo b"], "yes\nb\n"),
        (["f() { echo from f; }", "f"], "from f\n"),
        (["echo $?", "echo b"], "0\nb\n"),
    ],
    ids=["heredoc", "comment", "backslash", "compound", "function", "status"],
)
def test_every_kind_of_command_can_stand_in_a_list(
    commands: list[str], output: str, tmp_path: Path
) -> None:
    ended = run(commands, tmp_path)

    assert (ended.returncode, ended.stdout, ended.stderr) == (0, output, "")


def test_an_exit_in_a_list_is_the_end(tmp_path: Path) -> None:
    ended = run(["echo one", "exit 0", "echo three"], tmp_path)

    assert (ended.returncode, ended.stdout) == (0, "one\n")


def test_a_single_text_is_the_shells_own_affair(tmp_path: Path) -> None:
    """The guide's form is a plain script: only its last command decides."""
    ended = run(["false\necho still here"], tmp_path)

    assert (ended.returncode, ended.stdout) == (0, "still here\n")


def test_the_log_shows_the_commands_line_by_line() -> None:
    assert list(format_commands(["echo a\necho b\n", "echo c"])) == [
        "  echo a",
        "  echo b",
        "  echo c",
    ]
