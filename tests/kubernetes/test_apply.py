# SPDX-License-Identifier: Apache-2.0
"""Applying on a real cluster: the contract, and what only real controllers and kubectl show."""

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest
from pipecd_plugin_kubernetes.apply import (
    Applied,
    NotReadyError,
    apply_manifests,
    prune,
    wait_ready,
)
from pipecd_plugin_kubernetes.client import Cluster, Object, RetryNotice, load_connection
from pipecd_plugin_kubernetes.manifest import Manifest

from pipecd_sdk import StageFailedError
from pipecd_test_support.apply_contract import (
    LAST_APPLIED,
    ApplyContract,
    apply,
    config_map,
    deployment,
    mark,
    name_application,
    read,
)
from pipecd_test_support.kubernetes.real_cluster import Namespace, RealCluster
from pipecd_test_support.recording_log import RecordingLog

LONG = timedelta(seconds=60)


@pytest.fixture
async def client(cluster: RealCluster) -> AsyncIterator[Cluster]:
    connection = await load_connection(kubeconfig=str(cluster.kubeconfig))
    async with await Cluster.connect(connection) as connected:
        yield connected


@pytest.fixture
def space(namespace: Namespace) -> str:
    return namespace.name


class TestApplyForReal(ApplyContract):
    """With the fixtures of this module."""


async def run_kubectl_apply(cluster: RealCluster, space: str, *manifests: Manifest) -> str:
    text = json.dumps(
        {"apiVersion": "v1", "kind": "List", "items": [each.body for each in manifests]}
    )
    return await asyncio.to_thread(
        cluster.run_kubectl, "--namespace", space, "apply", "-f", "-", stdin=text
    )


async def list_pods(namespace: Namespace, name: str) -> set[str]:
    pods = await asyncio.to_thread(namespace.find_all, "v1", "Pod", labels=f"app={name}")
    return {each["metadata"]["uid"] for each in pods}


async def apply_and_wait(
    client: Cluster, *manifests: Manifest, within: timedelta = LONG
) -> tuple[Applied, RecordingLog]:
    log = RecordingLog()
    applied = await apply_manifests(client, manifests, log=log)
    await wait_ready(client, applied, log=log, within=within)
    return applied, log


