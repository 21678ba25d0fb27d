# SPDX-License-Identifier: Apache-2.0
"""The applications of the script-run documents, word for word, on a real cluster.

`curl` is a script that writes down what it was asked.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pipecd_test_support.kubernetes.real_cluster import Namespace
from pipecd_test_support.kubernetes_site import (
    KubernetesSite,
    make_application,
    make_deployment,
    make_manifests,
    make_service,
    read_objects,
)
from pipecd_test_support.script_run_documents import CANARY, ROLLBACK, SLACK, add_options
from pipecd_wire.model import deployment_pb2 as pb
from pipecd_wire.pipecd.api import api_pb2 as own
from pipecd_wire.rpc import call

CURL = '#!/bin/sh\necho "$@" >> "$0.record"\ntest ! -e "$0.fail"\n'


def manifests(image: str) -> str:
    return make_manifests(make_deployment(image=image, replicas=10), make_service())


def place(document: str, namespace: Namespace) -> str:
    """A document that deploys to the test's namespace, by its pipeline, when it is told to."""
    return add_options(
        document,
        f"input: {{namespace: {namespace.name}}}",
        "trigger: {onCommit: {disabled: true}}",
        "planner: {alwaysUsePipeline: true}",
    )


async def begin(app: KubernetesSite, namespace: Namespace) -> dict[str, Any]:
    """Make the first deployment, of all three: a quick sync."""
    options = {"input": {"namespace": namespace.name}}
    text = make_application(app.path, options=options)
    await app.succeed(app.commit(text, m__yaml=manifests("web:v1")))
    return await asyncio.to_thread(read_objects, namespace)


async def test_the_guides_first_example(
    make_site: Callable[..., KubernetesSite], namespace: Namespace
) -> None:
    app = make_site("guide")
    await begin(app, namespace)
    text = place(CANARY, namespace)

    ended = await app.succeed(app.commit(text, m__yaml=manifests("web:v2")))

    told = await app.explain(ended)
    found = await asyncio.to_thread(read_objects, namespace)
    images = found["Deployment/web"]["spec"]["template"]["spec"]["containers"]
    assert [each["image"] for each in images] == ["web:v2"]
    assert "Deployment/web-canary" not in found
    assert "execute script1" in told
    assert "execute script2" in told
    names = [each.name for each in ended.stages if each.status == pb.STAGE_SUCCESS]
    assert names == [
        "K8S_CANARY_ROLLOUT",
        "WAIT",
        "SCRIPT_RUN",
        "K8S_PRIMARY_ROLLOUT",
        "K8S_CANARY_CLEAN",
        "SCRIPT_RUN",
    ]


async def test_the_guides_example_with_a_rollback(
    make_site: Callable[..., KubernetesSite], namespace: Namespace
) -> None:
    """It succeeds; and when the primary cannot be applied, the script is undone after it."""
    app = make_site("guide-rollback")
    await begin(app, namespace)
    text = place(ROLLBACK, namespace)
    await app.succeed(app.commit(text, m__yaml=manifests("web:v2")))
    before = await asyncio.to_thread(read_objects, namespace)
    broken = make_deployment(image="web:v3", replicas=10)
    broken["spec"]["selector"]["matchLabels"]["cannot"] = "change"
    broken["spec"]["template"]["metadata"]["labels"]["cannot"] = "change"

    ended = await app.deploy(app.commit(text, m__yaml=make_manifests(broken, make_service())))

    told = await app.explain(ended)
    assert ended.status == pb.DEPLOYMENT_FAILURE, told
    assert ended.status_reason.startswith("K8S_PRIMARY_ROLLOUT "), told
    assert "rollback script1" in told
    rolled = [each.name for each in ended.stages if each.rollback]
    assert rolled == ["K8S_ROLLBACK", "SCRIPT_RUN_ROLLBACK"]
    assert await asyncio.to_thread(read_objects, namespace) == before, told


async def test_the_rfcs_examples(
    make_site: Callable[..., KubernetesSite], namespace: Namespace, tmp_path: Path
) -> None:
    """It succeeds after an approval; and what it says on a rollback is said when `curl` fails."""
    app = make_site("rfc")
    curl = tmp_path / "curl"
    curl.write_text(CURL)
    curl.chmod(0o755)
    await begin(app, namespace)
    text = place(SLACK, namespace).replace("curl -X", f"{curl} -X")

    done = await approve(app, app.commit(text, m__yaml=manifests("web:v2")))
    before = await asyncio.to_thread(read_objects, namespace)
    (tmp_path / "curl.fail").touch()
    failed = await approve(app, app.commit(text, m__yaml=manifests("web:v3")))

    assert done.status == pb.DEPLOYMENT_SUCCESS, await app.explain(done)
    assert failed.status == pb.DEPLOYMENT_FAILURE, await app.explain(failed)
    said = (tmp_path / "curl.record").read_text().splitlines()
    assert ["rollback" in line for line in said] == [False, False, True]
    assert await asyncio.to_thread(read_objects, namespace) == before


async def approve(app: KubernetesSite, commit: str) -> pb.Deployment:
    """Deploy a commit, and approve its second stage."""
    deployment_id = await app.start(commit)
    await app.client.stage_running(deployment_id, 1)
    request = own.ApproveStageRequest(deployment_id=deployment_id)
    await call(app.client.deployments.ApproveStage, request)
    return await app.client.completed(deployment_id)
