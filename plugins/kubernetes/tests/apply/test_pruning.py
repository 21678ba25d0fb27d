# SPDX-License-Identifier: Apache-2.0
"""What is deleted, what never is, in which order, and what stops it."""

import asyncio

import pytest
from pipecd_plugin_kubernetes.apply import (
    Applied,
    DeletionFailedError,
    DeletionPermission,
    DeletionRefusedError,
    Limits,
    ListingError,
    find_managed,
    prune,
    remove_variant,
)
from pipecd_plugin_kubernetes.client import ForbiddenError, Object, UnavailableError
from pipecd_plugin_kubernetes.manifest import Manifest, ResourceKey

from pipecd_test_support.apply_contract import (
    APPLICATION,
    apply,
    config_map,
    deployment,
    mark,
)
from pipecd_test_support.fake_cluster import FakeCluster, make_resource
from pipecd_test_support.recording_log import RecordingLog

SPACE = "default"
QUICK = Limits(deletion_seconds=0.05)


@pytest.fixture
def cluster() -> FakeCluster:
    return FakeCluster()


async def prune_all_but(
    cluster: FakeCluster,
    *keep: Manifest,
    log: RecordingLog | None = None,
    permission: DeletionPermission | None = None,
    applied: Applied | None = None,
    expected: tuple[ResourceKey, ...] = (),
    limits: Limits = QUICK,
) -> list[ResourceKey]:
    return await prune(
        cluster,
        application_id=APPLICATION,
        keep=keep,
        log=log or RecordingLog(),
        permission=permission,
        applied=applied,
        expected=expected,
        limits=limits,
    )


def service(name: str, variant: str = "") -> Manifest:
    manifest = mark({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}}, SPACE)
    return with_variant(manifest, variant)


def with_variant(manifest: Manifest, variant: str = "canary") -> Manifest:
    if variant:
        manifest.metadata["labels"]["pipecd.dev/variant"] = variant
    return manifest


def role(name: str, namespace: str = "") -> Manifest:
    return mark(
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": {"name": name},
        },
        namespace,
    )


def namespace(name: str) -> Manifest:
    return mark({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}, "")


class TestCandidates:
    async def test_what_somebody_else_owns_is_not_a_candidate(self, cluster: FakeCluster) -> None:
        """A controller copies labels, and owns what it makes."""
        kept = config_map(SPACE, "kept", {})
        await apply(cluster, kept)

        def own(body: Object) -> None:
            body["metadata"]["ownerReferences"] = [{"uid": "x"}]

        await cluster.write_as("controller", config_map(SPACE, "owned", {}).body, own)

        assert await prune_all_but(cluster, kept) == []

    async def test_labels_alone_make_no_candidate(self, cluster: FakeCluster) -> None:
        """The endpoints of a Service carry its labels, and no annotation."""
        kept = config_map(SPACE, "kept", {})
        await apply(cluster, kept)
        copied = config_map(SPACE, "copied", {})
        del copied.metadata["annotations"]
        await cluster.write_as("controller", copied.body)

        assert await prune_all_but(cluster, kept) == []

    async def test_an_object_of_another_application_is_no_candidate(
        self, cluster: FakeCluster
    ) -> None:
        kept, other = config_map(SPACE, "kept", {}), config_map(SPACE, "other", {})
        other.metadata["annotations"]["pipecd.dev/application"] = "another"
        await apply(cluster, kept, other)

        assert await prune_all_but(cluster, kept) == []

    async def test_the_namespace_default_is_the_same_as_none(self, cluster: FakeCluster) -> None:
        manifest = config_map(SPACE, "kept", {})
        await apply(cluster, manifest)
        bare = manifest.copy()
        del bare.metadata["namespace"]

        assert await prune_all_but(cluster, bare) == []

    async def test_a_manifest_without_a_namespace_is_where_the_kubeconfig_says(self) -> None:
        """The context's namespace, not `default`: nothing that was just applied may go."""
        cluster = FakeCluster(namespace="shop")
        bare = config_map("", "kept", {})
        await apply(cluster, bare)

        assert await prune_all_but(cluster, bare) == []
        assert cluster.has("ConfigMap", "kept")

    async def test_the_namespace_of_a_kind_without_one_makes_no_difference(
        self, cluster: FakeCluster
    ) -> None:
        """`input.namespace` writes it into every manifest."""
        await apply(cluster, role("reader"), config_map(SPACE, "a", {}))

        assert (
            await prune_all_but(cluster, role("reader", "shop"), config_map(SPACE, "a", {})) == []
        )

    async def test_an_object_that_two_groups_serve_is_kept_when_it_is_in_one_of_them(
        self, cluster: FakeCluster
    ) -> None:
        old = make_resource("extensions", "Ingress", plural="ingresses", version="v1beta1")
        cluster.resources.append(old)
        ingress = mark(
            {
                "apiVersion": "networking.k8s.io/v1",
                "kind": "Ingress",
                "metadata": {"name": "web"},
            },
            SPACE,
        )
        await apply(cluster, ingress)
        ref = await cluster.ref_of(ingress.body)
        cluster.state.objects[type(ref)(old, ref.namespace, ref.name)] = cluster.find(
            "Ingress", "web"
        )

        assert await prune_all_but(cluster, ingress) == []

    async def test_what_was_just_applied_is_kept_under_whatever_name(
        self, cluster: FakeCluster
    ) -> None:
        applied, _ = await apply(cluster, config_map(SPACE, "renamed", {}))

        deleted = await prune_all_but(cluster, config_map(SPACE, "other", {}), applied=applied)

        assert deleted == []

    async def test_only_the_variant_is_looked_at_where_one_is_given(
        self, cluster: FakeCluster
    ) -> None:
        primary = with_variant(config_map(SPACE, "old", {}), "primary")
        canary = with_variant(config_map(SPACE, "old-canary", {}))
        kept = with_variant(config_map(SPACE, "kept", {}), "primary")
        await apply(cluster, primary, canary, kept)

        deleted = await prune(
            cluster,
            application_id=APPLICATION,
            keep=[kept],
            variant=("pipecd.dev/variant", "primary"),
            log=RecordingLog(),
        )

        assert deleted == [primary.key]


