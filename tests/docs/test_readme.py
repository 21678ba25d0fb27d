# SPDX-License-Identifier: Apache-2.0
"""The first screen of the README, typed: two terminals of 80 columns, as a newcomer has them."""

import os
import shutil
import sys
from pathlib import Path

import pytest

from pipecd_test_support import guides
from pipecd_test_support.program_terminal import ProgramTerminal
from pipecd_test_support.typed_terminal import COLUMNS, TypedTerminal

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
README = (ROOT / "README.md").read_text()
TRY_IT = README.partition("## Try it\n")[2].partition("\n## ")[0]
APPROVE = "pipectl deployment approve hello"
WAITS = f"waits for approval: {APPROVE}"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout in which everything is installed already."""
    for name in ("packages", "plugins", "tools", "tests"):
        (tmp_path / name).symlink_to(ROOT / name)
    for name in ("Makefile", "requirements.lock", "requirements-dev.lock"):
        shutil.copy(ROOT / name, tmp_path)
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv" / "bin").symlink_to(BIN)
    (tmp_path / ".venv" / ".runs").touch()
    return tmp_path


@pytest.mark.timeout(200)
def test_what_the_readme_says_to_type_works_and_shows_what_it_says(checkout: Path) -> None:
    start, *commands = [block.text for block in guides.read_blocks(TRY_IT) if block.kind == "sh"]
    lines = "".join(commands).splitlines()

    with ProgramTerminal(start.split(), cwd=checkout) as first:
        first.wait_for(WAITS)  # the first screen that the README shows
        with TypedTerminal(checkout, os.environ) as second:
            for number, line in enumerate(lines):
                if line == APPROVE:  # a person waits until it is asked for
                    first.wait_for(WAITS, times=lines[: number + 1].count(APPROVE))
                [done] = second.type_block(line)
                assert done.code == 0, f"{line}\n{done.screen}"
        first.wait_for("hello: FAILURE")
        first.interrupt()
        first.wait_for("stopped; start again and everything goes on")
        first.ended()
        shown = first.shown.splitlines()

    for block in guides.read_blocks(TRY_IT):
        if block.kind == "text":
            compare(block.text, shown)


def compare(said: str, shown: list[str]) -> None:
    """Every line of the README was shown, in this order; others may be between."""
    real = iter([guides.normalise(line) for line in shown])
    for line in said.splitlines():
        wanted = guides.normalise(line)
        assert any(each == wanted for each in real), f"{line!r} was not shown:\n" + "\n".join(shown)


def test_no_line_of_a_block_is_wider_than_a_terminal() -> None:
    wide = [
        line
        for block in guides.read_blocks(README)
        for line in block.text.splitlines()
        if len(line) > COLUMNS
    ]
    assert wide == []