class TestTakeOver:
    async def test_from_kubectl_to_us_and_back_no_pod_restarts_and_removed_fields_go(
        self, cluster: RealCluster, client: Cluster, namespace: Namespace
    ) -> None:
        """The way in, and the way back out."""
        space = namespace.name
        settings = config_map(space, "settings", {"a": "1", "old": "x"})
        web = deployment(space, "web", env={"KEPT": "1"})
        await run_kubectl_apply(cluster, space, settings, web)
        await asyncio.to_thread(namespace.wait_workload, "Deployment", "web")
        pods = await list_pods(namespace, "web")

        smaller = config_map(space, "settings", {"a": "1"})
        _, log = await apply_and_wait(client, smaller, web)
        assert (await read(client, smaller))["data"] == {"a": "1"}
        assert await list_pods(namespace, "web") == pods
        assert "fields of 'kubectl-client-side-apply' are ours now" in log.text

        said = await run_kubectl_apply(cluster, space, smaller, web)
        assert await list_pods(namespace, "web") == pods
        assert "deployment.apps/web unchanged" in said or "configured" in said
        live = await read(client, web)
        assert live["metadata"]["generation"] == 1

        await run_kubectl_apply(cluster, space, config_map(space, "settings", {"b": "2"}), web)
        assert (await read(client, smaller))["data"] == {"b": "2"}

        await apply_and_wait(client, config_map(space, "settings", {"c": "3"}), web)
        assert (await read(client, smaller))["data"] == {"c": "3"}
        assert await list_pods(namespace, "web") == pods

    async def test_what_we_have_created_can_go_to_kubectl_without_a_restart(
        self, cluster: RealCluster, client: Cluster, namespace: Namespace
    ) -> None:
        space = namespace.name
        manifests = (config_map(space, "settings", {"a": "1"}), deployment(space, "web"))
        await apply_and_wait(client, *manifests)
        pods = await list_pods(namespace, "web")

        await run_kubectl_apply(cluster, space, *manifests)
        await run_kubectl_apply(cluster, space, config_map(space, "settings", {}), manifests[1])

        assert await list_pods(namespace, "web") == pods
        assert not (await read(client, manifests[0])).get("data")

    async def test_a_field_that_leaves_git_after_the_take_over_leaves_the_cluster(
        self, cluster: RealCluster, client: Cluster, namespace: Namespace
    ) -> None:
        space = namespace.name
        await run_kubectl_apply(cluster, space, deployment(space, "web", env={"A": "1", "B": "1"}))

        await apply(client, deployment(space, "web", env={"A": "1", "B": "1"}))
        await apply(client, deployment(space, "web", env={"A": "1"}))

        live = await read(client, deployment(space, "web"))
        container = live["spec"]["template"]["spec"]["containers"][0]
        assert [each["name"] for each in container["env"]] == ["A"]
        known = json.loads(live["metadata"]["annotations"][LAST_APPLIED])
        assert known == deployment(space, "web", env={"A": "1"}).body

    async def test_an_object_whose_owners_nobody_recorded_is_taken_over(
        self, cluster: RealCluster, client: Cluster, namespace: Namespace
    ) -> None:
        """Objects of old clusters, and those whose record somebody has removed."""
        space = namespace.name
        web = deployment(space, "web", env={"KEPT": "1", "OLD": "1"})
        await run_kubectl_apply(cluster, space, web)
        await asyncio.to_thread(
            cluster.run_kubectl,
            *("--namespace", space, "patch", "deployment", "web", "--type=json", "-p"),
            '[{"op": "replace", "path": "/metadata/managedFields", "value": [{}]}]',
        )
        before = await read(client, web)
        assert not before["metadata"].get("managedFields")

        await apply(client, deployment(space, "web", env={"KEPT": "1"}))

        live = await read(client, web)
        container = live["spec"]["template"]["spec"]["containers"][0]
        assert [each["name"] for each in container["env"]] == ["KEPT"]
        assert live["metadata"]["generation"] == before["metadata"]["generation"] + 1
        assert live["spec"]["replicas"] == 2


class TestReplicas:
    async def test_what_is_scaled_stays_so_and_the_log_says_who_did_it(
        self, cluster: RealCluster, client: Cluster, namespace: Namespace
    ) -> None:
        space = namespace.name
        await apply(client, deployment(space, "web", replicas=2))
        await asyncio.to_thread(
            cluster.run_kubectl,
            *("--namespace", space, "scale", "deployment/web", "--replicas=4"),
        )

        _, log = await apply(client, deployment(space, "web", replicas=3, env={"A": "1"}))

        assert (await read(client, deployment(space, "web")))["spec"]["replicas"] == 4
        assert "replicas stay 4, git says 3: they belong to 'kubectl'" in log.text

    @pytest.mark.parametrize("of_git", [3, None])
    async def test_with_an_autoscaler_replicas_stay_although_nobody_else_owns_them(
        self, client: Cluster, space: str, of_git: int | None
    ) -> None:
        """To leave out what only we own would set it to one."""
        scaler = mark(
            {
                "apiVersion": "autoscaling/v2",
                "kind": "HorizontalPodAutoscaler",
                "metadata": {"name": "web"},
                "spec": {
                    "scaleTargetRef": {
                        "apiVersion": "apps/v1",
                        "kind": "Deployment",
                        "name": "web",
                    },
                    "minReplicas": 2,
                    "maxReplicas": 9,
                },
            },
            space,
        )
        await apply(client, deployment(space, "web", replicas=5), scaler)

        await apply(client, deployment(space, "web", replicas=of_git, env={"A": "1"}), scaler)
        await apply(client, deployment(space, "web", replicas=of_git, env={"A": "2"}), scaler)

        assert (await read(client, deployment(space, "web")))["spec"]["replicas"] == 5


