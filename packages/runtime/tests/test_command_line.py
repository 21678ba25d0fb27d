# SPDX-License-Identifier: Apache-2.0
"""Our click programs end with one line and an exit code; bugs keep their traceback."""

from collections.abc import Callable
from datetime import timedelta

import click
import pytest

from pipecd_runtime.command_line import DurationParam, run_program

Run = Callable[[Callable[[], object]], int]


class KnownError(Exception):
    """An error that the program can explain."""


def explain(error: Exception) -> tuple[str, int] | None:
    return (f"{error} (do this)", 4) if isinstance(error, KnownError) else None


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a program of one command, and return its exit code."""
    monkeypatch.setattr("sys.argv", ["program"])

    def run(body: Callable[[], object]) -> int:
        command = click.command("program")(body)
        with pytest.raises(SystemExit) as ended:
            run_program(command, explain=explain, name="program")
        assert isinstance(ended.value.code, int)
        return ended.value.code

    return run


def fail_with(error: BaseException) -> Callable[[], None]:
    def fail() -> None:
        raise error

    return fail


def test_a_command_that_returns_nothing_has_done_its_work(run: Run) -> None:
    assert run(lambda: None) == 0


def test_a_command_ends_with_the_code_that_it_returns(run: Run) -> None:
    assert run(lambda: 3) == 3


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (KnownError("no such thing"), 4, "error: no such thing (do this)\n"),
        (KnownError("\x1b]0;title\x07"), 4, "error: \\x1b]0;title\\x07 (do this)\n"),
        (click.ClickException("not like this"), 1, "Error: not like this\n"),
        (click.Abort(), 130, "interrupted\n"),
        (KeyboardInterrupt(), 130, "interrupted\n"),
        (click.exceptions.Exit(7), 7, ""),
    ],
)
def test_an_error_is_one_line_and_an_exit_code(
    run: Run, error: BaseException, code: int, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(fail_with(error)) == code

    assert capsys.readouterr().err.lstrip("\n") == text


def test_a_wrong_call_is_shown_with_the_usage(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(fail_with(click.UsageError("--data-dir is missing"))) == 2

    assert "--data-dir is missing" in capsys.readouterr().err


def test_a_bug_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["program"])
    command = click.command("program")(fail_with(ZeroDivisionError("a bug")))

    with pytest.raises(ZeroDivisionError, match="a bug"):
        run_program(command, explain=explain)


def parse(text: str) -> timedelta:
    return timedelta(seconds=float(text))


def test_a_duration_is_what_its_parser_reads() -> None:
    param = DurationParam(parse)

    assert param.convert("1.5", None, None) == timedelta(seconds=1.5)
    assert param.convert(timedelta(minutes=1), None, None) == timedelta(minutes=1)


def test_what_is_no_duration_is_refused_in_the_words_of_the_program() -> None:
    param = DurationParam(parse, format_error=lambda _: "e.g. 90s")

    with pytest.raises(click.BadParameter, match=r"e\.g\. 90s"):
        param.convert("soon", None, None)
