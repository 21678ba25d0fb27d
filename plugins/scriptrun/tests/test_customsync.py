# SPDX-License-Identifier: Apache-2.0
"""CUSTOM_SYNC: deploys with a script, and goes back with the one of the commit before."""

import json
from pathlib import Path
from typing import Any

import pytest
from pipecd_plugin_scriptrun.customsync import script_before
from pipecd_plugin_scriptrun.plugin import ScriptRun

from pipecd_sdk import Clock, Source, StageFailedError, StageStatus
from pipecd_sdk.testing import StageHarness


def harness(folder: Path) -> StageHarness[ScriptRun]:
    (folder / "new").mkdir()
    (folder / "old").mkdir()
    return StageHarness(
        ScriptRun(),
        clock=Clock(),
        directory=folder / "new",
        running_directory=folder / "old",
    )


def application(*stages: dict[str, Any]) -> bytes:
    return json.dumps({"kind": "Application", "spec": {"pipeline": {"stages": stages}}}).encode()


def custom(**options: object) -> dict[str, Any]:
    return {"name": "CUSTOM_SYNC", "with": options}


async def test_the_script_deploys_with_its_variables(tmp_path: Path) -> None:
    stage = harness(tmp_path)
    options = {"run": 'echo "$MODE" > made', "envs": {"MODE": "fast"}}

    result = await stage.run("CUSTOM_SYNC", options)

    assert result.status is StageStatus.SUCCESS
    assert (tmp_path / "new" / "made").read_text() == "fast\n"


def test_it_is_rolled_back_once_and_scripts_in_their_own_way(tmp_path: Path) -> None:
    planned = harness(tmp_path).plan(
        ("CUSTOM_SYNC", {"run": "true"}),
        ("SCRIPT_RUN", {"run": "true", "onRollback": "true"}),
    )

    assert [(each.name, each.index) for each in planned if each.rollback] == [
        ("SCRIPT_RUN_ROLLBACK", 1),
        ("CUSTOM_SYNC_ROLLBACK", 0),
    ]


@pytest.mark.parametrize(
    "options", [{}, {"run": " "}, {"run": "true", "envs": {"A=": "b"}}, {"run": "a\0b"}]
)
def test_what_cannot_run_is_refused(tmp_path: Path, options: dict[str, Any]) -> None:
    assert len(harness(tmp_path).faults(("CUSTOM_SYNC", options))) == 1


async def test_one_that_was_not_started_is_not_rolled_back(tmp_path: Path) -> None:
    stage = harness(tmp_path)

    result = await stage.run("CUSTOM_SYNC_ROLLBACK", {"run": "touch ran"})

    assert result.status is StageStatus.SUCCESS
    assert not (tmp_path / "new" / "ran").exists()


def test_the_script_of_what_ran_before_is_found_in_its_file() -> None:
    text = b"""
spec:
  pipeline:
    stages:
      - {name: WAIT, with: {duration: 1s}}
      - name: CUSTOM_SYNC
        with: {run: sam deploy, envs: {PROFILE: prod}}
"""
    script = script_before(Source(config=text))

    assert (script.run, script.env) == ("sam deploy", {"PROFILE": "prod"})


@pytest.mark.parametrize(
    "source",
    [
        None,
        Source(config=application()),
        Source(config=application({"name": "WAIT"})),
        Source(config=application(custom(run="a"), custom(run="b"))),
        Source(config=application(custom(run=""))),
        Source(config=b""),
    ],
)
def test_nothing_to_go_back_to_is_said(source: Source | None) -> None:
    with pytest.raises(StageFailedError):
        script_before(source)
