# SPDX-License-Identifier: Apache-2.0
"""The order of what is applied, definitions of kinds, and namespaces."""

import asyncio
from typing import Any

import pytest
from pipecd_plugin_kubernetes.apply import (
    Applied,
    ApplyError,
    Limits,
    apply_manifests,
)
from pipecd_plugin_kubernetes.client import (
    ForbiddenError,
    InvalidError,
    Object,
    StatusCause,
    UnknownKindError,
)
from pipecd_plugin_kubernetes.manifest import Manifest

from pipecd_test_support.apply_contract import (
    apply,
    autoscaler,
    config_map,
    deployment,
    mark,
)
from pipecd_test_support.fake_cluster import FakeCluster, make_resource
from pipecd_test_support.recording_log import RecordingLog

SPACE = "default"


QUICK = Limits(
    definition_seconds=0.05, namespace_seconds=0.05, deletion_seconds=0.05, most_at_once=4
)


@pytest.fixture
def cluster() -> FakeCluster:
    return FakeCluster()


def definition(kind: str = "Widget", *, order: str = "") -> Manifest:
    plural = f"{kind.lower()}s"
    annotations = {"pipecd__order": order} if order else {}
    return mark(
        {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": f"{plural}.example.com"},
            "spec": {
                "group": "example.com",
                "scope": "Namespaced",
                "names": {"kind": kind, "plural": plural},
                "versions": [{"name": "v1"}],
            },
        },
        "",
        **annotations,
    )


def widget(name: str = "one", *, order: str = "") -> Manifest:
    annotations = {"pipecd__order": order} if order else {}
    return mark(
        {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name}},
        SPACE,
        **annotations,
    )


def namespace(name: str) -> Manifest:
    return mark({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}, "")


def list_names(applied: Applied) -> list[str]:
    return [each.ref.name for each in applied]


class TestOrder:
    async def test_the_order_that_somebody_asked_for_comes_before_that_of_kinds(
        self, cluster: FakeCluster
    ) -> None:
        applied, _ = await apply(
            cluster,
            config_map(SPACE, "last", {}, pipecd__order="10"),
            deployment(SPACE, "middle"),
            config_map(SPACE, "first", {}, pipecd__order="-1"),
        )

        assert list_names(applied) == ["first", "middle", "last"]

    async def test_a_wrong_order_counts_as_none(self, cluster: FakeCluster) -> None:
        applied, _ = await apply(
            cluster,
            config_map(SPACE, "a", {}, pipecd__order="soon"),
            config_map(SPACE, "b", {}, pipecd__order="-1"),
            config_map(SPACE, "c", {}, pipecd__order="9" * 5_000),
        )

        assert list_names(applied) == ["b", "a", "c"]

    async def test_what_pods_need_comes_before_them_and_what_acts_upon_them_after(
        self, cluster: FakeCluster
    ) -> None:
        applied, _ = await apply(
            cluster,
            autoscaler(SPACE, "web"),
            deployment(SPACE, "web"),
            config_map(SPACE, "settings", {}),
        )

        assert list_names(applied) == ["settings", "web", "web-scaler"]

    async def test_of_an_object_that_is_given_twice_the_last_is_applied_and_the_log_says_so(
        self, cluster: FakeCluster
    ) -> None:
        _, log = await apply(
            cluster, config_map(SPACE, "a", {"x": "1"}), config_map(SPACE, "a", {"x": "2"})
        )

        assert cluster.find("ConfigMap", "a")["data"] == {"x": "2"}
        assert "is given twice" in log.lines[0]

    async def test_the_same_name_in_two_namespaces_is_two_objects(self) -> None:
        cluster = FakeCluster(namespace="shop")
        await apply(cluster, namespace("default"))

        applied, _ = await apply(
            cluster, config_map("", "settings", {}), config_map("default", "settings", {})
        )

        assert [each.ref.namespace for each in applied] == ["shop", "default"]

    async def test_the_log_keeps_the_order_of_git_when_the_first_takes_longest(
        self, cluster: FakeCluster
    ) -> None:
        manifests = [config_map(SPACE, name, {}) for name in "abcdefgh"]
        seen: list[str] = []
        cluster.on_call = lambda what, name: seen.append(name) if what == "apply" else None

        _, log = await apply(cluster, *manifests)

        assert log.lines == [f"created {each.key}" for each in manifests]

    async def test_after_a_failure_nothing_more_is_begun(self, cluster: FakeCluster) -> None:
        def refuse(what: str, name: str) -> None:
            if what == "apply" and "'c'" in name:
                raise InvalidError("cannot apply ConfigMap 'c': it is wrong", http_status=422)

        cluster.on_call = refuse
        manifests = [config_map(SPACE, name, {}) for name in "abcdefghijklmnop"]

        with pytest.raises(InvalidError, match="it is wrong"):
            await apply_manifests(
                cluster, manifests, log=(log := RecordingLog()), limits=Limits(most_at_once=2)
            )

        assert cluster.has("ConfigMap", "a")
        assert not cluster.has("ConfigMap", "p")
        assert log.lines[:2] == [f"created {each.key}" for each in manifests[:2]]


