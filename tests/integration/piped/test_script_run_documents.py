# SPDX-License-Identifier: Apache-2.0
"""The applications of the script-run documents, word for word, deployed by real programs.

Kubernetes is a plugin that writes down what it was asked; `sam`, `sudo` and `curl` are scripts that
do the same. Times are shorter, and quotes that no YAML can have are mended.
"""

import sys
from pathlib import Path
from typing import Any, Final

import pytest

from pipecd_model.secrets import KeyPair, Sealer
from pipecd_runtime.ports import pick_port
from pipecd_test_support.piped_site import PipedSite, SiteClient
from pipecd_test_support.script_run_documents import CANARY, ROLLBACK, SAM, SLACK
from pipecd_wire.model import deployment_pb2 as pb
from pipecd_wire.pipecd.api import api_pb2 as own
from pipecd_wire.rpc import call

KEYS: Final = KeyPair.new(1024)
PASSWORD: Final = "open-sesame"  # noqa: S105 - planted
TARGETS: Final = {"kubernetes": ["dev"]}

KUBERNETES: Final = f'''#!{sys.executable}
"""A cluster on paper: it writes down what it was asked, and fails where it is told to."""
import os

from pipecd_sdk import (
    DeploymentPlugin, StageConfig, StageContext, StageFailedError, TargetConfig, serve, stage,
)


class Target(TargetConfig):
    record: str


class Canary(StageConfig):
    replicas: str = ""


class Cluster(DeploymentPlugin):
    target_config = Target

    @stage("K8S_SYNC", quick_sync=True)
    async def sync(self, ctx: StageContext) -> None:
        self._write(ctx)

    @stage("K8S_CANARY_ROLLOUT")
    async def canary(self, ctx: StageContext, config: Canary) -> None:
        self._write(ctx)

    @stage("K8S_PRIMARY_ROLLOUT")
    async def primary(self, ctx: StageContext) -> None:
        self._write(ctx)

    @stage("K8S_CANARY_CLEAN")
    async def clean(self, ctx: StageContext) -> None:
        self._write(ctx)

    @stage("K8S_ROLLBACK", rollback=True)
    async def back(self, ctx: StageContext) -> None:
        self._write(ctx)

    def _write(self, ctx: StageContext) -> None:
        path = ctx.targets[0].config.record
        with open(path, "a") as record:
            record.write(ctx.stage.name + "\\n")
        if os.path.exists(path + ".fail." + ctx.stage.name):
            raise StageFailedError("the cluster is full")


serve(Cluster(), version="0.1.0")
'''

TOOL: Final = """\
#!/bin/sh
# Writes down how it was called, and what it read if it was told to read.
echo "{name} $*" >> {record}
case "$1" in -S) echo "read $(cat)" >> {record} ;; esac
test ! -e {record}.fail.{name} || {{ rm {record}.fail.{name}; exit 22; }}
"""


@pytest.fixture
def tools(site: PipedSite, monkeypatch: pytest.MonkeyPatch) -> None:
    """The programs that the documents use, where the login shell of piped's user finds them."""
    home = site.folder / "home"
    home.mkdir()
    (home / ".profile").write_text(f'PATH="{home}:$PATH"\n')
    for name in ("sam", "sudo", "curl"):
        file: Path = home / name
        file.write_text(TOOL.format(name=name, record=site.record))
        file.chmod(0o755)
    monkeypatch.setenv("HOME", str(home))


@pytest.fixture
def documents(site: PipedSite, tools: None) -> PipedSite:
    """A running piped with all that the documents need."""
    file: Path = site.folder / "kubernetes.py"
    file.write_text(KUBERNETES)
    file.chmod(0o755)
    cluster = {
        "name": "kubernetes",
        "url": f"file://{file}",
        "port": pick_port(),
        "deployTargets": [{"name": "dev", "config": {"record": str(site.record)}}],
    }
    for name, data in (("private", KEYS.private), ("public", KEYS.public)):
        pem = site.folder / f"{name}.pem"
        pem.touch(mode=0o600)
        pem.write_bytes(data)
    management = {
        "type": "KEY_PAIR",
        "config": {
            "privateKeyFile": str(site.folder / "private.pem"),
            "publicKeyFile": str(site.folder / "public.pem"),
        },
    }
    site.commit({"README": "an example"})
    site.configure(cluster, "wait", "waitapproval", "scriptrun", secretManagement=management)
    site.start()
    return site


