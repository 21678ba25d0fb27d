# SPDX-License-Identifier: Apache-2.0
"""The plugin and piped are killed in the middle of stages, which then go on; nothing is doubled."""

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from pipecd_test_support.kubernetes.killing_api_server import find_plugins
from pipecd_test_support.kubernetes.real_cluster import Namespace
from pipecd_test_support.kubernetes_site import (
    KubernetesSite,
    configure,
    make_application,
    make_config_map,
    make_deployment,
    make_manifests,
    make_service,
    read_objects,
)
from pipecd_test_support.piped_site import PipedSite
from pipecd_wire.model import deployment_pb2 as pb

STAGES: list[dict[str, Any]] = [
    {"name": "K8S_CANARY_ROLLOUT", "with": {"createService": True}},
    {"name": "K8S_PRIMARY_ROLLOUT", "with": {"prune": True}},
    {"name": "K8S_CANARY_CLEAN"},
]


def kill_plugin(site: PipedSite) -> None:
    pids = find_plugins(site, "pipecd-plugin-kubernetes")
    assert pids, "the plugin does not run"
    for pid in pids:
        os.kill(pid, signal.SIGKILL)


def kill_piped(site: PipedSite) -> None:
    site.signal(signal.SIGKILL)
    site.require_process().wait(30)
    site.start()


@contextlib.asynccontextmanager
async def releasing(namespace: Namespace) -> AsyncIterator[None]:
    """Let slow pods become ready, also those that are made later."""

    async def release() -> None:
        while True:
            with contextlib.suppress(Exception):  # a pod may be gone by now
                await asyncio.to_thread(namespace.set_behaviour, "run")
            await asyncio.sleep(0.2)

    task = asyncio.create_task(release())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


def manifests(tag: str) -> str:
    return make_manifests(
        make_deployment(image=f"web:{tag}", config="web"),
        make_service(),
        make_config_map("web", tag=tag),
        make_config_map(f"only-{tag}"),
    )


@pytest.mark.parametrize("kill", [kill_plugin, kill_piped], ids=["plugin", "piped"])
async def test_every_stage_is_continued_after_a_kill(
    kill: Callable[[PipedSite], None], own_piped: PipedSite, namespace: Namespace
) -> None:
    configure(own_piped, {"main": namespace.cluster.kubeconfig})
    own_piped.start()
    options = {"input": {"namespace": namespace.name}, "readiness": {"timeout": "60s"}}
    async with own_piped.client() as client:
        app = KubernetesSite(own_piped, client, "kill")
        quick = make_application("kill", options=options)
        await app.succeed(app.commit(quick, m__yaml=manifests("v1")))
        before = await asyncio.to_thread(read_objects, namespace)
        given = make_application("kill", STAGES, options=options)
        commit = app.commit(given, m__yaml=manifests("v2-slow"))
        deployment_id = await app.start(commit)

        await client.stage_running(deployment_id, 0)
        await wait_applied(namespace, "web-canary", commit)
        await asyncio.to_thread(kill, own_piped)
        async with releasing(namespace):
            await client.stage_running(deployment_id, 1)
        await wait_applied(namespace, "web", commit)
        await asyncio.to_thread(kill, own_piped)
        async with releasing(namespace):
            ended = await client.completed(deployment_id)
        told = await app.explain(ended)
        after = await asyncio.to_thread(read_objects, namespace)

    assert ended.status == pb.DEPLOYMENT_SUCCESS, told
    assert after.keys() - before.keys() == {"ConfigMap/only-v2-slow"}, told
    assert before.keys() - after.keys() == {"ConfigMap/only-v1"}, told
    assert [stage.status for stage in ended.stages if not stage.rollback] == [
        pb.STAGE_SUCCESS
    ] * len(STAGES)


async def test_a_rollback_is_continued_after_a_kill(
    own_piped: PipedSite, namespace: Namespace
) -> None:
    """What was there before is known to the next process too."""
    configure(own_piped, {"main": namespace.cluster.kubeconfig})
    own_piped.start()
    options = {"input": {"namespace": namespace.name}, "readiness": {"timeout": "60s"}}
    async with own_piped.client() as client:
        app = KubernetesSite(own_piped, client, "kill-rollback")
        quick = make_application(app.path, options=options)
        await app.succeed(app.commit(quick, m__yaml=manifests("v1")))
        before = await asyncio.to_thread(read_objects, namespace)
        given = make_application(app.path, STAGES[1:], options=options)
        commit = app.commit(given, m__yaml=manifests("v2-slow"))
        deployment_id = await app.start(commit)
        await client.stage_running(deployment_id, 0)
        await wait_applied(namespace, "web", commit)

        await client.cancel(deployment_id)
        await client.until(
            deployment_id,
            lambda it: any(s.rollback and s.status == pb.STAGE_RUNNING for s in it.stages),
        )
        await asyncio.to_thread(kill_plugin, own_piped)
        ended = await client.completed(deployment_id)
        told = await app.explain(ended)
        after = await asyncio.to_thread(read_objects, namespace)

    assert ended.status == pb.DEPLOYMENT_CANCELLED, told
    assert ended.status_reason.endswith("; rolled back"), told
    assert after == before, told


async def wait_applied(namespace: Namespace, name: str, commit: str) -> None:
    """Wait until a Deployment is that of a commit."""

    def is_right(found: object) -> bool:
        labels = found["metadata"]["labels"] if isinstance(found, dict) else {}
        return bool(labels.get("pipecd.dev/commit-hash") == commit)

    await asyncio.to_thread(
        namespace.api.wait, "apps/v1", "Deployment", name, namespace.name, is_right=is_right
    )
