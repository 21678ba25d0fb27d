# SPDX-License-Identifier: Apache-2.0
"""What plugins and install scripts find in their environment: the operator's, nothing of ours."""

import asyncio
from pathlib import Path

import pytest

from pipecd_piped.plugins.command import INHERITED
from pipecd_piped.plugins.tools import ToolsFolder
from pipecd_piped.programs.command import Command
from pipecd_piped.programs.errors import ProgramError
from pipecd_piped.programs.process import running_process

LIMIT = 60.0


@pytest.fixture(autouse=True)
def _variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OF_THE_OPERATOR", "1")
    monkeypatch.setenv("PIPECD_PLUGIN_CACHE", "/cache")
    monkeypatch.setenv("PIPECD_PLUGIN_TOKEN", "of-a-piped-above-us")
    monkeypatch.setenv("PIPECD_SOME_SECRET", "x")


async def test_a_plugin_has_the_operators_variables_and_those_made_for_it() -> None:
    command = Command(
        arguments=("/usr/bin/env",),
        environment={"PIPECD_PLUGIN_TOKEN": "its own"},
        inherited=INHERITED,
    )

    async with (
        asyncio.timeout(LIMIT),
        running_process(command, lambda _: None) as process,
    ):
        said = (await process.output.read()).decode().splitlines()

    assert {"OF_THE_OPERATOR=1", "PIPECD_PLUGIN_CACHE=/cache", "PIPECD_PLUGIN_TOKEN=its own"} <= {
        *said
    }
    assert not [line for line in said if line.startswith("PIPECD_SOME_SECRET")]


async def test_a_plugin_that_cannot_be_started_is_a_sentence() -> None:
    for arguments in (("/no/such/program",), ("/bin/echo", "a\0b")):
        with pytest.raises(ProgramError, match="cannot start"):
            async with running_process(Command(arguments=arguments), lambda _: None):
                pass


async def test_an_install_script_has_nothing_of_ours(tmp_path: Path) -> None:
    path = await ToolsFolder(tmp_path).install("kubectl", "1", "/usr/bin/env > {{ .OutPath }}")

    found = path.read_text()
    assert "OF_THE_OPERATOR=1" in found
    assert "PIPECD_" not in found


async def test_an_install_script_that_begins_with_a_dash_is_a_script(tmp_path: Path) -> None:
    """And not an option of the shell."""
    with pytest.raises(Exception, match="exited with code 127"):
        await ToolsFolder(tmp_path).install("kubectl", "1", "-x")
