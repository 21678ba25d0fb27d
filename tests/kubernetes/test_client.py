# SPDX-License-Identifier: Apache-2.0
"""The plugin's client with a real API server: its answers are what the client takes them for."""

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pipecd_plugin_kubernetes.client import (
    AlreadyExistsError,
    ApiResource,
    ChangeType,
    Cluster,
    ConflictError,
    ForbiddenError,
    GoneError,
    InvalidError,
    Object,
    ObjectRef,
    PatchType,
    RetryNotice,
    RetryPolicy,
    UnauthorizedError,
    UnavailableError,
    UnknownKindError,
    WatchEvent,
    load_connection,
)

from pipecd_runtime.ports import pick_port
from pipecd_test_support.kubernetes.real_cluster import Namespace, RealCluster
from pipecd_test_support.kubernetes.tokens import ADMIN_TOKEN, NOBODY_TOKEN
from pipecd_test_support.kubernetes.workloads import make_deployment

WAIT_SECONDS = 30


class Metadata(msgspec.Struct):
    name: str


class Slim(msgspec.Struct):
    metadata: Metadata


async def connect(kubeconfig: Path, policy: RetryPolicy | None = None) -> Cluster:
    return await Cluster.connect(await load_connection(kubeconfig=str(kubeconfig)), policy=policy)


@pytest.fixture
async def client(cluster: RealCluster) -> AsyncIterator[Cluster]:
    """An administrator's."""
    async with await connect(cluster.kubeconfig) as connected:
        yield connected


def make_settings(namespace: Namespace, name: str = "settings", **data: str) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": namespace.name},
        "data": data,
    }


async def test_what_is_applied_is_seen_and_what_is_deleted_is_gone(
    client: Cluster, namespace: Namespace
) -> None:
    """A list, and then every change after it: nothing is missed in between."""
    resource = await client.find_resource("v1", "ConfigMap")
    await client.apply(make_settings(namespace, "before", a="1"))
    listed = await client.list(resource, namespace=namespace.name)
    names = {each["metadata"]["name"] for each in listed}
    assert "before" in names
    assert {(each["apiVersion"], each["kind"]) for each in listed} == {("v1", "ConfigMap")}
    watch: Any = client.watch(
        resource, namespace=namespace.name, resource_version=listed.resource_version
    )
    seen: list[tuple[ChangeType, str]] = []
    async with aclosing(watch) as changes, asyncio.timeout(WAIT_SECONDS):
        made = await client.apply(make_settings(namespace, a="1"))
        await client.apply(make_settings(namespace, a="2"))
        ref = await client.ref_of(made)
        assert not await client.delete(ref, uid="another"), "an object of the same name survives"
        assert await client.delete(ref, uid=made["metadata"]["uid"])
        event: WatchEvent[Object]
        async for event in changes:
            if event.body is not None:
                seen.append((event.type, event.body["metadata"]["name"]))
            if event.type is ChangeType.DELETED:
                break
    assert seen == [
        (ChangeType.ADDED, "settings"),
        (ChangeType.MODIFIED, "settings"),
        (ChangeType.DELETED, "settings"),
    ]
    assert await client.get(ref) is None
    assert not await client.delete(ref)


async def test_a_conflict_names_the_manager_and_the_field(
    client: Cluster, namespace: Namespace
) -> None:
    namespace.apply(make_settings(namespace, a="theirs", b="theirs"), manager="somebody")
    with pytest.raises(ConflictError) as caught:
        await client.apply(make_settings(namespace, a="ours"))
    (conflict,) = caught.value.conflicts
    assert (conflict.manager, conflict.field) == ("somebody", ".data.a")
    assert "'somebody' owns .data.a" in str(caught.value)
    taken = await client.apply(make_settings(namespace, a="ours"), force=True)
    assert taken["data"] == {"a": "ours", "b": "theirs"}


async def test_a_dry_run_changes_nothing(client: Cluster, namespace: Namespace) -> None:
    body = make_settings(namespace, a="1")
    assert (await client.apply(body, dry_run=True))["data"] == {"a": "1"}
    assert await client.get(await client.ref_of(body)) is None


async def test_what_is_invalid_names_its_fields(client: Cluster, namespace: Namespace) -> None:
    deployment = make_deployment("web", replicas=-1)
    deployment["metadata"]["namespace"] = namespace.name
    with pytest.raises(InvalidError) as caught:
        await client.apply(deployment)
    assert "spec.replicas" in {each.field for each in caught.value.causes}
    assert "it is invalid: spec.replicas: Invalid value" in str(caught.value)


