# SPDX-License-Identifier: Apache-2.0
"""`pipectl schema` prints what an editor needs."""

import json

from click.testing import CliRunner

from pipecd_pipectl.cli import cli


def test_a_kind_is_described() -> None:
    result = CliRunner().invoke(cli, ["schema", "piped"])

    schema = json.loads(result.stdout)
    assert schema["properties"]["kind"] == {"const": "Piped"}
    assert schema["$defs"]["PipedConfig"]["required"] == ["projectID", "pipedID", "apiAddress"]


def test_a_kind_that_there_is_not_gets_a_hint() -> None:
    result = CliRunner().invoke(cli, ["schema", "Aplication"])

    assert "there is no kind 'Aplication'" in str(result.exception)
    assert "did you mean 'Application'?" in getattr(result.exception, "hint", "")
