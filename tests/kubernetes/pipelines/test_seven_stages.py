# SPDX-License-Identifier: Apache-2.0
"""The script-run guide's seven stages on a real cluster, stopped at each of them in turn.

Afterwards the guide's rollbacks have run, and everything in the cluster is as it was before.
"""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from pipecd_test_support.kubernetes.real_cluster import Namespace
from pipecd_test_support.kubernetes_site import (
    KubernetesSite,
    make_application,
    make_config_map,
    make_deployment,
    make_manifests,
    make_service,
    read_objects,
)
from pipecd_wire.model import deployment_pb2 as pb

NAMES = [
    "K8S_CANARY_ROLLOUT",
    "WAIT",
    "SCRIPT_RUN",
    "K8S_PRIMARY_ROLLOUT",
    "SCRIPT_RUN",
    "K8S_CANARY_CLEAN",
    "SCRIPT_RUN",
]
SCRIPTS = [2, 4, 6]
CANARY, PRIMARY, CLEAN = 0, 3, 5
FINALIZER = "example.com/hold"

stopped_at = pytest.mark.parametrize(
    "index", range(7), ids=[f"{number}-{name}" for number, name in enumerate(NAMES, 1)]
)


class Pipeline:
    """The guide's pipeline; one stage fails, or never ends by itself."""

    def __init__(self, record: str, *, fails: int | None = None, hangs: int | None = None) -> None:
        self.record = record
        self.fails = fails
        self.hangs = hangs

    def bad_image(self, index: int) -> str:
        """The image of a rollout: its pods crash, or never become ready, where that is wanted."""
        if index == self.fails:
            return "web:v2-crash"
        return "web:v2-slow" if index == self.hangs else "web:v2"

    def stages(self) -> list[dict[str, Any]]:
        made: list[dict[str, Any]] = []
        for index, name in enumerate(NAMES):
            stage: dict[str, Any] = {"name": name}
            if name == "WAIT":
                stage["with"] = {"duration": "10m" if index in {self.fails, self.hangs} else "1s"}
                if index == self.fails:
                    stage["timeout"] = "100ms"
            elif name == "SCRIPT_RUN":
                end = "exit 3" if index == self.fails else "true"
                end = "sleep 600" if index == self.hangs else end
                stage["with"] = {
                    "env": {"RECORD": self.record},
                    "run": f'echo "SCRIPT_RUN {index}" >> "$RECORD"\n{end}\n',
                    "onRollback": f'echo "SCRIPT_RUN_ROLLBACK {index}" >> "$RECORD"\n',
                }
            elif index == CANARY:
                stage["with"] = {"replicas": "10%", "patches": self.patches()}
            elif index == PRIMARY:
                stage["with"] = {"prune": True}
            elif index == self.fails:
                stage["with"] = {"multiTargets": ["nowhere"]}
            made.append(stage)
        return made

    def patches(self) -> list[dict[str, Any]]:
        path = "$.spec.template.spec.containers[0].image"
        image = {"path": path, "value": self.bad_image(CANARY)}
        patches: list[dict[str, Any]] = [
            {"target": {"kind": "Deployment", "name": "web"}, "ops": [image]}
        ]
        if self.hangs == CLEAN:
            hold = {"op": "yaml-add", "path": "$.metadata.finalizers", "value": f"[{FINALIZER}]"}
            patches.append({"target": {"kind": "ConfigMap", "name": "web"}, "ops": [hold]})
        return patches

    def manifests(self) -> str:
        """The second commit: something changed, something is new, something is gone."""
        service = make_service()
        service["metadata"]["labels"] = {"tier": "front"}
        return make_manifests(
            make_deployment(image=self.bad_image(PRIMARY), config="web"),
            service,
            make_config_map("web", greeting="hello again"),
            make_config_map("new", of="the second commit"),
            SECRET,
        )


SECRET = {
    "apiVersion": "v1",
    "kind": "Secret",
    "metadata": {"name": "web"},
    "stringData": {"password": "open sesame"},
}
FIRST = make_manifests(
    make_deployment(config="web"),
    make_service(),
    make_config_map("web", greeting="hello"),
    make_config_map("old", of="the first commit"),
    SECRET,
)


def options(namespace: Namespace, timeout: str = "10m") -> dict[str, Any]:
    return {"input": {"namespace": namespace.name}, "readiness": {"timeout": timeout}}


async def begin(app: KubernetesSite, namespace: Namespace) -> dict[str, Any]:
    """Deploy the first commit; answers what is there then."""
    first = make_application(app.path, options=options(namespace))
    await app.succeed(app.commit(first, manifests__yaml=FIRST))
    return await asyncio.to_thread(read_objects, namespace)


