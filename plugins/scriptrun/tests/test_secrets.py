# SPDX-License-Identifier: Apache-2.0
"""Secrets in commands and variables: put there exactly, or not at all."""

from pathlib import Path

import pytest
from pipecd_plugin_scriptrun.plugin import ScriptRun

from pipecd_sdk import Clock, StageStatus
from pipecd_sdk.testing import StageHarness


def names_in(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.iterdir())


def harness(folder: Path, **secrets: str) -> StageHarness[ScriptRun]:
    return StageHarness(ScriptRun(), clock=Clock(), directory=folder, secrets=secrets)


@pytest.mark.parametrize(
    "value", ["two words", "$(touch x)", "a;b", "it's", "a\nb", "", "`id`", "*"]
)
async def test_a_value_that_a_shell_would_read_is_refused_in_a_command(
    tmp_path: Path, value: str
) -> None:
    stage = harness(tmp_path, login=value)

    result = await stage.run("SCRIPT_RUN", {"run": "echo {{ .encryptedSecrets.login }} > got"})

    assert result.status is StageStatus.FAILURE
    assert "'login' holds characters that mean something to a shell" in result.reason
    assert "set a variable under env" in result.reason
    assert names_in(tmp_path) == []
    assert await stage.deployment_metadata.get("started-0") is None


@pytest.mark.parametrize(
    "value",
    ["two words", "$(touch x)", "a;b", "it's", 'say "a"\nb\n', "", "`touch x`", "*", "ö\U0001f511"],
)
async def test_a_variable_takes_any_value(tmp_path: Path, value: str) -> None:
    stage = harness(tmp_path, login=value)
    options = {
        "run": 'printf %s "$LOGIN" > got',
        "env": {"LOGIN": "<{{ .encryptedSecrets.login }}>"},
    }

    result = await stage.run("SCRIPT_RUN", options)

    assert result.status is StageStatus.SUCCESS
    assert (tmp_path / "got").read_text() == f"<{value}>"
    assert names_in(tmp_path) == ["got"]


async def test_the_log_shows_the_placeholder(tmp_path: Path) -> None:
    stage = harness(tmp_path, login="hunter22")

    await stage.run("SCRIPT_RUN", {"runs": ["true", "test {{ .encryptedSecrets.login }}"]})

    assert "  test {{ .encryptedSecrets.login }}" in [line.text for line in stage.log]
    assert "hunter22" not in stage.text


async def test_nothing_else_in_a_command_is_a_template(tmp_path: Path) -> None:
    stage = harness(tmp_path, login="hunter22")
    command = (
        "echo '{{.Id}} {{ .encryptedSecrets }} {{ range .items }}' {{ .encryptedSecrets.login }}"
    )

    result = await stage.run("SCRIPT_RUN", {"run": f"{command} > got"})

    assert result.status is StageStatus.FAILURE  # a table of all secrets cannot be printed
    assert "cannot do more with a secret than name it" in result.reason

    result = await stage.run("SCRIPT_RUN", {"run": "echo '{{.Id}} {{ range .items }}' > got"})
    assert result.status is StageStatus.SUCCESS
    assert (tmp_path / "got").read_text() == "{{.Id}} {{ range .items }}\n"


async def test_a_rollback_knows_them_too(tmp_path: Path) -> None:
    stage = harness(tmp_path, login="hunter22")
    options = {"run": "true", "onRollback": "echo {{ .encryptedSecrets.login }} > got"}
    await stage.run("SCRIPT_RUN", options)

    result = await stage.run("SCRIPT_RUN_ROLLBACK", options)

    assert result.status is StageStatus.SUCCESS
    assert (tmp_path / "got").read_text() == "hunter22\n"


async def test_no_command_line_holds_a_value(tmp_path: Path) -> None:
    """The script itself looks at all of them; what it looks for is in a file."""
    stage = harness(tmp_path, login="hunter22")
    (tmp_path / "pattern").write_text("hunter22")
    options = {
        "run": ": {{ .encryptedSecrets.login }}\n"
        "grep -laFf pattern /proc/[0-9]*/cmdline > found 2> /dev/null; true",
        "env": {"LOGIN": "{{ .encryptedSecrets.login }}"},
    }

    await stage.run("SCRIPT_RUN", options)

    assert (tmp_path / "found").read_text() == ""
