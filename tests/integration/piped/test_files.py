# SPDX-License-Identifier: Apache-2.0
"""The plugin `files` under a real piped: directories follow commits, and come back."""

import json
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pipecd_model.ids import new_id
from pipecd_runtime.ports import pick_port
from pipecd_test_support.piped_site import PipedSite, SiteClient
from pipecd_wire.model import deployment_pb2 as pb
from pipecd_wire.pipedservice import service_pb2 as piped_pb
from pipecd_wire.rpc import call

TARGETS = ("a", "b", "c")
NEXT = f'''#!{sys.executable}
"""The next version of the plugin: it says so in the log."""
from pipecd_plugin_files.config import RolloutConfig
from pipecd_plugin_files.plugin import Files
from pipecd_sdk import StageContext, serve, stage


class NextFiles(Files):
    @stage("FILES_SYNC", quick_sync=True)
    async def sync(self, ctx: StageContext, config: RolloutConfig) -> None:
        ctx.log.info("by the next version")
        await super().sync(ctx, config)


serve(NextFiles(), version="0.2.0")
'''


def application(
    stages: list[dict[str, Any]] | None = None, *, name: str = "web", plugin: str = "files"
) -> str:
    spec: dict[str, Any] = {
        "name": name,
        "trigger": {"onCommit": {"disabled": True}},
        "plugins": {plugin: {"source": "public"}} if plugin else {},
    }
    if stages:
        spec["pipeline"] = {"stages": stages}
        spec["planner"] = {"alwaysUsePipeline": True}
    document = {"apiVersion": "pipecd.dev/v1beta1", "kind": "Application", "spec": spec}
    return json.dumps(document)


def start(site: PipedSite) -> None:
    site.commit({"README": "an example"})
    targets = [
        {"name": name, "config": {"path": str(site.folder / "www" / name)}} for name in TARGETS
    ]
    files = {"name": "files", "config": {"flush": False}, "deployTargets": targets}
    site.configure(files, "scriptrun")
    site.start()


def shown(site: PipedSite) -> dict[str, dict[str, str]]:
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


async def deploy(
    site: PipedSite,
    client: SiteClient,
    commit: str,
    application_id: str,
    *,
    path: str = "web",
    targets: Mapping[str, Sequence[str]] = MappingProxyType({"files": TARGETS}),
) -> pb.Deployment:
    now = int(time.time())
    made = pb.Deployment(
        id=new_id(),
        application_id=application_id,
        application_name=path,
        piped_id=site.piped_id,
        project_id="default",
        git_path=site.git_path(path),
        trigger=pb.DeploymentTrigger(
            commit=pb.Commit(
                hash=commit, message="a change", author="Ada", branch="main", created_at=now
            ),
            timestamp=now,
        ),
        created_at=now,
        updated_at=now,
    )
    for plugin, names in targets.items():
        made.deploy_targets_by_plugin[plugin].deploy_targets.extend(names)
    await call(client.agent.CreateDeployment, piped_pb.CreateDeploymentRequest(deployment=made))
    ended: pb.Deployment = await client.completed(made.id)
    return ended


async def test_directories_follow_the_commit_and_come_back_when_a_later_stage_fails(
    site: PipedSite, client: SiteClient
) -> None:
    start(site)
    first = site.commit({"web/app.pipecd.yaml": application(), "web/public/index.html": "one"})
    application_id = await client.register("web")

    quick = await deploy(site, client, first, application_id)
    after_quick = shown(site)
    stages: list[dict[str, Any]] = [
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


async def test_two_versions_run_side_by_side_and_each_application_has_its_own(
    site: PipedSite, client: SiteClient
) -> None:
    """A stage that both offer, and that no application chose, is refused with both names."""
    program = site.folder / "next.py"
    program.write_text(NEXT)
    program.chmod(0o755)

    def entry(name: str, **more: Any) -> dict[str, Any]:
        target = {"name": f"{name}-target", "config": {"path": str(site.folder / "www" / name)}}
        return {"name": name, "config": {"flush": False}, "deployTargets": [target], **more}

    site.commit({"README": "an example"})
    site.configure(
        entry("files"), entry("next", url=f"file://{program}", port=pick_port()), "scriptrun"
    )
    site.start()
    sync = [{"name": "FILES_SYNC"}]
    commit = site.commit(
        {
            "one/app.pipecd.yaml": application(sync, name="one", plugin="files"),
            "one/public/x": "one",
            "two/app.pipecd.yaml": application(sync, name="two", plugin="next"),
            "two/public/x": "two",
            "three/app.pipecd.yaml": application(sync, name="three", plugin=""),
        }
    )

    ended: dict[str, pb.Deployment] = {}
    for path, plugin in (("one", "files"), ("two", "next"), ("three", "")):
        registered = await client.register(path)
        targets = {plugin: [f"{plugin}-target"]} if plugin else {}
        ended[path] = await deploy(site, client, commit, registered, path=path, targets=targets)
    logs = {
        path: "\n".join(await client.log(ended[path], ended[path].stages[0]))
        for path in ("one", "two")
    }

    assert ended["one"].status == pb.DEPLOYMENT_SUCCESS, ended["one"].status_reason
    assert ended["two"].status == pb.DEPLOYMENT_SUCCESS, ended["two"].status_reason
    assert (site.folder / "www" / "files" / "current" / "x").read_text() == "one"
    assert (site.folder / "www" / "next" / "current" / "x").read_text() == "two"
    assert "by the next version" not in logs["one"]
    assert "by the next version" in logs["two"]
    assert ended["three"].status == pb.DEPLOYMENT_FAILURE
    assert "files" in ended["three"].status_reason
    assert "next" in ended["three"].status_reason