async def test_create_replace_and_patch(client: Cluster, namespace: Namespace) -> None:
    body = make_settings(namespace, a="1", b="1")
    await client.create(body)
    with pytest.raises(AlreadyExistsError, match="already exists"):
        await client.create(body)
    replaced = await client.replace(make_settings(namespace, a="2"))
    assert replaced["data"] == {"a": "2"}
    old = make_settings(namespace, a="3")
    old["metadata"]["resourceVersion"] = "1"
    with pytest.raises(ConflictError, match="has been modified"):
        await client.replace(old)
    ref = await client.ref_of(body)
    patched = await client.patch(ref, {"data": {"c": "1"}}, content_type=PatchType.MERGE)
    assert patched["data"] == {"a": "2", "c": "1"}
    change = [{"op": "remove", "path": "/data/c"}]
    patched = await client.patch(ref, change, content_type=PatchType.JSON)
    assert patched["data"] == {"a": "2"}


async def test_a_scale_is_changed_through_its_subresource(
    client: Cluster, namespace: Namespace
) -> None:
    namespace.apply(make_deployment("web", replicas=1))
    await asyncio.to_thread(namespace.wait_workload, "Deployment", "web")
    ref = ObjectRef(await client.find_resource("apps/v1", "Deployment"), namespace.name, "web")
    patch = {"spec": {"replicas": 2}}
    await client.patch(ref, patch, content_type=PatchType.MERGE, subresource="scale")
    found = await client.get(ref)
    assert found is not None
    assert found["spec"]["replicas"] == 2


async def test_a_long_list_is_whole(client: Cluster, namespace: Namespace) -> None:
    """More than a page, as dicts and as slim structs."""
    count = 600
    bodies = [make_settings(namespace, f"many-{number:04d}") for number in range(count)]
    for body in bodies:
        body["metadata"]["labels"] = {"many": "true"}
    await asyncio.gather(*(client.create(body) for body in bodies))
    resource = await client.find_resource("v1", "ConfigMap")
    found = await client.list(resource, namespace=namespace.name, labels="many=true")
    assert [each["metadata"]["name"] for each in found] == [
        body["metadata"]["name"] for body in bodies
    ]
    slim = await client.list(resource, namespace=namespace.name, labels="many=true", decode=Slim)
    assert len(slim) == count
    assert slim.items[0] == Slim(metadata=Metadata(name="many-0000"))


async def test_a_version_that_is_gone_is_said(client: Cluster, namespace: Namespace) -> None:
    """The server knows nothing about a kind from before its definition."""
    async with defining_widgets(client) as resource:
        watch: Any = client.watch(resource, namespace=namespace.name, resource_version="1")
        async with aclosing(watch) as changes, asyncio.timeout(WAIT_SECONDS):
            with pytest.raises(GoneError, match="too old resource version"):
                await anext(changes)


async def test_a_kind_that_was_just_defined_can_be_applied(
    client: Cluster, namespace: Namespace
) -> None:
    """Definition and object come with the same commit."""
    await client.discover()
    async with defining_widgets(client) as resource:
        assert (resource.plural, resource.namespaced) == ("widgets", True)
        widget = {
            "apiVersion": resource.api_version,
            "kind": "Widget",
            "metadata": {"name": "one", "namespace": namespace.name},
            "spec": {"size": 3},
        }
        applied = await client.apply(widget)
        assert applied["spec"] == {"size": 3}
        (found,) = await client.list(resource, namespace=namespace.name)
        assert found["spec"] == {"size": 3}


async def test_a_kind_that_nobody_defined_is_named(client: Cluster) -> None:
    with pytest.raises(UnknownKindError, match="does not serve 'Widget'"):
        await client.find_resource("nobody.example.com/v1", "Widget")


@asynccontextmanager
async def defining_widgets(client: Cluster) -> AsyncIterator[ApiResource]:
    group = f"g{secrets.token_hex(4)}.example.com"
    made = await client.apply(make_definition(group))
    try:
        yield await client.find_resource(f"{group}/v1", "Widget", within_seconds=WAIT_SECONDS)
    finally:
        await client.delete(await client.ref_of(made))


def make_definition(group: str) -> Object:
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"widgets.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget"},
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


async def test_a_group_whose_server_is_down_hides_nothing_else(
    client: Cluster, namespace: Namespace
) -> None:
    """As a metrics server that does not start."""
    group = f"g{secrets.token_hex(4)}.example.com"
    registered = await client.apply(
        {
            "apiVersion": "apiregistration.k8s.io/v1",
            "kind": "APIService",
            "metadata": {"name": f"v1.{group}"},
            "spec": {
                "group": group,
                "version": "v1",
                "service": {"name": "nobody", "namespace": namespace.name},
                "insecureSkipTLSVerify": True,
                "groupPriorityMinimum": 1000,
                "versionPriority": 10,
            },
        }
    )
    try:
        async with asyncio.timeout(WAIT_SECONDS):
            while group not in (found := await client.refresh_discovery()).failed_groups:
                pass  # each question is a pause
        assert found.find("apps/v1", "Deployment") is not None
        assert group in found.failed_groups[group]
        with pytest.raises(UnknownKindError, match="it is not known whether") as caught:
            await client.find_resource(f"{group}/v1", "Metric")
        assert caught.value.is_group_failed
        await client.apply(make_settings(namespace, a="1"))
    finally:
        await client.delete(await client.ref_of(registered))