class TestKinds:
    async def test_a_definition_and_its_objects_are_applied_in_one_set(
        self, client: Cluster, space: str
    ) -> None:
        group = f"{space}.example.com"
        definition = mark(make_definition(group), "")
        widgets = [
            mark(
                {
                    "apiVersion": f"{group}/v1",
                    "kind": "Widget",
                    "metadata": {"name": f"w-{each}"},
                    "spec": {"size": each},
                },
                space,
            )
            for each in range(6)
        ]
        try:
            applied, _ = await apply(client, *widgets, definition)
            again, _ = await apply(client, *widgets, definition)

            assert len(applied) == len(again) == 7
            assert applied.objects[0].ref.resource.kind == "CustomResourceDefinition"
        finally:
            await client.delete(await client.ref_of(definition.body))

    async def test_a_namespace_is_made_first(self, client: Cluster, space: str) -> None:
        name = f"{space}-made"
        try:
            await apply_manifests(
                client,
                [config_map(name, "settings", {})],
                log=RecordingLog(),
                create_namespaces=True,
            )
            assert await read(client, config_map(name, "settings", {}))
        finally:
            resource = await client.find_resource("v1", "Namespace")
            await client.delete(type(await client.ref_of(make_namespace(name)))(resource, "", name))

    async def test_secrets_lose_the_texts_that_leave_git(self, client: Cluster, space: str) -> None:
        def secret(**texts: str) -> Manifest:
            return mark(
                {
                    "apiVersion": "v1",
                    "kind": "Secret",
                    "metadata": {"name": "login"},
                    "stringData": texts,
                },
                space,
            )

        await apply(client, secret(user="me", old="x"))
        await apply(client, secret(user="me"))

        assert (await read(client, secret()))["data"] == {"user": "bWU="}


class TestWrongManifests:
    """The server answers 500 to these; nobody else could make it right, so it is asked once."""

    @pytest.mark.parametrize(
        ("field", "value", "sentence"),
        [
            ("env", [{"name": "A"}, {"name": "A"}], "duplicate entries for key"),
            ("image", 5, "expected string"),
            ("imaje", "x", "field not declared in schema"),
        ],
    )
    async def test_a_manifest_that_does_not_fit_its_kind_is_told_at_once(
        self, client: Cluster, space: str, field: str, value: object, sentence: str
    ) -> None:
        web = deployment(space, "web")
        web.body["spec"]["template"]["spec"]["containers"][0][field] = value
        retries: list[RetryNotice] = []

        with pytest.raises(StageFailedError, match=sentence) as failed:
            await apply(client.report_to(on_retry=retries.append), web)

        assert retries == []
        assert ("sync-by-replace" in failed.value.reason()) is (field == "env")

    async def test_a_field_that_cannot_change_names_the_way_out(
        self, client: Cluster, space: str
    ) -> None:
        web = deployment(space, "web")
        await apply(client, web)
        web.body["spec"]["selector"]["matchLabels"]["new"] = "1"
        web.body["spec"]["template"]["metadata"]["labels"]["new"] = "1"

        with pytest.raises(StageFailedError, match="immutable") as failed:
            await apply(client, web)
        assert "pipecd.dev/force-sync-by-replace: enabled" in failed.value.reason()

        web.metadata["annotations"]["pipecd.dev/force-sync-by-replace"] = "enabled"
        await apply(client, web)

    async def test_a_job_is_made_anew_once_for_each_run(self, client: Cluster, space: str) -> None:
        """A stage that is killed and continued must not run it twice."""
        containers = [{"name": "app", "image": "registry.example/app:1"}]
        job = mark(
            {
                "apiVersion": "batch/v1",
                "kind": "Job",
                "metadata": {"name": "migrate"},
                "spec": {
                    "template": {"spec": {"restartPolicy": "Never", "containers": containers}}
                },
            },
            space,
        )
        job.metadata["annotations"]["pipecd.dev/force-sync-by-replace"] = "enabled"
        uids = []
        for run in ("one", "one", "two"):
            applied = await apply_manifests(client, [job], log=RecordingLog(), run_id=run)
            uids.append(applied.objects[0].uid)

        assert uids[0] == uids[1] != uids[2]


