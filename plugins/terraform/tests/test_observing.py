# SPDX-License-Identifier: Apache-2.0
"""What is there, whether it is what git says, and what a branch would change."""

import json
import os
import shutil
from datetime import timedelta
from pathlib import Path

import pytest

from pipecd_sdk import Health, ResourceGoneError, StageFailedError, SyncStatus, replace
from pipecd_sdk.testing import FakeClock
from pipecd_test_support.terraform_lab import TerraformLab, data

MODULE = 'module "inner" {\n  source = "./inner"\n}\n'


def record_environments(lab: TerraformLab, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Puts a program before the real one that writes its environment to a file.

    Not when it is asked for its version, which has nothing to do with a branch.
    """
    real = shutil.which("terraform")
    file = lab.folder / "environments"
    program = lab.folder / "recording" / "terraform"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\n[ "$1" = version ] || env >> {file}\nexec {real} "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    return file


async def test_live_state_drift_and_details_of_one_application(lab: TerraformLab) -> None:
    folder = lab.write(
        "app", 'variable "pw" {\n  sensitive = true\n}\n' + data(value="var.pw") + MODULE
    )
    (folder / "inner").mkdir()
    (folder / "inner" / "main.tf").write_text(
        'resource "terraform_data" "deep" {\n  count = 2\n  input = "x"\n}\n'
    )
    clock = FakeClock()
    harness = lab.harness(folder, options={"vars": ["pw=hush-hush"]}, clock=clock)
    observer = harness.plugin.observer
    assert (await harness.run("TERRAFORM_SYNC")).reason == ""

    first = await harness.live_state()
    assert first.sync.status is SyncStatus.SYNCED
    assert {each.id: (each.kind, *each.parents) for _, each in first.resources} == {
        "state": ("State",),
        "terraform_data.one": ("terraform_data", "state"),
        "module.inner": ("Module", "state"),
        "module.inner.terraform_data.deep[0]": ("terraform_data", "module.inner"),
        "module.inner.terraform_data.deep[1]": ("terraform_data", "module.inner"),
    }
    assert first.healths == {Health.HEALTHY}
    assert "hush" not in repr(first.resources)

    plans = observer.plans
    await clock.advance(timedelta(seconds=60))
    await harness.live_state()
    assert observer.plans == plans, "neither commit nor state have changed, and it is early"
    await clock.advance(timedelta(seconds=61))
    await harness.live_state()
    assert observer.plans == plans + 1, "what changes outside does not touch the state"
    await clock.advance(timedelta(seconds=121))
    await harness.live_state()
    assert observer.plans == plans + 1, "nothing had changed: it is asked half as often"

    state = json.loads(lab.state.read_text())
    state["serial"] += 1
    state["resources"] = [each for each in state["resources"] if each["name"] != "deep"]
    lab.state.write_text(json.dumps(state))
    await clock.advance(timedelta(seconds=10))
    drifted = await harness.live_state()
    assert observer.plans == plans + 2, "the state has changed"
    assert drifted.sync.status is SyncStatus.OUT_OF_SYNC
    assert drifted.sync.short_reason == "2 to add, 0 to change, 0 to destroy"
    assert "# module.inner.terraform_data.deep[0] will be created" in drifted.sync.reason

    opened = await harness.open_resource("terraform_data.one")
    assert "input: (sensitive value)" in opened.manifest
    assert "hush" not in repr(opened)
    assert opened.difference == ""
    whole = await harness.open_resource("state")
    assert "serial: " in whole.manifest
    assert "+ input = " in (whole.difference or "")
    gone = replace(drifted.resources[1][1], id="terraform_data.gone", name="gone")
    with pytest.raises(ResourceGoneError, match="gone is not in the state any more"):
        await harness.open_resource(gone)


async def test_drift_detection_can_be_switched_off(lab: TerraformLab) -> None:
    harness = lab.harness(lab.write("app", data()), target={"driftDetectionEnabled": False})

    seen = await harness.live_state()

    assert seen.sync.status is SyncStatus.UNKNOWN
    assert seen.sync.short_reason == "drift detection is off for this deploy target"
    assert harness.plugin.observer.plans == 0
    assert [each.id for _, each in seen.resources] == ["state"]


async def test_a_plan_that_fails_is_not_tried_again_every_minute(lab: TerraformLab) -> None:
    clock = FakeClock()
    harness = lab.harness(lab.write("app", data(value="nonsense")), clock=clock)

    for _ in range(3):
        seen = await harness.live_state()
        assert seen.sync.status is SyncStatus.UNKNOWN
        assert "Invalid reference" in seen.sync.reason
        await clock.advance(timedelta(seconds=30))

    assert harness.plugin.observer.plans == 1


async def test_a_preview_is_off_until_the_deploy_target_allows_it(lab: TerraformLab) -> None:
    harness = lab.harness(lab.write("app", data()))

    with pytest.raises(StageFailedError, match="plan previews are off for the deploy target 'dev'"):
        await harness.plan_preview()


async def test_a_preview_has_credentials_of_its_own_and_no_others(
    lab: TerraformLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hush-of-piped")
    (lab.folder / "preview.env").write_text("# read only\nexport PREVIEW_TOKEN=hush-of-file\n")
    folder = lab.write("app", data(value='"v2"'))
    harness = lab.harness(
        folder,
        target={
            "envs": ["CLOUD_TOKEN=hush-of-target"],
            "planPreview": {
                "enabled": True,
                "envs": ["PREVIEW_KEY=hush-of-preview"],
                "envFile": str(lab.folder / "preview.env"),
            },
        },
    )
    seen = record_environments(lab, monkeypatch)

    preview = (await harness.plan_preview())["dev"]

    assert (preview.summary, preview.no_change, preview.language) == (
        "1 to add, 0 to change, 0 to destroy",
        False,
        "hcl",
    )
    assert '+ input = "v2"' in preview.details
    assert "\x1b" not in preview.details
    told = seen.read_text()
    assert "PREVIEW_KEY=hush-of-preview" in told
    assert "PREVIEW_TOKEN=hush-of-file" in told
    assert "hush-of-piped" not in told
    assert "hush-of-target" not in told
    assert lab.values() == {}