async def test_a_token_that_is_not_accepted_is_read_again(
    cluster: RealCluster, tmp_path: Path
) -> None:
    """It has run out; the file has a new one before anybody looks."""
    token = tmp_path / "token"
    token.write_text("expired")
    path = cluster.write_kubeconfig(tmp_path / "config", user={"tokenFile": str(token)})
    async with await connect(path) as client:
        with pytest.raises(UnauthorizedError) as caught:
            await client.discover()
        assert "does not accept our credentials" in str(caught.value)
        assert str(path) in caught.value.hint
        assert "expired" not in caught.value.reason()
        token.write_text(ADMIN_TOKEN)
        assert (await client.discover()).find("v1", "Pod") is not None


async def test_who_may_not_is_told_what(
    cluster: RealCluster, namespace: Namespace, tmp_path: Path
) -> None:
    path = cluster.write_kubeconfig(tmp_path / "config", token=NOBODY_TOKEN)
    async with await connect(path) as client:
        resource = await client.find_resource("v1", "Secret")
        with pytest.raises(ForbiddenError) as caught:
            await client.list(resource, namespace=namespace.name)
    assert str(caught.value).startswith(
        f"cannot list secrets of v1 in namespace {namespace.name!r}: secrets is forbidden: "
        'User "nobody" cannot list'
    )


async def test_a_webhook_that_does_not_answer_is_tried_again_and_named(
    cluster: RealCluster, namespace: Namespace
) -> None:
    policy = RetryPolicy(most_attempts=3, first_pause_seconds=0.01)
    hook = f"check.{namespace.name}.example.com"
    async with await connect(cluster.kubeconfig, policy) as client:
        made = await client.apply(make_webhook(hook, namespace))
        notices: list[RetryNotice] = []
        told = client.report_to(on_retry=notices.append)

        async def create_until_refused() -> None:
            async with asyncio.timeout(WAIT_SECONDS):
                while True:  # until the server has begun to use it
                    await told.create(make_settings(namespace, secrets.token_hex(4)))

        try:
            with pytest.raises(UnavailableError) as caught:
                await create_until_refused()
        finally:
            await client.delete(await client.ref_of(made))
    assert hook in str(caught.value)
    assert [each.attempt for each in notices] == [1, 2]


def make_webhook(hook: str, namespace: Namespace) -> Object:
    rule = {
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "operations": ["CREATE"],
        "resources": ["configmaps"],
    }
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": hook},
        "webhooks": [
            {
                "name": hook,
                "clientConfig": {"url": f"https://127.0.0.1:{pick_port()}/"},
                "rules": [rule],
                "failurePolicy": "Fail",
                "sideEffects": "None",
                "admissionReviewVersions": ["v1"],
                "timeoutSeconds": 1,
                "namespaceSelector": {
                    "matchLabels": {"kubernetes.io/metadata.name": namespace.name}
                },
            }
        ],
    }


async def test_a_namespace_that_is_going_says_so(client: Cluster, namespace: Namespace) -> None:
    held = make_settings(namespace)
    held["metadata"]["finalizers"] = ["example.com/hold"]
    made = await client.apply(held)
    place = await client.ref_of(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace.name}}
    )
    assert await client.delete(place)
    try:
        with pytest.raises(ForbiddenError, match="because it is being terminated"):
            await client.create(make_settings(namespace, "late"))
    finally:
        ref = await client.ref_of(made)
        patch: Object = {"metadata": {"finalizers": None}}
        await client.patch(ref, patch, content_type=PatchType.MERGE)


async def test_logs_and_events_of_a_crashing_pod(client: Cluster, namespace: Namespace) -> None:
    """What a failed rollout shows: the last lines, of the container before too."""
    namespace.set_log(["up again"], previous=["begun", "panic: no database"], container="web")
    namespace.apply(make_deployment("web", image="web:1-crash", replicas=1))
    (pod,) = await asyncio.to_thread(namespace.wait_pods, 1, reason="CrashLoopBackOff")
    name = pod["metadata"]["name"]
    last = await client.read_log(namespace.name, name, container="web", tail_lines=1, previous=True)
    assert last == "panic: no database\n"
    now = await client.read_log(namespace.name, name, container="web", tail_lines=10)
    assert now == "up again\n"
    with pytest.raises(InvalidError, match="container nothing is not valid"):
        await client.read_log(namespace.name, name, container="nothing", tail_lines=1)
    ref = ObjectRef(await client.find_resource("v1", "Pod"), namespace.name, name)
    events = await client.list_events(ref, uid=pod["metadata"]["uid"])
    assert {each["involvedObject"]["name"] for each in events} == {name}
    assert "Scheduled" in {each["reason"] for each in events}
