# SPDX-License-Identifier: Apache-2.0
"""A quickstart builds its console beside everything else, and says what became of it."""

import sys
from pathlib import Path

import pytest

from pipecd_test_support.program_terminal import ProgramTerminal

BIN = Path(sys.executable).parent


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("program", "said"),
    [
        ("print('done')", "the console is ready: http://127.0.0.1:"),
        ("raise SystemExit('no npm here')", "the console could not be built; see "),
    ],
)
def test_the_end_of_a_build_is_told_after_the_first_deployment(
    tmp_path: Path, program: str, said: str
) -> None:
    folder, builder = tmp_path / "data", tmp_path / "build.py"
    builder.write_text(program)
    command: list[str | Path] = [
        *(BIN / "pipecd", "quickstart", "--data-dir", folder),
        *("--build-console", builder),
    ]
    with ProgramTerminal(command, cwd=tmp_path) as terminal:
        terminal.wait_for(said)
        assert "waits for approval" in terminal.shown.partition(said)[0]
        terminal.interrupt()
        assert terminal.ended() == 0, terminal.shown
    assert (folder / "console-build.log").read_text().strip() in {"done", "no npm here"}


@pytest.mark.timeout(300)
def test_a_build_ends_with_the_quickstart(tmp_path: Path) -> None:
    builder, began = tmp_path / "build.py", tmp_path / "began"
    builder.write_text(
        "import os, pathlib, signal\n"
        f"pathlib.Path({str(began)!r}).write_text(str(os.getpid()))\n"
        "signal.pause()\n"
    )
    command: list[str | Path] = [
        *(BIN / "pipecd", "quickstart", "--data-dir", tmp_path / "data"),
        *("--build-console", builder),
    ]
    with ProgramTerminal(command, cwd=tmp_path) as terminal:
        terminal.wait_for("Another link: press l.")
        terminal.interrupt()
        assert terminal.ended() == 0, terminal.shown
    assert began.exists()
    assert not Path("/proc", began.read_text()).exists()
