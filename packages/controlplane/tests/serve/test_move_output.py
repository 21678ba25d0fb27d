# SPDX-License-Identifier: Apache-2.0
"""What `pipecd move` shows: few lines where nobody watches, one that moves at a terminal."""

import pytest

from pipecd_controlplane.serve.move_output import SILENT_SECONDS, MoveOutput, describe_sizes
from pipecd_controlplane.store.move.tables import TableSize

SIZES = {"project": TableSize(rows=1, bytes=10), "event": TableSize(rows=3, bytes=5_000_000)}


class HandClock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.seconds = 100.0

    def __call__(self) -> float:
        return self.seconds


def test_without_a_terminal_each_table_is_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    clock = HandClock()
    output = MoveOutput(rewrites=False, clock=clock)

    output.begin("copying", SIZES)
    output.advance("project", 1)
    output.advance("event", 1)
    clock.seconds += SILENT_SECONDS  # a large table shows life
    output.advance("event", 1)
    output.advance("event", 1)
    output.end()

    assert capsys.readouterr().err.splitlines() == [
        "copying 4 rows, 4.8 MiB",
        "  copying project: 1 of 1 rows, 25 % of all",
        "  copying event: 2 of 3 rows, 75 % of all",
        "  copying event: 3 of 3 rows, 100 % of all",
        "copying took 10.0 s, 0 rows/s",
    ]


def test_at_a_terminal_one_line_is_rewritten(capsys: pytest.CaptureFixture[str]) -> None:
    clock = HandClock()
    output = MoveOutput(rewrites=True, clock=clock)

    output.begin("copying", SIZES)
    output.advance("project", 1)  # too soon to be seen
    clock.seconds += 1
    output.advance("event", 2)
    output.say("event '\x1b[2Jx' differs in data")
    output.end()

    said = capsys.readouterr().err
    assert "project" not in said
    assert "\r\x1b[Kcopying event: 2 of 3 rows, 75 % of all\r\x1b[K" in said
    assert "event '\\x1b[2Jx' differs in data\n" in said


def test_few_bytes_are_counted() -> None:
    assert describe_sizes({"project": SIZES["project"]}) == "1 rows, 10 bytes"