class TestReadiness:
    async def test_a_rollout_is_waited_for(self, client: Cluster, namespace: Namespace) -> None:
        _, log = await apply_and_wait(client, deployment(namespace.name, "web"))

        assert log.lines[-1] == "all 1 workloads are ready"
        assert len(await list_pods(namespace, "web")) == 2

    async def test_a_crashing_rollout_names_the_pod_and_its_last_lines(
        self, client: Cluster, namespace: Namespace
    ) -> None:
        await asyncio.to_thread(
            lambda: namespace.set_log(
                ["up again"], previous=["begun", "panic: no database"], container="app"
            )
        )
        web = with_image(deployment(namespace.name, "web"), "registry.example/app:2-crash")
        web.body["spec"]["progressDeadlineSeconds"] = 3
        log = RecordingLog()
        applied = await apply_manifests(client, [web], log=log)

        with pytest.raises(NotReadyError, match=r"Deployment:.*:web is not ready") as failed:
            await wait_ready(client, applied, log=log, within=LONG)

        assert "made no progress within its deadline" in str(failed.value)
        assert "CrashLoopBackOff" in log.text
        assert "panic: no database" in log.text

    async def test_the_stages_own_limit_ends_it_too(
        self, client: Cluster, namespace: Namespace
    ) -> None:
        web = with_image(deployment(namespace.name, "web"), "registry.example/app:missing")

        with pytest.raises(NotReadyError, match="after 4 seconds"):
            await apply_and_wait(client, web, within=timedelta(seconds=4))

    async def test_back_to_what_ran_before_a_missed_deadline_is_not_taken_for_the_miss(
        self, client: Cluster, namespace: Namespace
    ) -> None:
        """The server goes on showing the missed deadline for a moment; a rollback must not fail."""
        good = deployment(namespace.name, "web")
        good.body["spec"]["progressDeadlineSeconds"] = 3
        await apply_and_wait(client, good)
        bad = with_image(good, "registry.example/app:2-crash")
        with pytest.raises(NotReadyError):
            await apply_and_wait(client, bad)

        _, log = await apply_and_wait(client, good)

        assert log.lines[-1] == "all 1 workloads are ready"

    async def test_stateful_and_daemon_sets_are_waited_for(
        self, client: Cluster, namespace: Namespace
    ) -> None:
        stateful = deployment(namespace.name, "db")
        stateful.body["kind"] = "StatefulSet"
        stateful.body["spec"]["serviceName"] = "db"
        daemon = deployment(namespace.name, "agent", replicas=None)
        daemon.body["kind"] = "DaemonSet"

        _, log = await apply_and_wait(client, stateful, daemon)

        assert log.lines[-1] == "all 2 workloads are ready"


class TestPruning:
    async def test_a_deployment_goes_with_its_pods_and_its_service(
        self, client: Cluster, namespace: Namespace
    ) -> None:
        space = namespace.name
        kept = config_map(space, "kept", {})
        service = mark(
            {
                "apiVersion": "v1",
                "kind": "Service",
                "metadata": {"name": "web"},
                "spec": {"selector": {"app": "web"}, "ports": [{"port": 80}]},
            },
            space,
        )
        await apply_and_wait(client, kept, service, deployment(space, "web"))
        log = RecordingLog()

        deleted = await prune(client, application_id=name_application(space), keep=[kept], log=log)

        assert [each.kind for each in deleted] == ["Deployment", "Service"]


def with_image(manifest: Manifest, image: str) -> Manifest:
    changed = manifest.copy()
    changed.body["spec"]["template"]["spec"]["containers"][0]["image"] = image
    return changed


def make_namespace(name: str) -> Object:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


def make_definition(group: str) -> dict[str, Any]:
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"widgets.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"kind": "Widget", "plural": "widgets"},
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": schema},
                }
            ],
        },
    }
