# SPDX-License-Identifier: Apache-2.0
"""Each plugin of ours keeps every promise that `pipectl plugin test` asks for."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
PLUGINS = sorted(file.parent.name for file in ROOT.glob("plugins/*/pyproject.toml"))


@pytest.mark.parametrize("agent", ["ours", "go"])
@pytest.mark.parametrize("name", PLUGINS)
def test_our_plugins_pass_the_kit(name: str, agent: str) -> None:
    profile = ROOT / "plugins" / name / "conformance.yaml"
    way = ["--as-go-agent"] if agent == "go" else []
    command = ["plugin", "test", *way, "--output", "json", "--profile", profile, "--"]

    done = subprocess.run(
        [BIN / "pipectl", *command, BIN / f"pipecd-plugin-{name}"],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )

    assert done.stderr == ""
    cases = json.loads(done.stdout)["cases"]
    assert [each for each in cases if each["outcome"] == "BROKEN"] == []
    assert sum(each["outcome"] == "HOLDS" for each in cases) >= 15
    assert done.returncode == 0
