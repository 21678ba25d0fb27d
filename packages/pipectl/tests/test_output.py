# SPDX-License-Identifier: Apache-2.0
"""What pipectl prints of texts that others wrote."""

import ast
import os
import pty
import re
import subprocess
import sys
from pathlib import Path
from typing import TypeGuard

import pytest

import pipecd_pipectl
from pipecd_pipectl.output import when

SOURCE = Path(pipecd_pipectl.__file__).parent
HOSTILE = "\x1b]0;owned\x07\x1b]52;c;ZXZpbA==\x07\x1b[2J\x9b2J\x1b[31mred"

PRINTING = """
import sys
from pipecd_wire.model import deployment_pb2, logblock_pb2
from pipecd_pipectl.commands.stagelogs import print_blocks
from pipecd_pipectl.output import echo, print_data, print_fields, print_json, rewrite_line
from pipecd_pipectl.tables import Column, print_table
hostile = sys.argv[1]
stage = deployment_pb2.PipelineStage(id="s", name="SCRIPT_RUN" + hostile, index=0)
print_blocks(stage, [logblock_pb2.LogBlock(log=hostile)])
print_table([Column(heading="A", cell=str)], [hostile], wide=True)
print_fields([("message", hostile)])
print_json(deployment_pb2.Deployment(summary=hostile))
print_data(deployment_pb2.Deployment(summary=hostile), "yaml")
echo(hostile.encode())
echo(hostile)
"""


def test_on_a_terminal_only_colours_of_logs_and_messages_act() -> None:
    shown = _run_in_terminal(sys.executable, "-c", PRINTING, HOSTILE)

    assert shown.count("ZXZpbA==") == 8, shown
    rest = re.sub(r"\x1b\[[0-9;]*m", "", shown)
    assert not re.search(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]", rest), repr(rest)


def test_everything_is_printed_through_one_function() -> None:
    """A command that prints by itself would pass on what others wrote."""
    around = [
        f"{path.relative_to(SOURCE)}:{node.lineno}"
        for path in SOURCE.rglob("*.py")
        if path.name != "output.py" and "skeleton" not in path.parts
        for node in ast.walk(ast.parse(path.read_text()))
        if _is_printing(node)
    ]

    assert not around


def _is_printing(node: ast.AST) -> TypeGuard[ast.Call]:
    if not isinstance(node, ast.Call):
        return False
    called = ast.unparse(node.func)
    return called in {"print", "click.echo", "click.secho", "click.echo_via_pager"} or bool(
        re.fullmatch(r"sys\.std(out|err)(\.buffer)?\.write(lines)?", called)
    )


def _run_in_terminal(*command: str) -> str:
    ours, theirs = pty.openpty()
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        shown = b""
        try:
            while block := os.read(ours, 65536):
                shown += block
        except OSError:
            pass  # how a terminal says that its last program has ended
        os.close(ours)
    text = shown.decode()
    assert process.returncode == 0, text
    return text


@pytest.mark.parametrize("seconds", [2**63 - 1, -(2**63), 253_402_300_800, 1_700_000_000_000_000])
def test_a_time_that_no_calendar_has_is_shown_as_its_number(seconds: int) -> None:
    assert when(seconds) == str(seconds)
