# SPDX-License-Identifier: Apache-2.0
"""The rows of a checkup, as people and programs get them."""

import json

import click
import pytest
from click.testing import CliRunner

from pipecd_runtime.checkup import CheckRow, fail, has_failed, ok, read_row, warn
from pipecd_runtime.checkup_output import print_rows

ROWS = [
    ok("git", "version 2.39.5"),
    warn("certificate", "ends soon: 3 days left", "renew it soon"),
    fail(
        "agent dev",
        "offline; it was last started a long, long time ago, and nobody has missed it since then",
        "pipectl piped disable --piped-id 0123456789abcdef0123456789abcdef0123456789abcdef",
    ),
]


def show(rows: list[CheckRow], *, as_json: bool = False) -> str:
    @click.command()
    def command() -> None:
        print_rows(rows, as_json=as_json)

    done = CliRunner(env={"COLUMNS": "80"}).invoke(command)
    assert done.exit_code == 0
    return done.output


def test_the_lines_fit_the_terminal_and_commands_are_not_broken() -> None:
    shown = show(ROWS)

    assert shown.startswith("ok    git          version 2.39.5\nwarn  certificate  ends soon")
    assert "                   → renew it soon\n" in shown
    assert "--piped-id\n" in shown or "--piped-id 0123456789abcdef0123456789abcdef" in shown
    assert "0123456789abcdef0123456789abcdef0123456789abcdef" in shown
    assert max(len(line) for line in shown.splitlines()) <= 80
    assert shown.endswith("\n1 ok, 1 warning, 1 failure\n")


def test_programs_get_all_of_it_and_can_read_it_back() -> None:
    told = json.loads(show(ROWS, as_json=True))

    assert told["ok"] is False
    assert [read_row(each) for each in told["checks"]] == ROWS


def test_warnings_are_no_failure() -> None:
    assert not has_failed(ROWS[:2])
    assert has_failed(ROWS)
    assert json.loads(show(ROWS[:2], as_json=True))["ok"] is True


def test_a_text_of_others_cannot_move_the_cursor() -> None:
    shown = show([fail("agent \x1b[2J", "a\nfail  b\x1b]0;title\x07", "do \x1b[31mthis")])

    assert "\x1b[2J" not in shown
    assert "\x1b]" not in shown
    assert "\nfail  b" not in shown


def test_a_very_long_subject_has_a_line_of_its_own() -> None:
    shown = show([ok("x" * 70, "fine"), ok("git", "fine")])

    assert f"ok    {'x' * 70}\n" in shown
    assert max(len(line) for line in shown.splitlines()) <= 80


@pytest.mark.parametrize("value", [{}, {"check": "a"}, {"check": 1, "verdict": "odd"}, [], 3])
def test_what_is_no_row_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match=r"row|Verdict"):
        read_row(value)  # type: ignore[arg-type]
