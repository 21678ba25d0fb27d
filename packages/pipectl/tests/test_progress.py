# SPDX-License-Identifier: Apache-2.0
"""A wait is never silent: a line per change, and a sign of life in between."""

import asyncio
import sys

import pytest

from pipecd_pipectl.progress import SILENT_SECONDS, Progress, showing_progress
from pipecd_test_support.pipectl_site import run_in_terminal

ON_A_TERMINAL = """
from pipecd_pipectl.progress import Progress
now = 0.0
progress = Progress(rewrites=True, clock=lambda: now)
progress.update("stage 1 \x1b]0;owned\x07 runs" + " for long" * 20)
now = 3.0
progress.tick()
progress.clear()
"""


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_in_a_pipe_each_change_is_a_line_and_silence_is_short(
    capsys: pytest.CaptureFixture[str],
) -> None:
    clock = Clock()
    progress = Progress(rewrites=False, clock=clock)

    progress.update("stage 1 runs")
    progress.update("stage 1 runs")
    clock.now += SILENT_SECONDS - 1
    progress.tick()
    clock.now += 1
    progress.tick()
    progress.tick()
    progress.update("stage 2 runs")
    progress.clear()

    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.splitlines() == ["stage 1 runs", "stage 1 runs (for 30s)", "stage 2 runs"]


def test_on_a_terminal_one_line_is_rewritten() -> None:
    shown = run_in_terminal([sys.executable, "-c", ON_A_TERMINAL])

    parts = shown.raw.split("\r\x1b[K")
    assert len(parts) == 4
    assert all(len(part) < 80 for part in parts)
    assert parts[1].startswith("stage 1 \\x1b]0;owned\\x07 runs")
    assert parts[1].endswith("…")
    assert parts[-1] == ""


async def fail_while_showing() -> None:
    async with showing_progress():
        await asyncio.sleep(0)
        raise KeyError("x")


async def test_an_error_of_the_block_is_raised_as_it_is() -> None:
    with pytest.raises(KeyError):
        await fail_while_showing()
