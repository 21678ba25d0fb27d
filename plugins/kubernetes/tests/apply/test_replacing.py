# SPDX-License-Identifier: Apache-2.0
"""Objects that are replaced, and what is sent for a manifest."""

import pytest
from pipecd_plugin_kubernetes.apply import (
    ApplyEffect,
    apply_manifests,
)
from pipecd_plugin_kubernetes.client import (
    Object,
)
from pipecd_plugin_kubernetes.manifest import Manifest

from pipecd_test_support.apply_contract import (
    LAST_APPLIED,
    apply,
    config_map,
    list_managers,
    mark,
    write_last_applied,
)
from pipecd_test_support.fake_cluster import FakeCluster
from pipecd_test_support.recording_log import RecordingLog

SPACE = "default"


@pytest.fixture
def cluster() -> FakeCluster:
    return FakeCluster()


class TestReplacing:
    async def test_an_object_is_replaced_as_a_whole(self, cluster: FakeCluster) -> None:
        await apply(cluster, config_map(SPACE, "settings", {"a": "1"}))
        await cluster.write_as("somebody", config_map(SPACE, "settings", {}).body, add_data)

        applied, _ = await apply(cluster, replaced({"a": "2"}))

        assert cluster.find("ConfigMap", "settings")["data"] == {"a": "2"}
        assert [each.effect for each in applied] == [ApplyEffect.REPLACED]

    @pytest.mark.parametrize("how", ["sync-by-replace", "force-sync-by-replace"])
    async def test_what_is_not_there_is_created(self, cluster: FakeCluster, how: str) -> None:
        applied, _ = await apply(cluster, replaced({"a": "2"}, how=how))

        assert cluster.find("ConfigMap", "settings")["data"] == {"a": "2"}
        assert [each.effect for each in applied] == [ApplyEffect.CREATED]

    async def test_by_force_it_is_deleted_and_made_anew_once_for_each_run(
        self, cluster: FakeCluster
    ) -> None:
        """A run that is killed afterwards and continued must not run a Job a second time."""
        manifest = replaced({"a": "2"}, how="force-sync-by-replace")
        uids = []
        for run in ("deploy-1/stage-1", "deploy-1/stage-1", "deploy-2/stage-1"):
            applied = await apply_manifests(cluster, [manifest], log=RecordingLog(), run_id=run)
            uids.append(applied.objects[0].uid)

        assert uids[0] == uids[1] != uids[2]

    async def test_what_was_replaced_can_be_applied_again(self, cluster: FakeCluster) -> None:
        """The fields that we have written by replacing are ours when we apply."""
        await apply(cluster, replaced({"a": "2", "old": "x"}))

        await apply(cluster, config_map(SPACE, "settings", {"a": "2"}))

        live = cluster.find("ConfigMap", "settings")
        assert live["data"] == {"a": "2"}
        assert list_managers(live) == {("piped", "Apply")}


def replaced(data: dict[str, str], *, how: str = "sync-by-replace") -> Manifest:
    manifest = config_map(SPACE, "settings", data)
    manifest.metadata["annotations"][f"pipecd.dev/{how}"] = "enabled"
    return manifest


def add_data(body: Object) -> None:
    body["data"]["theirs"] = "x"


class TestBodies:
    async def test_plain_texts_of_a_secret_that_leave_git_disappear(
        self, cluster: FakeCluster
    ) -> None:
        """The server keeps no owners of `stringData`, so they are sent as `data`."""
        await apply(cluster, secret({"user": "me", "old": "x"}))

        await apply(cluster, secret({"user": "me"}))

        assert cluster.find("Secret", "login")["data"] == {"user": "bWU="}

    async def test_what_only_the_server_sets_is_left_out(self, cluster: FakeCluster) -> None:
        """Manifests are often copied out of a cluster."""
        manifest = config_map(SPACE, "settings", {})
        manifest.metadata.update(
            uid="of-another-life",
            resourceVersion="17",
            creationTimestamp=None,
            managedFields=[{"manager": "x"}],
        )

        applied, _ = await apply(cluster, manifest)
        again, _ = await apply(cluster, manifest)

        assert [each.effect for each in (*applied, *again)] == [
            ApplyEffect.CREATED,
            ApplyEffect.UNCHANGED,
        ]

    async def test_a_last_applied_annotation_that_would_be_too_long_goes(
        self, cluster: FakeCluster
    ) -> None:
        manifest = config_map(SPACE, "settings", {"a": "1"})
        await cluster.create(write_last_applied(manifest), manager="kubectl-client-side-apply")

        _, log = await apply(cluster, config_map(SPACE, "settings", {"a": "x" * 250_000}))

        annotations = cluster.find("ConfigMap", "settings")["metadata"]["annotations"]
        assert LAST_APPLIED not in annotations
        assert "too large for the annotation" in log.text


def secret(texts: dict[str, str]) -> Manifest:
    return mark(
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "login"}, "stringData": texts},
        SPACE,
    )
