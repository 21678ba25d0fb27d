# SPDX-License-Identifier: Apache-2.0
"""Faults between us and a real server: survived, or failed with a sentence; nothing is pruned."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest
from pipecd_plugin_kubernetes.apply import (
    ApplyError,
    Limits,
    ListingError,
    apply_manifests,
    prune,
    remove_variant,
    wait_ready,
)
from pipecd_plugin_kubernetes.client import (
    Cluster,
    ClusterError,
    ObjectRef,
    RetryPolicy,
    UnauthorizedError,
    UnavailableError,
    load_connection,
)
from pipecd_plugin_kubernetes.manifest import Manifest

from pipecd_test_support.apply_contract import (
    config_map,
    deployment,
    exists,
    mark,
    name_application,
    read,
    write_last_applied,
)
from pipecd_test_support.kubernetes.faults import (
    ALWAYS,
    CONFLICT,
    FORBIDDEN,
    GONE,
    GONE_EVENT,
    INTERNAL_ERROR,
    LOST_ANSWER,
    NOT_JSON,
    RESET,
    THROTTLED,
    UNAUTHORIZED,
    UNAVAILABLE,
    Fault,
)
from pipecd_test_support.kubernetes.faulty_api_server import FaultyApiServer
from pipecd_test_support.kubernetes.real_cluster import Namespace, RealCluster
from pipecd_test_support.kubernetes.tokens import ADMIN_TOKEN
from pipecd_test_support.kubernetes.webhooks import serving_webhook
from pipecd_test_support.recording_log import RecordingLog

LONG = timedelta(seconds=60)
QUICK = RetryPolicy(
    most_attempts=4, total_seconds=20, first_pause_seconds=0.01, longest_pause_seconds=0.05
)


@pytest.fixture
async def client(faulty_api_server: FaultyApiServer, tmp_path: Path) -> AsyncIterator[Cluster]:
    kubeconfig = faulty_api_server.write_kubeconfig(tmp_path / "kubeconfig")
    connection = await load_connection(kubeconfig=str(kubeconfig))
    async with await Cluster.connect(connection, policy=QUICK) as connected:
        yield connected


@pytest.fixture
async def sound(cluster: RealCluster) -> AsyncIterator[Cluster]:
    """A client without faults, to look at what has come of it."""
    connection = await load_connection(kubeconfig=str(cluster.kubeconfig))
    async with await Cluster.connect(connection) as connected:
        yield connected


@pytest.fixture
def space(namespace: Namespace) -> str:
    return namespace.name


def make_set(space: str) -> list[Manifest]:
    return [
        *(config_map(space, f"settings-{each}", {"a": "1"}) for each in range(5)),
        deployment(space, "web"),
    ]


@pytest.mark.parametrize(
    ("method", "fault"),
    [
        ("PATCH", CONFLICT),
        *(
            (method, fault)
            for method in ("PATCH", "GET")
            for fault in (THROTTLED, INTERNAL_ERROR, UNAVAILABLE, RESET, LOST_ANSWER)
        ),
    ],
)
async def test_a_fault_that_passes_is_survived(
    client: Cluster,
    sound: Cluster,
    faulty_api_server: FaultyApiServer,
    namespace: Namespace,
    fault: Fault,
    method: str,
) -> None:
    """Applied anew, taken over from kubectl and changed, each with a fault on the way."""
    space = namespace.name
    taken = config_map(space, "taken", {"a": "1", "old": "x"})
    await sound.create(write_last_applied(taken), manager="kubectl-client-side-apply")
    faulty_api_server.fail(fault, method=method, path=space, times=2)

    now = config_map(space, "taken", {"a": "1"})
    await apply_manifests(client, [*make_set(space), now], log=RecordingLog())

    assert (await read(sound, now))["data"] == {"a": "1"}
    assert all([await exists(sound, each) for each in make_set(space)])


@pytest.mark.parametrize(
    "fault",
    [FORBIDDEN, UNAUTHORIZED, INTERNAL_ERROR, RESET, GONE, NOT_JSON],
    ids=["403", "401", "500", "reset", "410", "not-json"],
)
async def test_a_list_that_keeps_failing_prunes_nothing_and_says_what_could_not_be_listed(
    client: Cluster,
    sound: Cluster,
    faulty_api_server: FaultyApiServer,
    space: str,
    fault: Fault,
) -> None:
    manifests = make_set(space)
    await apply_manifests(sound, manifests, log=RecordingLog())
    faulty_api_server.fail(fault, method="GET", path=r"/api/v1/configmaps\?", times=ALWAYS)

    with pytest.raises(ListingError, match="ConfigMap"):
        await prune(
            client,
            application_id=name_application(space),
            keep=manifests[1:],
            log=RecordingLog(),
        )

    assert "DELETE" not in " ".join(faulty_api_server.asked)
    assert await exists(sound, manifests[0])


async def test_a_list_that_keeps_failing_removes_no_variant(
    client: Cluster, sound: Cluster, faulty_api_server: FaultyApiServer, space: str
) -> None:
    gone = config_map(space, "gone", {})
    gone.metadata["labels"]["pipecd.dev/variant"] = "canary"
    await apply_manifests(sound, [gone], log=RecordingLog())
    faulty_api_server.fail(INTERNAL_ERROR, path=r"/api/v1/secrets\?", times=ALWAYS)

    with pytest.raises(ListingError, match="Secret"):
        await remove_variant(
            client,
            application_id=name_application(space),
            variant=("pipecd.dev/variant", "canary"),
            log=RecordingLog(),
        )

    assert await exists(sound, gone)


async def test_a_broken_group_of_others_holds_up_no_deployment_and_no_clean_up(
    cluster: RealCluster, sound: Cluster, space: str
) -> None:
    """One APIService without a backend, as clusters have it for months."""
    name = f"v1.{space}.broken.example"
    service = {
        "apiVersion": "apiregistration.k8s.io/v1",
        "kind": "APIService",
        "metadata": {"name": name},
        "spec": {
            "group": f"{space}.broken.example",
            "version": "v1",
            "groupPriorityMinimum": 100,
            "versionPriority": 100,
            "service": {"name": "nothing", "namespace": space},
            "insecureSkipTLSVerify": True,
        },
    }
    await asyncio.to_thread(cluster.api.create, service)
    try:
        kept, gone = config_map(space, "kept", {}), config_map(space, "gone", {})
        gone.metadata["labels"]["pipecd.dev/variant"] = "canary"
        await apply_manifests(sound, [kept, gone], log=RecordingLog())
        log = RecordingLog()
        who = name_application(space)

        assert await prune(sound, application_id=who, keep=[kept], log=log) == []
        assert "nothing was pruned" in log.text
        assert f"{space}.broken.example" in log.text
        variant = ("pipecd.dev/variant", "canary")
        removed = await remove_variant(sound, application_id=who, variant=variant, log=log)
        assert removed == [gone.key]
    finally:
        await asyncio.to_thread(
            cluster.api.delete,
            "apiregistration.k8s.io/v1",
            "APIService",
            name,
        )


async def test_an_expired_token_fails_with_a_sentence_and_is_no_reason_to_prune(
    client: Cluster, sound: Cluster, faulty_api_server: FaultyApiServer, space: str
) -> None:
    manifests = make_set(space)
    await apply_manifests(client, manifests, log=RecordingLog())
    faulty_api_server.expire_token(ADMIN_TOKEN)

    with pytest.raises(UnauthorizedError):
        await apply_manifests(client, make_set(space)[:1], log=RecordingLog())
    with pytest.raises(ClusterError):
        await prune(
            client,
            application_id=name_application(space),
            keep=manifests[1:],
            log=RecordingLog(),
        )

    assert await exists(sound, manifests[0])


async def test_a_webhook_that_hangs_fails_with_its_name_and_is_survived_when_it_answers(
    client: Cluster, namespace: Namespace
) -> None:
    manifest = config_map(namespace.name, "settings", {"a": "1"})
    probe = config_map(namespace.name, "probe", {}).body

    def serve() -> None:
        with serving_webhook(namespace, probe) as webhook:
            webhook.answers.clear()
            with pytest.raises(UnavailableError, match="webhook"):
                asyncio.run_coroutine_threadsafe(run(), loop).result(60)
            webhook.answers.set()
            asyncio.run_coroutine_threadsafe(run(), loop).result(60)

    async def run() -> None:
        await apply_manifests(client, [manifest], log=RecordingLog())

    loop = asyncio.get_running_loop()
    await asyncio.to_thread(serve)

    assert (await read(client, manifest))["data"] == {"a": "1"}


async def test_a_namespace_that_is_being_deleted_fails_with_a_sentence(
    client: Cluster, sound: Cluster, space: str
) -> None:
    name = f"{space}-held"
    held = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "held", "namespace": name, "finalizers": ["example.com/hold"]},
    }
    resource = await sound.find_resource("v1", "Namespace")
    ref = ObjectRef(resource, "", name)
    await sound.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    await sound.create(held)
    await sound.delete(ref)
    try:
        with pytest.raises(ApplyError, match="its namespace is being deleted"):
            await apply_manifests(client, [config_map(name, "a", {})], log=RecordingLog())
        with pytest.raises(ApplyError, match="was not gone after 1 seconds"):
            await apply_manifests(
                client,
                [config_map(name, "a", {})],
                log=RecordingLog(),
                create_namespaces=True,
                limits=Limits(namespace_seconds=1),
            )
    finally:
        await sound.replace({**held, "metadata": {"name": "held", "namespace": name}})


async def test_a_watch_that_is_cut_and_too_old_does_not_disturb_the_wait(
    client: Cluster, faulty_api_server: FaultyApiServer, namespace: Namespace
) -> None:
    web = deployment(namespace.name, "web")
    web.body["spec"]["template"]["spec"]["containers"][0]["image"] = "registry.example/app:slow"
    log = RecordingLog()
    applied = await apply_manifests(client, [web], log=log)
    faulty_api_server.fail(GONE_EVENT, method="GET", path="watch=true", times=2)

    async def release() -> None:
        await asyncio.to_thread(
            lambda: namespace.api.wait_all(
                "v1", "Pod", namespace.name, are_right=lambda pods: len(pods) == 2
            )
        )
        await asyncio.to_thread(faulty_api_server.cut_streams)
        await asyncio.to_thread(namespace.set_behaviour, "run")

    async with asyncio.TaskGroup() as group:
        group.create_task(release())
        await wait_ready(client, applied, log=log, within=LONG)

    assert log.lines[-1] == "all 1 workloads are ready"


async def test_definitions_that_take_their_time_are_waited_for(
    client: Cluster, sound: Cluster, faulty_api_server: FaultyApiServer, space: str
) -> None:
    group = f"{space}.example.org"
    definition = mark(
        {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": f"things.{group}"},
            "spec": {
                "group": group,
                "scope": "Namespaced",
                "names": {"kind": "Thing", "plural": "things"},
                "versions": [
                    {
                        "name": "v1",
                        "served": True,
                        "storage": True,
                        "schema": {
                            "openAPIV3Schema": {
                                "type": "object",
                                "x-kubernetes-preserve-unknown-fields": True,
                            }
                        },
                    }
                ],
            },
        },
        "",
    )
    thing = mark({"apiVersion": f"{group}/v1", "kind": "Thing", "metadata": {"name": "one"}}, space)
    faulty_api_server.fail(RESET, path=r"/apis/[a-z0-9.-]*example\.org/v1/", times=2)
    try:
        await apply_manifests(client, [thing, definition], log=RecordingLog())
        assert await exists(sound, thing)
    finally:
        await sound.delete(await sound.ref_of(definition.body))