class TestGuard:
    @pytest.mark.parametrize(("total", "deletions"), [(6, 5), (20, 6), (100, 30)])
    async def test_so_many_may_be_deleted_and_one_more_may_not(
        self, cluster: FakeCluster, total: int, deletions: int
    ) -> None:
        manifests = [config_map(SPACE, f"m-{each:03}", {}) for each in range(total)]
        await apply(cluster, *manifests)
        if deletions + 1 < total:
            with pytest.raises(DeletionRefusedError):
                await prune_all_but(cluster, *manifests[deletions + 1 :])
        assert cluster.list_calls("delete") == []

        deleted = await prune_all_but(cluster, *manifests[deletions:])

        assert len(deleted) == deletions

    async def test_the_permission_lifts_the_limit(self, cluster: FakeCluster) -> None:
        manifests = [config_map(SPACE, f"m-{each}", {}) for each in range(10)]
        await apply(cluster, *manifests)

        deleted = await prune_all_but(
            cluster, manifests[0], permission=DeletionPermission(many=True)
        )

        assert len(deleted) == 9

    async def test_what_was_decided_already_does_not_count(self, cluster: FakeCluster) -> None:
        """A rollback takes away what the failed commit has brought, however much that is."""
        manifests = [config_map(SPACE, f"m-{each}", {}) for each in range(10)]
        await apply(cluster, *manifests)

        deleted = await prune_all_but(
            cluster, manifests[0], expected=tuple(each.key for each in manifests[1:])
        )

        assert len(deleted) == 9

    async def test_nothing_to_keep_deletes_nothing(self, cluster: FakeCluster) -> None:
        """A renderer that gives nothing must not empty the cluster."""
        await apply(cluster, config_map(SPACE, "a", {}))

        with pytest.raises(DeletionRefusedError, match="there is no manifest to keep"):
            await prune_all_but(cluster)

        assert cluster.has("ConfigMap", "a")

    async def test_a_namespace_is_deleted_only_with_its_permission(
        self, cluster: FakeCluster
    ) -> None:
        kept = config_map(SPACE, "a", {})
        await apply(cluster, kept, namespace("shop"))

        with pytest.raises(DeletionRefusedError, match=":Namespace::shop") as refused:
            await prune_all_but(cluster, kept, permission=DeletionPermission(many=True))
        assert "deletion.allowNamespaces" in refused.value.reason()

        deleted = await prune_all_but(cluster, kept, permission=DeletionPermission(namespaces=True))
        assert [str(each) for each in deleted] == [":Namespace::shop"]


