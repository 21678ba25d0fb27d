# SPDX-License-Identifier: Apache-2.0
"""What goes wrong while manifests are applied, and in how many calls it is done."""

import pytest
from pipecd_plugin_kubernetes.apply import (
    ApplyEffect,
    ApplyError,
)
from pipecd_plugin_kubernetes.client import (
    ForbiddenError,
    InvalidError,
    UnavailableError,
)

from pipecd_test_support.apply_contract import (
    apply,
    config_map,
    deployment,
)
from pipecd_test_support.fake_cluster import FakeCluster

SPACE = "default"


@pytest.fixture
def cluster() -> FakeCluster:
    return FakeCluster()


class TestFaults:
    async def test_an_immutable_field_names_the_way_out(self, cluster: FakeCluster) -> None:
        def refuse(what: str, name: str) -> None:
            if what == "apply":
                raise InvalidError("spec.selector: field is immutable", http_status=422)

        cluster.on_call = refuse

        with pytest.raises(ApplyError, match="immutable") as failed:
            await apply(cluster, deployment(SPACE, "web"))

        assert "pipecd.dev/force-sync-by-replace: enabled" in failed.value.reason()

    async def test_a_server_that_does_not_answer_fails_with_its_sentence(
        self, cluster: FakeCluster
    ) -> None:
        def refuse(what: str, name: str) -> None:
            if what == "apply":
                raise UnavailableError("cannot apply: the webhook did not answer", http_status=500)

        cluster.on_call = refuse

        with pytest.raises(UnavailableError, match="the webhook did not answer"):
            await apply(cluster, config_map(SPACE, "settings", {}))

    async def test_a_namespace_whose_objects_cannot_be_listed_is_read_one_by_one(
        self, cluster: FakeCluster
    ) -> None:
        manifests = [config_map(SPACE, name, {}) for name in "abcde"]
        await apply(cluster, *manifests)

        def refuse(what: str, name: str) -> None:
            if what == "list":
                raise ForbiddenError("cannot list", http_status=403)

        cluster.on_call = refuse

        applied, _ = await apply(cluster, *manifests)

        assert {each.effect for each in applied} == {ApplyEffect.UNCHANGED}

    async def test_a_second_apply_of_many_takes_a_single_list(self, cluster: FakeCluster) -> None:
        """What is as it should be costs nothing."""
        manifests = [config_map(SPACE, f"settings-{each}", {"a": "1"}) for each in range(50)]
        await apply(cluster, *manifests)
        first = len(cluster.calls)
        await apply(cluster, *manifests)

        assert first == 51
        assert cluster.calls[first:] == [("list", "ConfigMap (v1)")]
