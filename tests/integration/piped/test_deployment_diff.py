# SPDX-License-Identifier: Apache-2.0
"""What a deployment changed, asked of a real piped with a real plugin, and printed by pipectl."""

import json
from typing import Any

from pipecd_test_support.piped_site import PipedSite, SiteClient
from pipecd_wire.model import deployment_pb2 as pb
from pipecd_wire.pipecd.api import api_pb2 as api
from pipecd_wire.rpc import call


def start(site: PipedSite) -> None:
    site.commit({"README": "an example"})
    target = {"name": "east", "config": {"path": str(site.folder / "www")}}
    files = {"name": "files", "config": {"flush": False}, "deployTargets": [target]}
    site.configure(files, "waitapproval")
    site.start()


def commit(site: PipedSite, text: str, **more: Any) -> str:
    spec = {
        "name": "web",
        "trigger": {"onCommit": {"disabled": True}},
        "plugins": {"files": {"source": "public"}},
        "planner": {"alwaysUsePipeline": bool(more)},
        **more,
    }
    document = {"apiVersion": "pipecd.dev/v1beta1", "kind": "Application", "spec": spec}
    return site.commit(
        {"web/app.pipecd.yaml": json.dumps(document), "web/public/index.html": text, "other": text}
    )


async def deploy(client: SiteClient, application_id: str, commit_hash: str) -> pb.Deployment:
    targets = {"files": ["east"]}
    deployment_id = await client.deploy("web", commit_hash, application_id, targets)
    done = await client.completed(deployment_id)
    assert done.status == pb.DEPLOYMENT_SUCCESS, done.status_reason
    return done


async def test_a_completed_deployment_still_says_what_it_changed(
    site: PipedSite, client: SiteClient
) -> None:
    start(site)
    application_id = await client.register("web", files=["east"])
    first = await deploy(client, application_id, commit(site, "hello\n"))
    second = await deploy(client, application_id, commit(site, "goodbye\n"))
    await deploy(client, application_id, commit(site, "a third\n"))

    request = api.GetDeploymentDiffRequest(deployment_id=second.id)
    answer = await call(client.deployments.GetDeploymentDiff, request)

    assert answer.running_deployment_id == first.id
    assert answer.diff.running_commit_hash == first.trigger.commit.hash
    assert list(answer.diff.files) == ["web/public/index.html"]
    assert "-hello\n+goodbye\n" in answer.diff.git_diff
    assert "third" not in answer.diff.git_diff
    assert "b/other" not in answer.diff.git_diff, "only the files of the application"
    assert list(answer.diff.diffs) == [], "a plugin compares with what runs now"
    assert answer.diff.error == ""

    shown = site.pipectl("deployment", "diff", second.id[:8], "-o", "table")
    assert "web/public/index.html" in shown
    assert "+goodbye" in shown
    data = json.loads(site.pipectl("deployment", "diff", second.id))
    assert data["running_deployment_id"] == first.id


async def test_while_it_waits_its_plugins_say_what_they_would_change(
    site: PipedSite, client: SiteClient
) -> None:
    start(site)
    application_id = await client.register("web", files=["east"])
    await deploy(client, application_id, commit(site, "hello\n"))
    stages = [{"name": "WAIT_APPROVAL"}, {"name": "FILES_SYNC"}]
    waiting = commit(site, "goodbye\n", pipeline={"stages": stages})
    deployment_id = await client.deploy("web", waiting, application_id, {"files": ["east"]})
    await client.stage_running(deployment_id, 0)

    request = api.GetDeploymentDiffRequest(deployment_id=deployment_id)
    found = (await call(client.deployments.GetDeploymentDiff, request)).diff

    assert "-hello\n+goodbye\n" in found.git_diff
    (diff,) = found.diffs
    assert (diff.plugin_name, diff.deploy_target) == ("files", "east")
    assert "-hello\n+goodbye\n" in diff.details


async def test_a_first_deployment_and_a_stopped_piped_are_named(
    site: PipedSite, client: SiteClient
) -> None:
    start(site)
    application_id = await client.register("web", files=["east"])
    first = await deploy(client, application_id, commit(site, "hello\n"))

    shown = site.pipectl("deployment", "diff", first.id, "-o", "table")
    assert "it is the first deployment" in shown

    await site.stop()
    refused = site.pipectl("deployment", "diff", first.id, code=1)
    assert "say what a deployment changes" in refused