class TestFailsClosed:
    async def test_a_list_that_fails_deletes_nothing_and_names_what_failed(
        self, cluster: FakeCluster
    ) -> None:
        kept, gone = config_map(SPACE, "kept", {}), config_map(SPACE, "gone", {})
        await apply(cluster, kept, gone)

        def refuse(what: str, name: str) -> None:
            if what == "list" and name.startswith("ConfigMap"):
                raise UnavailableError("the server is overloaded", http_status=429)

        cluster.on_call = refuse

        with pytest.raises(ListingError, match="ConfigMap: the server is overloaded"):
            await prune_all_but(cluster, kept)
        with pytest.raises(ListingError):
            await find_managed(cluster, application_id=APPLICATION)

        assert cluster.has("ConfigMap", "gone")

    async def test_a_kind_that_may_not_be_listed_fails_the_list_but_not_the_deployment(
        self, cluster: FakeCluster
    ) -> None:
        kept, gone = config_map(SPACE, "kept", {}), config_map(SPACE, "gone", {})
        await apply(cluster, kept, gone)

        def refuse(what: str, name: str) -> None:
            if what == "list" and name.startswith("ClusterRole"):
                raise ForbiddenError("not allowed", http_status=403)

        cluster.on_call = refuse
        log = RecordingLog()

        assert await prune_all_but(cluster, kept, log=log) == []
        assert cluster.has("ConfigMap", "gone")
        assert "nothing was pruned" in log.text
        assert "ClusterRole (rbac.authorization.k8s.io): not allowed" in log.text

    async def test_a_broken_group_of_the_application_fails_and_one_of_others_is_told(
        self, cluster: FakeCluster
    ) -> None:
        kept, gone = config_map(SPACE, "kept", {}), config_map(SPACE, "gone", {})
        await apply(cluster, kept, gone)
        log = RecordingLog()

        cluster.failed_groups = {"broken.example.com": "its APIService does not answer"}
        assert await prune_all_but(cluster, kept, log=log) == []
        cluster.failed_groups = {"apps": "its APIService does not answer"}
        with pytest.raises(ListingError, match="'apps'"):
            await prune_all_but(cluster, kept, deployment(SPACE, "web"))

        assert "the API group 'broken.example.com': its APIService does not answer" in log.text
        assert cluster.has("ConfigMap", "gone")

    async def test_broken_metrics_hold_nothing_up(self, cluster: FakeCluster) -> None:
        """The group that is broken most often holds no objects at all."""
        kept, gone = config_map(SPACE, "kept", {}), config_map(SPACE, "gone", {})
        await apply(cluster, kept, gone)
        cluster.failed_groups = {"metrics.k8s.io": "no endpoints"}

        assert await prune_all_but(cluster, kept) == [gone.key]

    async def test_a_deletion_that_fails_fails_the_stage(self, cluster: FakeCluster) -> None:
        kept, gone = config_map(SPACE, "kept", {}), config_map(SPACE, "gone", {})
        await apply(cluster, kept, gone)

        def refuse(what: str, name: str) -> None:
            if what == "delete":
                raise ForbiddenError("cannot delete ConfigMap 'gone'", http_status=403)

        cluster.on_call = refuse

        with pytest.raises(ForbiddenError, match="cannot delete"):
            await prune_all_but(cluster, kept)

    async def test_without_an_application_nothing_is_listed(self, cluster: FakeCluster) -> None:
        with pytest.raises(Exception, match="has no id"):
            await find_managed(cluster, application_id="")


