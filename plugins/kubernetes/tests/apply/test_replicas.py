# SPDX-License-Identifier: Apache-2.0
"""Replicas that an autoscaler decides about stay; otherwise those of git are applied."""

from typing import Any

import pytest
from pipecd_plugin_kubernetes.apply import (
    apply_manifests,
)
from pipecd_plugin_kubernetes.client import (
    ForbiddenError,
    Object,
)

from pipecd_test_support.apply_contract import (
    apply,
    autoscaler,
    deployment,
    write_last_applied,
)
from pipecd_test_support.fake_cluster import FakeCluster
from pipecd_test_support.recording_log import RecordingLog

SPACE = "default"


@pytest.fixture
def cluster() -> FakeCluster:
    return FakeCluster()


def scale(replicas: int) -> Any:
    def change(body: Object) -> None:
        body["spec"]["replicas"] = replicas

    return change


class TestReplicas:
    async def test_replicas_that_an_autoscaler_has_written_stay(self, cluster: FakeCluster) -> None:
        manifest = deployment(SPACE, "web", replicas=2)
        await apply(cluster, manifest)
        await cluster.write_as(
            "kube-controller-manager", manifest.body, scale(7), subresource="scale"
        )

        _, log = await apply(cluster, deployment(SPACE, "web", replicas=3, env={"A": "1"}))

        live = cluster.find("Deployment", "web")
        assert live["spec"]["replicas"] == 7
        assert "replicas stay 7, git says 3: they belong to 'kube-controller-manager'" in log.text

    @pytest.mark.parametrize("of_git", [2, None])
    async def test_replicas_that_an_autoscaler_is_about_to_write_stay(
        self, cluster: FakeCluster, of_git: int | None
    ) -> None:
        """Nobody but us owns them yet: leaving them out would set them to one."""
        await apply(cluster, deployment(SPACE, "web", replicas=5), autoscaler(SPACE, "web"))

        await apply(cluster, deployment(SPACE, "web", replicas=of_git), autoscaler(SPACE, "web"))

        assert cluster.find("Deployment", "web")["spec"]["replicas"] == 5

    async def test_an_autoscaler_that_only_the_cluster_has_counts_too(
        self, cluster: FakeCluster
    ) -> None:
        await apply(cluster, deployment(SPACE, "web", replicas=5))
        await cluster.write_as("somebody", autoscaler(SPACE, "web").body)

        await apply(cluster, deployment(SPACE, "web", replicas=2))

        assert cluster.find("Deployment", "web")["spec"]["replicas"] == 5

    async def test_an_autoscaler_of_something_else_changes_nothing(
        self, cluster: FakeCluster
    ) -> None:
        await apply(cluster, deployment(SPACE, "web", replicas=5), autoscaler(SPACE, "other"))

        await apply(cluster, deployment(SPACE, "web", replicas=2), autoscaler(SPACE, "other"))

        assert cluster.find("Deployment", "web")["spec"]["replicas"] == 2

    async def test_replicas_that_the_stage_sets_are_set(self, cluster: FakeCluster) -> None:
        manifest = deployment(SPACE, "web", replicas=2)
        await apply(cluster, manifest)
        await cluster.write_as("hpa", manifest.body, scale(7), subresource="scale")

        await apply_manifests(cluster, [manifest], log=RecordingLog(), sets_replicas=[manifest.key])

        assert cluster.find("Deployment", "web")["spec"]["replicas"] == 2

    async def test_a_new_workload_begins_with_the_replicas_of_git(
        self, cluster: FakeCluster
    ) -> None:
        await apply(cluster, deployment(SPACE, "web", replicas=4), autoscaler(SPACE, "web"))

        assert cluster.find("Deployment", "web")["spec"]["replicas"] == 4

    async def test_replicas_survive_a_take_over_and_a_replacement(
        self, cluster: FakeCluster
    ) -> None:
        manifest = deployment(SPACE, "web", replicas=2)
        await cluster.create(write_last_applied(manifest), manager="kubectl-client-side-apply")
        await cluster.write_as("hpa", manifest.body, scale(7), subresource="scale")

        await apply(cluster, manifest)
        manifest.metadata["annotations"]["pipecd.dev/sync-by-replace"] = "enabled"
        await apply(cluster, manifest)

        assert cluster.find("Deployment", "web")["spec"]["replicas"] == 7

    async def test_where_autoscalers_cannot_be_listed_the_log_says_so(
        self, cluster: FakeCluster
    ) -> None:
        def refuse(what: str, name: str) -> None:
            if what == "list" and "HorizontalPodAutoscaler" in name:
                raise ForbiddenError("cannot list", http_status=403)

        cluster.on_call = refuse

        _, log = await apply(cluster, deployment(SPACE, "web"))

        assert "autoscalers are not known" in log.text
        assert cluster.has("Deployment", "web")
