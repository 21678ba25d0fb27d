# SPDX-License-Identifier: Apache-2.0
"""What applying promises on every cluster: the one in memory and a real one run these tests."""

import json
from typing import Any

import pytest
from pipecd_plugin_kubernetes.apply import (
    Applied,
    ApplyEffect,
    ApplyError,
    DeletionRefusedError,
    apply_manifests,
    find_managed,
    prune,
    remove_variant,
)
from pipecd_plugin_kubernetes.client import Cluster, Object
from pipecd_plugin_kubernetes.manifest import Manifest

from pipecd_test_support.recording_log import RecordingLog

LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
APPLICATION = "app-of-the-contract"


def name_application(space: str) -> str:
    """Returns the id of the application of a namespace: tests share a cluster."""
    return APPLICATION if space in {"", "default"} else f"{APPLICATION}-{space}"


def autoscaler(space: str, target: str) -> Manifest:
    return mark(
        {
            "apiVersion": "autoscaling/v2",
            "kind": "HorizontalPodAutoscaler",
            "metadata": {"name": f"{target}-scaler"},
            "spec": {
                "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": target}
            },
        },
        space,
    )


def config_map(space: str, name: str, /, data: dict[str, str], **annotations: str) -> Manifest:
    """Returns a ConfigMap of the application, as piped marks it."""
    return mark(
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data},
        space,
        **annotations,
    )


def deployment(
    space: str, name: str, /, *, replicas: int | None = 2, env: dict[str, str] | None = None
) -> Manifest:
    """Returns a Deployment of the application, as piped marks it."""
    container: dict[str, Any] = {"name": "app", "image": "registry.example/app:1"}
    if env:
        container["env"] = [{"name": key, "value": value} for key, value in env.items()]
    spec: dict[str, Any] = {
        "selector": {"matchLabels": {"app": name}},
        "template": {
            "metadata": {"labels": {"app": name}},
            "spec": {"containers": [container]},
        },
    }
    if replicas is not None:
        spec["replicas"] = replicas
    return mark(
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": spec},
        space,
    )


def mark(body: Object, space: str, /, **annotations: str) -> Manifest:
    """Returns a manifest with the marks of piped; `pipecd__order` is `pipecd.dev/order`."""
    manifest = Manifest(body).copy()
    marks = {
        "pipecd.dev/managed-by": "piped",
        "pipecd.dev/application": name_application(space),
    }
    if space:
        manifest.metadata["namespace"] = space
    manifest.metadata["labels"] = {**manifest.labels, **marks}
    manifest.metadata["annotations"] = {
        **manifest.annotations,
        **marks,
        **{
            key.replace("pipecd__", "pipecd.dev/").replace("_", "-"): value
            for key, value in annotations.items()
        },
    }
    return manifest


def write_last_applied(manifest: Manifest) -> Object:
    """Returns what `kubectl apply` creates of a manifest on the client's side."""
    body = manifest.copy()
    text = json.dumps(body.body, sort_keys=True, separators=(",", ":"))
    body.metadata["annotations"] = {**body.annotations, LAST_APPLIED: text + "\n"}
    return body.body


async def apply(cluster: Cluster, *manifests: Manifest) -> tuple[Applied, RecordingLog]:
    """Applies manifests; returns what became of them, and the log."""
    log = RecordingLog()
    return await apply_manifests(cluster, manifests, log=log), log


async def read(cluster: Cluster, manifest: Manifest) -> Object:
    """Returns the live object of a manifest."""
    live = await cluster.get(await cluster.ref_of(manifest.body))
    assert live is not None, f"{manifest.key} is not there"
    return live


async def exists(cluster: Cluster, manifest: Manifest) -> bool:
    """Tells whether the object of a manifest is there."""
    return await cluster.get(await cluster.ref_of(manifest.body)) is not None


def list_managers(live: Object) -> set[tuple[str, str]]:
    """Returns who owns fields of an object, and how they came to it."""
    return {(each["manager"], each["operation"]) for each in live["metadata"]["managedFields"]}