def let_fail(site: PipedSite, what: str) -> None:
    """Let a stage of the cluster fail, or the next call of a tool."""
    Path(f"{site.record}.fail.{what}").touch()


async def deploy_twice(site: PipedSite, client: SiteClient, text: str) -> str:
    """Bring out a first version, which is a quick sync, and begin with the next one."""
    disabled = text.replace("spec:\n", "spec:\n  trigger: {onCommit: {disabled: true}}\n", 1)
    application_id = await client.register("app", **TARGETS)
    commit = site.commit({"app/app.pipecd.yaml": disabled})
    first = await client.completed(await client.deploy("app", commit, application_id, TARGETS))
    assert first.status == pb.DEPLOYMENT_SUCCESS, first.status_reason
    assert site.records() == ["K8S_SYNC"], "no script runs in a quick sync"
    site.record.unlink()
    commit = site.commit({"app/more.yaml": "more"})
    return await client.deploy("app", commit, application_id, TARGETS)


async def test_scripts_run_between_the_stages_of_a_platform(
    documents: PipedSite, client: SiteClient
) -> None:
    ended = await client.completed(await deploy_twice(documents, client, CANARY))

    assert ended.status == pb.DEPLOYMENT_SUCCESS, ended.status_reason
    assert documents.records() == ["K8S_CANARY_ROLLOUT", "K8S_PRIMARY_ROLLOUT", "K8S_CANARY_CLEAN"]
    scripts = [stage for stage in ended.stages if stage.name == "SCRIPT_RUN"]
    said = [await client.log(ended, stage) for stage in scripts]
    assert ["execute script1" in lines for lines in said] == [True, False]
    assert ["execute script2" in lines for lines in said] == [False, True]


async def test_the_rollback_of_a_script_follows_that_of_the_platform(
    documents: PipedSite, client: SiteClient
) -> None:
    let_fail(documents, "K8S_PRIMARY_ROLLOUT")

    ended = await client.completed(await deploy_twice(documents, client, ROLLBACK))

    assert ended.status == pb.DEPLOYMENT_FAILURE
    back = [stage for stage in ended.stages if stage.rollback]
    assert [stage.name for stage in back] == ["K8S_ROLLBACK", "SCRIPT_RUN_ROLLBACK"]
    assert [stage.status for stage in back] == [pb.STAGE_SUCCESS, pb.STAGE_SUCCESS]
    assert back[0].completed_at <= back[1].completed_at
    assert "rollback script1" in await client.log(ended, back[1])


async def test_a_deployment_with_another_tool_and_a_secret(
    documents: PipedSite, client: SiteClient
) -> None:
    text = SAM.replace("encrypted-secrets", Sealer(KEYS.public).seal(PASSWORD))
    application_id = await client.register("sam")
    commit = documents.commit({"sam/app.pipecd.yaml": text})

    ended = await client.completed(await client.deploy("sam", commit, application_id))

    assert ended.status == pb.DEPLOYMENT_SUCCESS, ended.status_reason
    assert documents.records()[:4] == [
        "sudo -S su",
        f"read {PASSWORD}",
        "sam build",
        "sam deploy -g --profile default",
    ]
    assert not [line for line in await client.log(ended, ended.stages[0]) if PASSWORD in line]


@pytest.mark.parametrize("fails", [False, True])
async def test_the_result_is_told_by_a_script(
    documents: PipedSite, client: SiteClient, fails: bool
) -> None:
    deployment_id = await deploy_twice(documents, client, SLACK)
    await client.stage_running(deployment_id, 1)
    if fails:
        let_fail(documents, "curl")

    await approve(client, deployment_id)
    ended = await client.completed(deployment_id)

    told = [line for line in documents.records() if line.startswith("curl")]
    assert '"text":"successfully deployed!!"' in told[0]
    if fails:
        assert ended.status == pb.DEPLOYMENT_FAILURE
        assert '"text":"failed to deploy: rollback"' in told[1]
        assert documents.records().index("K8S_ROLLBACK") < documents.records().index(told[1])
    else:
        assert ended.status == pb.DEPLOYMENT_SUCCESS, ended.status_reason
        assert len(told) == 1


async def approve(client: SiteClient, deployment_id: str) -> None:
    request: Any = own.ApproveStageRequest(deployment_id=deployment_id)
    await call(client.deployments.ApproveStage, request)
