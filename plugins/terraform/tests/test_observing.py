# SPDX-License-Identifier: Apache-2.0
"""What is there, whether it is what git says, and what a branch would change."""

import json
import os
import shutil
from datetime import timedelta
from pathlib import Path

import pytest
from pipecd_plugin_terraform.observing import sweep_caches

from pipecd_sdk import Health, ResourceGoneError, StageFailedError, SyncStatus, replace
from pipecd_sdk.testing import FakeClock
from pipecd_test_support.terraform_lab import TerraformLab, data
from pipecd_test_support.web_server import Answer, Question, WebServer

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


async def test_what_was_kept_of_an_application_that_is_gone_is_removed(
    lab: TerraformLab, scripts: Path
) -> None:
    """Providers are large; a plan of a process that was killed may hold secrets."""
    harness = lab.harness(lab.write("app", data()))
    await harness.live_state()
    (kept,) = (scripts / ".terraform").iterdir()
    gone = scripts / ".terraform" / "0123"
    (gone / "data" / "providers").mkdir(parents=True)
    for folder in (kept, gone):
        (folder / "drift.tfplan").write_text("")
    sweep_caches()
    assert sorted(each.name for each in gone.iterdir()) == ["data"]

    for file in (gone / "data" / "providers", gone / "data", gone):
        os.utime(file, (1, 1))
    sweep_caches()

    assert list((scripts / ".terraform").iterdir()) == [kept]
    assert (kept / "data").is_dir()


async def test_drift_detection_can_be_switched_off(lab: TerraformLab) -> None:
    harness = lab.harness(lab.write("app", data()), target={"driftDetectionEnabled": False})

    seen = await harness.live_state()

    assert seen.sync.status is SyncStatus.UNKNOWN
    assert seen.sync.short_reason == "drift detection is off for this deploy target"
    assert harness.plugin.observer.plans == 0
    assert [each.id for _, each in seen.resources] == ["state"]


@pytest.mark.parametrize(
    "named", ["{{ .encryptedSecrets.pw }}", '{{ index .encryptedSecrets "my-pw" }}']
)
async def test_the_live_state_of_an_application_whose_variables_name_a_secret(
    lab: TerraformLab, named: str
) -> None:
    """Secrets are opened for stages only: nothing is planned, and no value can be masked."""
    folder = lab.write(
        "app", 'variable "pw" {\n}\n' + data(value='"password of ${var.pw}"') + data("two")
    )
    secrets = {"pw": "hush-hush", "my-pw": "hush-hush"}
    harness = lab.harness(folder, options={"vars": [f"pw={named}"]}, secrets=secrets)
    before = await harness.live_state()
    assert [each.description for _, each in before.resources] == ["nothing is deployed here"]
    assert (await harness.run("TERRAFORM_SYNC")).reason == ""
    assert lab.values()["terraform_data.one"] == "password of hush-hush"

    seen = await harness.live_state()
    opened = {each.id: await harness.open_resource(each.id) for _, each in seen.resources}

    assert list(opened) == ["state", "terraform_data.one", "terraform_data.two"]
    assert "hush" not in f"{harness.text} {seen} {opened}"
    assert "the variables name a secret" in seen.resources[0][1].description
    assert seen.sync.status is SyncStatus.UNKNOWN
    assert "the variables name a secret" in seen.sync.reason
    assert opened["terraform_data.one"].manifest == ""
    assert opened["terraform_data.one"].difference is None
    assert [each.partition(":")[0] for each in opened["terraform_data.one"].notes] == [
        "no values are shown",
        "it is not compared with git",
    ]


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