class TestKinds:
    async def test_definitions_come_before_what_they_define_wherever_they_stand(
        self, cluster: FakeCluster
    ) -> None:
        applied, _ = await apply(cluster, widget(), definition())

        assert list_names(applied) == ["widgets.example.com", "one"]

    async def test_an_unknown_kind_fails_before_anything_is_applied(
        self, cluster: FakeCluster
    ) -> None:
        with pytest.raises(UnknownKindError, match="Widget"):
            await apply(cluster, config_map(SPACE, "settings", {}), widget())

        assert cluster.list_calls("apply") == []

    async def test_a_definition_that_comes_later_by_order_is_named(
        self, cluster: FakeCluster
    ) -> None:
        with pytest.raises(ApplyError, match=r"before the definition of its kind") as failed:
            await apply(cluster, widget(), definition(order="1"))

        assert "pipecd.dev/order" in failed.value.reason()

    async def test_a_definition_that_is_never_served_fails_with_a_sentence(
        self, cluster: FakeCluster
    ) -> None:
        cluster.establishes_definitions = False

        with pytest.raises(
            ApplyError, match=r"did not begin to serve its kind within 0\.05 seconds"
        ):
            await apply_manifests(
                cluster, [definition(), widget()], log=RecordingLog(), limits=QUICK
            )

    async def test_a_definition_whose_names_are_taken_fails_at_once(
        self, cluster: FakeCluster
    ) -> None:
        cluster.establishes_definitions = False
        conditions = [
            {"type": "NamesAccepted", "status": "False", "message": "widgets is taken\x1b[2J"}
        ]
        await apply_definition_with(cluster, {"conditions": conditions})

        with pytest.raises(ApplyError, match=r"widgets is taken\\x1b\[2J"):
            await apply(cluster, definition())

    async def test_a_definition_that_takes_a_moment_is_waited_for(
        self, cluster: FakeCluster
    ) -> None:
        cluster.establishes_definitions = False

        async def establish() -> None:
            await cluster.wait_until(
                lambda: cluster.has("CustomResourceDefinition", "widgets.example.com")
            )
            cluster.resources.append(make_resource("example.com", "Widget"))
            await cluster.set_status(
                definition().body, {"conditions": [{"type": "Established", "status": "True"}]}
            )

        async with asyncio.TaskGroup() as group:
            group.create_task(establish())
            applied, _ = await apply(cluster, definition(), widget())

        assert list_names(applied) == ["widgets.example.com", "one"]


async def apply_definition_with(cluster: FakeCluster, status: Object) -> None:
    await cluster.apply(definition().body)
    await cluster.set_status(definition().body, status)


class TestNamespaces:
    async def test_a_missing_namespace_fails_and_names_the_setting(
        self, cluster: FakeCluster
    ) -> None:
        with pytest.raises(ApplyError, match="there is no namespace 'shop'") as failed:
            await apply(cluster, config_map("shop", "settings", {}))

        assert "input.autoCreateNamespace" in failed.value.reason()

    async def test_a_missing_namespace_is_made_where_that_is_asked_for(
        self, cluster: FakeCluster
    ) -> None:
        manifests = [config_map("shop", name, {}) for name in "abc"]

        for _ in range(2):
            await apply_manifests(
                cluster, manifests, log=(log := RecordingLog()), create_namespaces=True
            )

        assert len(cluster.list_calls("create")) == 1
        assert "created namespace" not in log.text

    async def test_a_namespace_among_the_manifests_comes_first(self, cluster: FakeCluster) -> None:
        applied, _ = await apply(cluster, config_map("shop", "settings", {}), namespace("shop"))

        assert list_names(applied) == ["shop", "settings"]

    async def test_a_namespace_that_is_being_deleted_is_waited_for(
        self, cluster: FakeCluster
    ) -> None:
        old = await hold_namespace(cluster, "shop")

        async def finish() -> None:
            await cluster.wait_until(lambda: bool(cluster.list_calls("watch")))
            await cluster.remove(old)

        async with asyncio.TaskGroup() as group:
            group.create_task(finish())
            applied = await apply_manifests(
                cluster,
                [config_map("shop", "settings", {})],
                log=(log := RecordingLog()),
                create_namespaces=True,
            )

        assert len(applied) == 1
        assert "Namespace 'shop' is being deleted; waiting until it is gone" in log.lines

    async def test_a_namespace_that_hangs_fails_and_names_its_finalizers(
        self, cluster: FakeCluster
    ) -> None:
        await hold_namespace(cluster, "shop")

        with pytest.raises(ApplyError, match=r"it waits for its finalizers: example\.com/hold"):
            await apply_manifests(cluster, [namespace("shop")], log=RecordingLog(), limits=QUICK)

    async def test_a_namespace_that_goes_away_meanwhile_is_a_sentence(
        self, cluster: FakeCluster
    ) -> None:
        def refuse(what: str, name: str) -> None:
            if what == "apply":
                cause = StatusCause(reason="NamespaceTerminating", field="", message="")
                raise ForbiddenError("no", http_status=403, causes=[cause])

        cluster.on_call = refuse

        with pytest.raises(ApplyError, match="its namespace is being deleted"):
            await apply(cluster, config_map(SPACE, "settings", {}))


async def hold_namespace(cluster: FakeCluster, name: str) -> Any:
    def hold(body: Object) -> None:
        body["metadata"]["finalizers"] = ["example.com/hold"]

    await cluster.write_as("somebody", namespace(name).body, hold)
    ref = await cluster.ref_of(namespace(name).body)
    await cluster.delete(ref)
    return ref
