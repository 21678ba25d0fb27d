# SPDX-License-Identifier: Apache-2.0
"""The plugin `files` under a real piped: directories follow commits, and come back."""

import json
import time
from pathlib import Path
from typing import Any

from pipecd_model.ids import new_id
from pipecd_wire.model import deployment_pb2 as pb
from pipecd_wire.pipedservice import service_pb2 as piped_pb
from pipecd_wire.rpc import call

TARGETS = ("a", "b", "c")


def application(stages: list[dict[str, Any]] | None = None) -> str:
    spec: dict[str, Any] = {
        "name": "web",
        "trigger": {"onCommit": {"disabled": True}},
        "plugins": {"files": {"source": "public"}},
    }
    if stages:
        spec["pipeline"] = {"stages": stages}
        spec["planner"] = {"alwaysUsePipeline": True}
    document = {"apiVersion": "pipecd.dev/v1beta1", "kind": "Application", "spec": spec}
    return json.dumps(document)


def start(site: Any) -> None:
    site.commit({"README": "an example"})
    targets = [
        {"name": name, "config": {"path": str(site.folder / "www" / name)}} for name in TARGETS
    ]
    files = {"name": "files", "config": {"flush": False}, "deployTargets": targets}
    site.configure(files, "scriptrun")
    site.start()


def shown(site: Any) -> dict[str, dict[str, str]]:
    """What each directory shows."""
    found: dict[str, dict[str, str]] = {}
    for name in TARGETS:
        current: Path = site.folder / "www" / name / "current"
        found[name] = {
            str(file.relative_to(current.resolve())): file.read_text()
            for file in current.resolve().rglob("*")
            if file.is_file()
        }
    return found


async def deploy(site: Any, client: Any, commit: str, application_id: str) -> pb.Deployment:
    now = int(time.time())
    made = pb.Deployment(
        id=new_id(),
        application_id=application_id,
        application_name="web",
        piped_id=site.piped_id,
        project_id="default",
        git_path=site.git_path("web"),
        trigger=pb.DeploymentTrigger(
            commit=pb.Commit(
                hash=commit, message="a change", author="Ada", branch="main", created_at=now
            ),
            timestamp=now,
        ),
        created_at=now,
        updated_at=now,
    )
    made.deploy_targets_by_plugin["files"].deploy_targets.extend(TARGETS)
    await call(client.agent.CreateDeployment, piped_pb.CreateDeploymentRequest(deployment=made))
    ended: pb.Deployment = await client.completed(made.id)
    return ended


async def test_directories_follow_the_commit_and_come_back_when_a_later_stage_fails(
    site: Any, client: Any
) -> None:
    start(site)
    first = site.commit({"web/app.pipecd.yaml": application(), "web/public/index.html": "one"})
    application_id = await client.register("web")

    quick = await deploy(site, client, first, application_id)
    after_quick = shown(site)
    stages = [
        {"name": "FILES_CANARY_ROLLOUT", "with": {"targets": ["b"]}},
        {"name": "SCRIPT_RUN", "with": {"run": f"ls -R {site.folder}/www/b/current/; exit 1"}},
        {"name": "FILES_PRIMARY_ROLLOUT"},
    ]
    second = site.commit({"web/app.pipecd.yaml": application(stages), "web/public/new.html": "two"})
    failed = await deploy(site, client, second, application_id)
    after_failure = shown(site)
    stages[1]["with"] = {"run": "true"}
    third = site.commit({"web/app.pipecd.yaml": application(stages)})
    whole = await deploy(site, client, third, application_id)

    assert quick.status == pb.DEPLOYMENT_SUCCESS, quick.status_reason
    assert after_quick == {name: {"index.html": "one"} for name in TARGETS}
    assert [(each.name, each.version) for each in quick.versions] == [("web", first[:7])]
    assert failed.status == pb.DEPLOYMENT_FAILURE
    script = next(each for each in failed.stages if each.name == "SCRIPT_RUN")
    assert "new.html" in "\n".join(await client.log(failed, script)), "the canary had it"
    assert after_failure == after_quick
    assert whole.status == pb.DEPLOYMENT_SUCCESS, whole.status_reason
    assert shown(site) == {name: {"index.html": "one", "new.html": "two"} for name in TARGETS}
