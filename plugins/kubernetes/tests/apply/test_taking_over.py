# SPDX-License-Identifier: Apache-2.0
"""Objects that somebody else has applied before, and deaths on the way."""

import json

import pytest
from pipecd_plugin_kubernetes.apply import (
    ApplyError,
)
from pipecd_plugin_kubernetes.client import (
    Object,
)

from pipecd_test_support.apply_contract import (
    LAST_APPLIED,
    apply,
    config_map,
    deployment,
    list_managers,
    write_last_applied,
)
from pipecd_test_support.fake_cluster import FakeCluster

SPACE = "default"


@pytest.fixture
def cluster() -> FakeCluster:
    return FakeCluster()


class TestTakeOver:
    async def test_an_object_that_nobody_is_recorded_for_is_taken_over_by_its_annotation(
        self, cluster: FakeCluster
    ) -> None:
        """What the tool before had applied goes with git; what the server filled in stays."""
        before = config_map(SPACE, "settings", {"a": "1", "old": "x"})
        body = write_last_applied(before)
        body["data"] = {**body["data"], "added-by-controller": "y"}
        await cluster.create(body, manager="whoever")
        await cluster.strip_owners(before.body)

        await apply(cluster, config_map(SPACE, "settings", {"a": "1"}))

        live = cluster.find("ConfigMap", "settings")
        assert live["data"] == {"a": "1", "added-by-controller": "y"}
        assert list_managers(live) == {("piped", "Apply"), ("before-first-apply", "Update")}

    async def test_what_upstream_applied_on_the_servers_side_is_taken_over(
        self, cluster: FakeCluster
    ) -> None:
        """kubectl calls itself so when a person uses it too: the marks of piped tell."""
        await cluster.apply(
            config_map(SPACE, "settings", {"a": "1", "old": "x"}).body, manager="kubectl"
        )

        await apply(cluster, config_map(SPACE, "settings", {"a": "1"}))

        assert cluster.find("ConfigMap", "settings")["data"] == {"a": "1"}

    async def test_what_a_person_applied_on_the_servers_side_stays(
        self, cluster: FakeCluster
    ) -> None:
        manifest = config_map(SPACE, "settings", {"a": "1"})
        await apply(cluster, manifest)
        theirs: Object = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "settings"},
            "data": {"b": "2"},
        }
        await cluster.apply(theirs, manager="kubectl")

        await apply(cluster, manifest)

        assert cluster.find("ConfigMap", "settings")["data"] == {"a": "1", "b": "2"}

    async def test_a_tool_that_comes_back_is_taken_over_again(self, cluster: FakeCluster) -> None:
        """To upstream and back to us: what is removed after that disappears too."""
        manifest = config_map(SPACE, "settings", {"a": "1"})
        await apply(cluster, manifest)
        body = write_last_applied(config_map(SPACE, "settings", {"a": "1", "b": "2"}))
        await cluster.replace(body, manager="kubectl-client-side-apply")

        await apply(cluster, manifest)

        live = cluster.find("ConfigMap", "settings")
        assert live["data"] == {"a": "1"}
        assert json.loads(live["metadata"]["annotations"][LAST_APPLIED]) == manifest.body

    async def test_an_object_that_changes_all_the_time_fails_with_a_sentence(
        self, cluster: FakeCluster
    ) -> None:
        manifest = config_map(SPACE, "settings", {"a": "1"})
        await cluster.create(write_last_applied(manifest), manager="kubectl-client-side-apply")
        live = cluster.find("ConfigMap", "settings")

        def disturb(what: str, name: str) -> None:
            if what == "patch":
                version = int(live["metadata"]["resourceVersion"])
                live["metadata"]["resourceVersion"] = str(version + 1)

        cluster.on_call = disturb

        with pytest.raises(ApplyError, match="was changed by somebody else each time"):
            await apply(cluster, manifest)

    @pytest.mark.parametrize("step", range(1, 8))
    async def test_killed_at_any_call_it_is_continued_to_the_same_end(
        self, cluster: FakeCluster, step: int
    ) -> None:
        before = [deployment(SPACE, name, env={"OLD": "1"}) for name in ("web", "api")]
        for each in before:
            await cluster.create(write_last_applied(each), manager="kubectl-client-side-apply")
        now = [deployment(SPACE, name, env={"NEW": "1"}) for name in ("web", "api")]
        kill_at(cluster, step)

        with pytest.raises((KilledError, ExceptionGroup)):
            await apply(cluster, *now)
        cluster.on_call = lambda what, name: None
        await apply(cluster, *now)

        for name in ("web", "api"):
            live = cluster.find("Deployment", name)
            container = live["spec"]["template"]["spec"]["containers"][0]
            assert [each["name"] for each in container["env"]] == ["NEW"]
            assert live["metadata"]["generation"] == 2


class KilledError(Exception):
    pass


def kill_at(cluster: FakeCluster, step: int) -> None:
    calls: list[str] = []

    def count(what: str, name: str) -> None:
        calls.append(what)
        if len(calls) >= step:
            raise KilledError

    cluster.on_call = count