class TestDeletion:
    async def test_it_goes_in_the_reverse_order_and_each_step_waits_for_the_one_before(
        self, cluster: FakeCluster
    ) -> None:
        first = config_map(SPACE, "first", {}, pipecd__order="-1")
        kept = config_map(SPACE, "kept", {})
        await apply(cluster, kept, first, deployment(SPACE, "web"), service("web"))

        await prune_all_but(cluster, kept)

        assert cluster.list_calls("delete") == [
            "Deployment 'web' in namespace 'default'",
            "Service 'web' in namespace 'default'",
            "ConfigMap 'first' in namespace 'default'",
        ]

    async def test_an_object_that_took_the_name_is_not_deleted(self, cluster: FakeCluster) -> None:
        kept, gone = config_map(SPACE, "kept", {}), config_map(SPACE, "gone", {})
        await apply(cluster, kept, gone)

        def exchange(what: str, name: str) -> None:
            if what == "delete":
                cluster.find("ConfigMap", "gone")["metadata"]["uid"] = "another"

        cluster.on_call = exchange
        log = RecordingLog()

        await prune_all_but(cluster, kept, log=log)

        assert cluster.has("ConfigMap", "gone")
        assert f"already gone: {gone.key}" in log.lines

    async def test_a_finalizer_that_hangs_is_named_when_the_time_is_over(
        self, cluster: FakeCluster
    ) -> None:
        kept, held = config_map(SPACE, "kept", {}), await hold(cluster, "held")
        await apply(cluster, kept)
        log = RecordingLog()

        with pytest.raises(DeletionFailedError, match=r"held; it waits .*: example\.com/hold"):
            await prune_all_but(cluster, kept, log=log)

        assert f"waiting until gone: {held.key}" in log.text

    async def test_a_finalizer_that_finishes_is_waited_for(self, cluster: FakeCluster) -> None:
        kept, held = config_map(SPACE, "kept", {}), await hold(cluster, "held")
        await apply(cluster, kept)

        def release(body: Object) -> None:
            body["metadata"]["finalizers"] = []

        async def finish() -> None:
            await cluster.wait_until(lambda: bool(cluster.list_calls("watch")))
            await cluster.forget_changes()
            await cluster.write_as("controller", held.body, release)

        async with asyncio.TaskGroup() as group:
            group.create_task(finish())
            deleted = await prune_all_but(cluster, kept, limits=Limits())

        assert deleted == [held.key]
        assert not cluster.has("ConfigMap", "held")


async def hold(cluster: FakeCluster, name: str) -> Manifest:
    def change(body: Object) -> None:
        body["metadata"]["finalizers"] = ["example.com/hold"]

    manifest = config_map(SPACE, name, {})
    await cluster.write_as("somebody", manifest.body, change)
    return manifest


class TestKilled:
    @pytest.mark.parametrize("step", range(10, 21))
    async def test_killed_at_any_call_it_is_continued_and_nothing_else_goes(
        self, cluster: FakeCluster, step: int
    ) -> None:
        kept = config_map(SPACE, "kept", {})
        others = [deployment(SPACE, "web"), service("web"), config_map(SPACE, "old", {})]
        await apply(cluster, kept, *others)
        calls: list[str] = []

        def kill(what: str, name: str) -> None:
            calls.append(what)
            if len(calls) >= step:
                raise KilledError

        cluster.on_call = kill
        with pytest.raises((KilledError, ExceptionGroup)):
            await prune_all_but(cluster, kept)
        cluster.on_call = lambda what, name: None

        await prune_all_but(cluster, kept)

        names = {(each.resource.kind, each.name) for each in cluster.state.objects}
        assert names == {("ConfigMap", "kept")}


class KilledError(Exception):
    pass


class TestVariants:
    async def test_a_variant_goes_services_first_then_what_runs_then_the_rest(
        self, cluster: FakeCluster
    ) -> None:
        members = [
            with_variant(role("reader-canary")),
            with_variant(config_map(SPACE, "settings-canary", {})),
            with_variant(deployment(SPACE, "web-canary")),
            service("web-canary", "canary"),
        ]
        await apply(cluster, service("web", "primary"), *members)

        await remove(cluster)

        assert [each.split(" ")[0] for each in cluster.list_calls("delete")] == [
            "Service",
            "Deployment",
            "ConfigMap",
            "ClusterRole",
        ]
        assert cluster.has("Service", "web")

    async def test_a_variant_that_is_not_there_is_removed_already(
        self, cluster: FakeCluster
    ) -> None:
        assert await remove(cluster) == []

    async def test_a_broken_group_that_variants_never_use_does_not_keep_one_alive(
        self, cluster: FakeCluster
    ) -> None:
        """A rollback must not depend on an API service that nobody here has anything to do with."""
        await apply(cluster, service("web-canary", "canary"))
        cluster.failed_groups = {"broken.example.com": "it does not answer"}
        log = RecordingLog()

        deleted = await remove(cluster, log)

        assert len(deleted) == 1
        assert "broken.example.com" in log.text

    async def test_a_list_that_fails_removes_nothing(self, cluster: FakeCluster) -> None:
        await apply(cluster, service("web-canary", "canary"))
        cluster.failed_groups = {"apps": "it does not answer"}

        with pytest.raises(ListingError):
            await remove(cluster)

        assert cluster.has("Service", "web-canary")


async def remove(cluster: FakeCluster, log: RecordingLog | None = None) -> list[ResourceKey]:
    return await remove_variant(
        cluster,
        application_id=APPLICATION,
        variant=("pipecd.dev/variant", "canary"),
        log=log or RecordingLog(),
        limits=QUICK,
    )