def record_commands(lab: TerraformLab, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Puts a program before the real one that writes its first argument to a file."""
    real = shutil.which("terraform")
    file = lab.folder / "commands"
    file.touch()
    program = lab.folder / "counting" / "terraform"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\necho "$1" >> {file}\nexec {real} "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    return file


async def test_nothing_is_run_while_commit_and_file_of_the_state_are_the_same(
    lab: TerraformLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = FakeClock()
    harness = lab.harness(lab.write("app", data()), clock=clock, config={"driftInterval": "1h"})
    await harness.run("TERRAFORM_SYNC")
    await harness.live_state()
    commands = record_commands(lab, monkeypatch)

    for _ in range(10):
        await clock.advance(timedelta(minutes=1))
        seen = await harness.live_state()

    assert seen.sync.status is SyncStatus.SYNCED
    assert commands.read_text() == ""


@pytest.mark.parametrize("workspace", ["", "blue"])
async def test_a_state_in_a_file_that_changed_is_read_within_a_minute(
    lab: TerraformLab, workspace: str
) -> None:
    clock = FakeClock()
    options = {"workspace": workspace, "createWorkspace": True} if workspace else {}
    harness = lab.harness(lab.write("app", data()), clock=clock, options=options)
    await harness.run("TERRAFORM_SYNC")
    await harness.live_state()
    file = lab.state.parent / workspace / lab.state.name if workspace else lab.state
    state = json.loads(file.read_text())
    state |= {"serial": state["serial"] + 1, "resources": []}
    file.write_text(json.dumps(state))

    await clock.advance(timedelta(minutes=1))
    seen = await harness.live_state()

    assert seen.sync.short_reason == "1 to add, 0 to change, 0 to destroy"
    assert [each.id for _, each in seen.resources] == ["state"]


class StateServer(WebServer):
    """A state over HTTP."""

    def __init__(self) -> None:
        super().__init__()
        self.state = b""
        self.is_away = False

    def find(self, question: Question) -> Answer:
        if self.is_away:
            return Answer(status=503)
        if question.method == "POST":
            self.state = question.body
        return Answer(body=self.state, status=200 if self.state else 404)


def write_remote(lab: TerraformLab, server: StateServer) -> Path:
    folder = lab.write("remote", "")
    backend = f'terraform {{\n  backend "http" {{\n    address   = "{server.url}/state"\n'
    (folder / "main.tf").write_text(f"{backend}    retry_max = 0\n  }}\n}}\n{data()}")
    return folder


async def test_a_state_elsewhere_is_read_less_often_and_a_change_is_noticed_in_15_minutes(
    lab: TerraformLab,
) -> None:
    clock = FakeClock()
    with StateServer() as server:
        harness = lab.harness(write_remote(lab, server), clock=clock, target={"backendConfig": []})
        assert (await harness.run("TERRAFORM_SYNC")).reason == ""
        await harness.live_state()
        server.asked.clear()

        await clock.advance(timedelta(minutes=1))
        await harness.live_state()
        assert server.asked == [], "it was read a minute ago"
        for _ in range(60):
            await clock.advance(timedelta(minutes=1))
            await harness.live_state()
        plans = harness.plugin.observer.plans
        server.state = json.dumps(
            json.loads(server.state) | {"serial": 90, "resources": []}
        ).encode()
        await clock.advance(timedelta(minutes=15))
        seen = await harness.live_state()
        assert seen.sync.status is SyncStatus.OUT_OF_SYNC
        assert harness.plugin.observer.plans == plans + 1

        assert (await harness.run("TERRAFORM_SYNC", index=1)).reason == ""
        seen = await harness.live_state()
        assert seen.sync.status is SyncStatus.SYNCED, "what a stage has changed is known at once"
        server.state = json.dumps(
            json.loads(server.state) | {"serial": 95, "resources": []}
        ).encode()
        opened = await harness.open_resource("state")
        assert "serial: 95" in opened.manifest, "a person sees what is there now"


async def test_a_state_that_cannot_be_read_is_asked_for_less_and_less(lab: TerraformLab) -> None:
    clock = FakeClock()
    with StateServer() as server:
        harness = lab.harness(write_remote(lab, server), clock=clock, target={"backendConfig": []})
        server.is_away = True
        counts = []
        for _ in range(8):
            seen = await harness.live_state()
            assert seen.sync.status is SyncStatus.UNKNOWN
            assert "Failed to get state" in seen.sync.reason
            counts.append(len(server.asked))
            await clock.advance(timedelta(minutes=1))

    assert counts[1] == counts[0]
    assert counts[2] > counts[1]
    assert counts[5] == counts[2], "after two minutes, then after four"