class ApplyContract:
    """Inherit it, with the fixtures `client` and `space`, a namespace of the test's own."""

    async def test_what_is_new_is_created_and_the_second_time_nothing_changes(
        self, client: Cluster, space: str
    ) -> None:
        """Whoever is killed and continues must find everything done, and touch nothing."""
        manifest = config_map(space, "settings", {"a": "1"})

        first, _ = await apply(client, manifest)
        second, log = await apply(client, manifest)

        assert [each.effect for each in (*first, *second)] == [
            ApplyEffect.CREATED,
            ApplyEffect.UNCHANGED,
        ]
        assert log.lines == [f"unchanged :ConfigMap:{space}:settings"]
        assert list_managers(await read(client, manifest)) == {("piped", "Apply")}

    async def test_a_field_removed_from_git_disappears(self, client: Cluster, space: str) -> None:
        await apply(client, config_map(space, "settings", {"a": "1", "b": "2"}))

        await apply(client, config_map(space, "settings", {"a": "1"}))

        live = await read(client, config_map(space, "settings", {}))
        assert live["data"] == {"a": "1"}

    async def test_fields_of_others_stay(self, client: Cluster, space: str) -> None:
        """A controller that adds to an object of ours is not fought."""
        manifest = config_map(space, "settings", {"a": "1"})
        await apply(client, manifest)
        await client.apply(_theirs(space, {"c": "3"}), manager="somebody")

        await apply(client, config_map(space, "settings", {"a": "2"}))

        assert (await read(client, manifest))["data"] == {"a": "2", "c": "3"}

    async def test_a_field_of_another_manager_is_taken_and_the_log_names_both(
        self, client: Cluster, space: str
    ) -> None:
        """Git is the truth, but whoever reads the log learns whom it was taken from."""
        manifest = config_map(space, "settings", {"a": "1"})
        await apply(client, manifest)
        await client.apply(_theirs(space, {"a": "9"}), manager="somebody", force=True)

        _, log = await apply(client, manifest)

        assert (await read(client, manifest))["data"] == {"a": "1"}
        assert "taken from others: 'somebody' (.data.a)" in log.text

    async def test_the_annotation_makes_a_conflict_fail_and_names_manager_and_field(
        self, client: Cluster, space: str
    ) -> None:
        await apply(client, config_map(space, "settings", {"a": "1"}))
        await client.apply(_theirs(space, {"a": "9"}), manager="somebody", force=True)
        careful = config_map(space, "settings", {"a": "1"}, pipecd__fail_on_conflict="true")

        with pytest.raises(ApplyError, match=r"'somebody' \(\.data\.a\)"):
            await apply(client, careful)

        assert (await read(client, careful))["data"] == {"a": "9"}

    @pytest.mark.parametrize("tool", ["kubectl-client-side-apply", "argocd-controller", "kubectl"])
    async def test_what_client_side_apply_left_is_taken_over(
        self, client: Cluster, space: str, tool: str
    ) -> None:
        """Fields that git no longer has disappear, and no manager of before is left to own them."""
        before = config_map(space, "settings", {"a": "1", "old": "x"})
        await client.create(write_last_applied(before), manager=tool)
        now = config_map(space, "settings", {"a": "1"})

        _, log = await apply(client, now)

        live = await read(client, now)
        assert live["data"] == {"a": "1"}
        assert list_managers(live) == {("piped", "Apply")}
        assert f"fields of '{tool}' are ours now" in log.text

    async def test_many_objects_that_others_applied_are_taken_over(
        self, client: Cluster, space: str
    ) -> None:
        """They carry no label of ours yet, so that our list does not have them."""
        names = [f"settings-{each}" for each in range(6)]
        for name in names:
            theirs = _theirs(space, {"a": "1", "old": "x"}, name)
            await client.create(theirs, manager="argocd-controller")
        manifests = [config_map(space, name, {"a": "1"}) for name in names]

        applied, _ = await apply(client, *manifests)

        assert {each.effect for each in applied} == {ApplyEffect.CHANGED}
        for each in manifests:
            assert (await read(client, each))["data"] == {"a": "1"}

    async def test_the_last_applied_annotation_is_kept_true(
        self, client: Cluster, space: str
    ) -> None:
        """Whoever goes back to `kubectl apply` finds there what was applied last, by us."""
        before = config_map(space, "settings", {"a": "1", "old": "x"})
        await client.create(write_last_applied(before), manager="kubectl-client-side-apply")
        now = config_map(space, "settings", {"a": "2"})

        await apply(client, now)

        live = await read(client, now)
        known = json.loads(live["metadata"]["annotations"][LAST_APPLIED])
        assert known == now.body

    async def test_an_object_that_never_had_the_annotation_does_not_get_it(
        self, client: Cluster, space: str
    ) -> None:
        manifest = config_map(space, "settings", {"a": "1"})
        await apply(client, manifest)
        await apply(client, manifest)

        assert LAST_APPLIED not in (await read(client, manifest))["metadata"]["annotations"]

    async def test_a_take_over_of_a_deployment_changes_its_spec_once(
        self, client: Cluster, space: str
    ) -> None:
        """Each change of the template would be a rollout of its own."""
        before = deployment(space, "web", env={"OLD": "1", "KEPT": "1"})
        made = await client.create(write_last_applied(before), manager="kubectl-client-side-apply")

        await apply(client, deployment(space, "web", env={"KEPT": "1", "NEW": "1"}))

        live = await read(client, before)
        container = live["spec"]["template"]["spec"]["containers"][0]
        assert {each["name"] for each in container["env"]} == {"KEPT", "NEW"}
        assert live["metadata"]["generation"] == made["metadata"]["generation"] + 1

    async def test_a_take_over_without_a_difference_leaves_the_spec_alone(
        self, client: Cluster, space: str
    ) -> None:
        manifest = deployment(space, "web", env={"KEPT": "1"})
        made = await client.create(
            write_last_applied(manifest), manager="kubectl-client-side-apply"
        )

        await apply(client, manifest)

        live = await read(client, manifest)
        assert live["metadata"]["generation"] == made["metadata"]["generation"]

    async def test_many_objects_of_a_kind_are_applied_and_logged_in_the_order_of_git(
        self, client: Cluster, space: str
    ) -> None:
        manifests = [config_map(space, f"settings-{each}", {"a": "1"}) for each in range(30)]

        first, log = await apply(client, *manifests)
        second, _ = await apply(client, *manifests)

        assert {each.effect for each in first} == {ApplyEffect.CREATED}
        assert {each.effect for each in second} == {ApplyEffect.UNCHANGED}
        assert log.lines == [f"created {each.key}" for each in manifests]

    async def test_prune_deletes_what_git_no_longer_has_and_nothing_else(
        self, client: Cluster, space: str
    ) -> None:
        kept, gone = config_map(space, "kept", {}), config_map(space, "gone", {})
        await apply(client, kept, gone)
        foreign = Manifest(_theirs(space, {"a": "1"}))
        await client.apply(foreign.body, manager="somebody")
        log = RecordingLog()

        deleted = await prune(client, application_id=name_application(space), keep=[kept], log=log)

        assert deleted == [gone.key]
        assert await exists(client, kept)
        assert await exists(client, foreign)
        assert not await exists(client, gone)

    async def test_pruning_many_fails_before_the_first_deletion_and_lists_them(
        self, client: Cluster, space: str
    ) -> None:
        manifests = [config_map(space, f"settings-{each}", {}) for each in range(8)]
        await apply(client, *manifests)

        with pytest.raises(DeletionRefusedError, match="7 of the application's 8") as refused:
            await prune(
                client,
                application_id=name_application(space),
                keep=manifests[:1],
                log=RecordingLog(),
            )

        assert "deletion.allowMany" in refused.value.reason()
        for each in manifests[1:]:
            assert str(each.key) in str(refused.value)
            assert await exists(client, each)

    async def test_a_variant_is_removed_as_a_whole_and_alone(
        self, client: Cluster, space: str
    ) -> None:
        primary = config_map(space, "settings", {})
        canary = config_map(space, "settings-canary", {})
        canary.metadata["labels"]["pipecd.dev/variant"] = "canary"
        await apply(client, primary, canary)

        deleted = await remove_variant(
            client,
            application_id=name_application(space),
            variant=("pipecd.dev/variant", "canary"),
            log=RecordingLog(),
        )

        assert deleted == [canary.key]
        assert await exists(client, primary)
        found = await find_managed(client, application_id=name_application(space))
        assert [each["metadata"]["name"] for each in found] == ["settings"]


def _theirs(space: str, data: dict[str, str], name: str = "settings") -> Object:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": space},
        "data": data,
    }
