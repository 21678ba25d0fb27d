# SPDX-License-Identifier: Apache-2.0
"""Completion with TAB: the scripts complete what a person has begun to type."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from pipecd_pipectl.cli import cli
from pipecd_pipectl.completing.asking import Thing, choose, read_limit

FOLDER = Path(sys.executable).parent
ASK_BASH = """
source <("$1" completion bash) || exit 1
complete -p pipectl > /dev/null || exit 1
COMP_LINE="pipectl ${*:2}"
COMP_POINT=${#COMP_LINE}
_pipectl_completion "$1"
printf '%s\\n' "${COMPREPLY[@]}"
"""


def complete_in_bash(*words: str) -> list[str]:
    done = subprocess.run(
        ["bash", "--norc", "-c", ASK_BASH, "bash", str(FOLDER / "pipectl"), *words],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        env={**os.environ, "PATH": f"{FOLDER}:{os.environ['PATH']}"},
    )
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["li"], ["lint"]),
        (["comp"], ["completion"]),
        (["completion", ""], ["bash", "zsh", "fish"]),
        (["plugin", "b"], ["build"]),
        (["lint", "--pi"], ["--piped"]),
        (["nothing-of-ours"], []),
    ],
)
def test_bash_completes_commands_options_and_values(words: list[str], found: list[str]) -> None:
    assert complete_in_bash(*words) == found


@pytest.mark.parametrize(
    ("shell", "parts"),
    [
        ("bash", ["_PIPECTL_COMPLETE=bash_complete", "pipectl"]),
        ("zsh", ["#compdef pipectl", "_PIPECTL_COMPLETE=zsh_complete"]),
        ("fish", ["_PIPECTL_COMPLETE=fish_complete", "complete --no-files --command pipectl"]),
    ],
)
def test_each_shell_has_its_script(shell: str, parts: list[str]) -> None:
    done = CliRunner().invoke(cli, ["completion", shell])

    assert done.exit_code == 0
    for part in parts:
        assert part in done.output


def test_an_unknown_shell_is_refused_with_those_that_are_known() -> None:
    done = CliRunner().invoke(cli, ["completion", "cmd"])

    assert done.exit_code == 2
    assert "'cmd' is not one of 'bash', 'zsh', 'fish'" in done.output


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("", 0.5), ("2", 2), ("0", 0), ("1e9", 60), ("-1", 0.5), ("nan", 0.5), ("soon", 0.5)],
)
def test_the_limit_can_be_another_one_but_not_any(text: str, seconds: float) -> None:
    assert read_limit(text) == seconds


def offer(*things: Thing, typed: str = "") -> dict[str, str | None]:
    return {each.value: each.help for each in choose(things, typed)}


def test_a_name_is_offered_and_the_id_where_it_was_begun() -> None:
    hello = Thing("hello", "4a4f54c4-7914", "example:hello")

    assert offer(hello) == {"hello": "example:hello"}
    assert offer(hello, typed="he") == {"hello": "example:hello"}
    assert offer(hello, typed="4a") == {"4a4f54c4-7914": "hello"}
    assert offer(hello, typed="x") == {}


def test_things_of_one_name_are_offered_by_their_ids() -> None:
    assert offer(Thing("twin", "1a"), Thing("twin", "2b")) == {"1a": "twin", "2b": "twin"}


@pytest.mark.parametrize(
    "name",
    [
        "$(touch x)",
        "`x`",
        "a b",
        "a;b",
        "--help",
        "-x",
        "*",
        "a,b",
        "~x",
        "a\nb",
        "a\\b",
        "a'b",
        "",
    ],
)
def test_a_name_that_a_shell_could_obey_is_never_offered(name: str) -> None:
    assert set(offer(Thing(name, "4a4f54c4-7914"))) <= {"4a4f54c4", "4a4f54c4-7914"}
    assert offer(Thing(name, "")) == {}
    assert offer(Thing(name, name)) == {}


def test_what_stands_beside_a_name_is_one_short_clean_line() -> None:
    (shown,) = offer(Thing("a", "1", "x\ny\x1b]0;title\x07" + "z" * 100)).values()

    assert shown is not None
    assert shown.startswith(r"x y\x1b]0;title\x07zzz")
    assert len(shown) == 60