def expected(index: int) -> list[str]:
    """The traces of scripts: those that ran, then the guide's rollbacks of them."""
    ran = [at for at in SCRIPTS if at <= index]
    return [f"SCRIPT_RUN {at}" for at in ran] + [f"SCRIPT_RUN_ROLLBACK {at}" for at in ran]


def stage_names(deployment: pb.Deployment) -> list[str]:
    """The names of the rollback stages that ran, in their order."""
    return [each.name for each in deployment.stages if each.rollback]


@stopped_at
async def test_a_stage_that_fails(
    index: int, make_site: Callable[..., KubernetesSite], namespace: Namespace
) -> None:
    app = make_site(f"fails-{index}")
    pipeline = Pipeline(str(app.site.folder / app.path), fails=index)
    before = await begin(app, namespace)
    timeout = "6s" if index in {CANARY, PRIMARY} else "10m"
    given = make_application(app.path, pipeline.stages(), options=options(namespace, timeout))

    ended = await app.deploy(app.commit(given, manifests__yaml=pipeline.manifests()))

    told = await app.explain(ended)
    assert app.site.records(app.path) == expected(index), told
    assert ended.status == pb.DEPLOYMENT_FAILURE, told
    assert ended.status_reason.startswith(f"{NAMES[index]} "), told
    assert ended.status_reason.endswith("; rolled back"), told
    assert stage_names(ended)[0] == "K8S_ROLLBACK"
    assert await asyncio.to_thread(read_objects, namespace) == before, told


@stopped_at
async def test_a_stage_that_is_cancelled(
    index: int, make_site: Callable[..., KubernetesSite], namespace: Namespace
) -> None:
    app = make_site(f"cancelled-{index}")
    pipeline = Pipeline(str(app.site.folder / app.path), hangs=index)
    before = await begin(app, namespace)
    given = make_application(app.path, pipeline.stages(), options=options(namespace))
    commit = app.commit(given, manifests__yaml=pipeline.manifests())
    deployment_id = await app.start(commit)
    await app.client.stage_running(deployment_id, index)
    await wait_begun(app, namespace, commit, index)

    await app.client.cancel(deployment_id)
    if index == CLEAN:
        await asyncio.to_thread(release, namespace)
    ended = await app.client.completed(deployment_id)

    told = await app.explain(ended)
    assert app.site.records(app.path) == expected(index), told
    assert ended.status == pb.DEPLOYMENT_CANCELLED, told
    assert ended.status_reason.endswith(f" during {NAMES[index]}; rolled back"), told
    assert await asyncio.to_thread(read_objects, namespace) == before, told


async def test_all_seven_run_to_the_end(
    make_site: Callable[..., KubernetesSite], namespace: Namespace
) -> None:
    app = make_site("succeeds")
    pipeline = Pipeline(str(app.site.folder / app.path))
    before = await begin(app, namespace)
    given = make_application(app.path, pipeline.stages(), options=options(namespace))

    await app.succeed(app.commit(given, manifests__yaml=pipeline.manifests()))

    after = await asyncio.to_thread(read_objects, namespace)
    assert app.site.records(app.path) == [f"SCRIPT_RUN {at}" for at in SCRIPTS]
    assert after.keys() - before.keys() == {"ConfigMap/new"}
    assert before.keys() - after.keys() == {"ConfigMap/old"}
    containers = after["Deployment/web"]["spec"]["template"]["spec"]["containers"]
    assert [each["image"] for each in containers] == ["web:v2"]


async def wait_begun(app: KubernetesSite, namespace: Namespace, commit: str, index: int) -> None:
    """Wait for a trace of the stage: RUNNING is told a moment before it begins."""

    def has_begun() -> bool:
        if NAMES[index] == "SCRIPT_RUN":
            return f"SCRIPT_RUN {index}" in app.site.records(app.path)
        if index == CANARY:
            return namespace.get("apps/v1", "Deployment", "web-canary") is not None
        if index == PRIMARY:
            found = namespace.get("apps/v1", "Deployment", "web") or {"metadata": {"labels": {}}}
            labels: dict[str, str] = found["metadata"]["labels"]
            return labels.get("pipecd.dev/commit-hash") == commit
        if index == CLEAN:
            found = namespace.get("v1", "ConfigMap", "web-canary") or {"metadata": {}}
            return "deletionTimestamp" in found["metadata"]
        return True

    async with asyncio.timeout(60):
        while not await asyncio.to_thread(has_begun):  # noqa: ASYNC110 - another process does it
            await asyncio.sleep(0.05)


def release(namespace: Namespace) -> None:
    """Let the canary's ConfigMap go, which something has held."""
    change = {"metadata": {"finalizers": None}}
    namespace.api.patch("v1", "ConfigMap", "web-canary", namespace.name, change)
