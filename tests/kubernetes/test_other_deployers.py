# SPDX-License-Identifier: Apache-2.0
"""Applications that upstream's plugin or kubectl has deployed: ours takes over, and gives back.

No pod restarts unless what it is configured with has changed; then it does, whoever deployed last.
"""

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from pipecd_sdk import StageStatus, SyncState, SyncStatus
from pipecd_test_support.kubernetes.faults import refuse
from pipecd_test_support.kubernetes.faulty_api_server import FaultyApiServer
from pipecd_test_support.kubernetes.live_lab import LiveLab, watching
from pipecd_test_support.kubernetes.real_cluster import Namespace
from pipecd_test_support.kubernetes_lab import KubernetesLab
from pipecd_test_support.kubernetes_site import Object, make_config_map, make_deployment

HASH = "pipecd.dev/config-hash"


@pytest.fixture
async def lab(namespace: Namespace, tmp_path: Path) -> AsyncIterator[KubernetesLab]:
    made = KubernetesLab(folder=tmp_path, namespaces={"main": namespace})
    yield made
    await made.close()


def make_secret(word: str) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "login"},
        "type": "Opaque",
        "data": {"user": "cGF1bGE="},
        "stringData": {"word": word},
    }


def make_manifests(word: str) -> list[Object]:
    """A ConfigMap, a Secret with plain texts, and a Deployment whose pods read both."""
    web = make_deployment(config="web")
    container = web["spec"]["template"]["spec"]["containers"][0]
    container["envFrom"].append({"secretRef": {"name": "login"}})
    return [make_config_map("web", colour="green"), make_secret(word), web]


def hash_as_upstream(config: Object, secret: Object) -> str:
    """The hash of upstream's plugin, written down once more: it leaves `stringData` out."""
    of_config = {"data": config["data"], "kind": "ConfigMap", "name": config["metadata"]["name"]}
    of_secret = {
        "data": secret["data"],
        "kind": "Secret",
        "name": secret["metadata"]["name"],
        "type": secret["type"],
    }
    text = "".join(
        json.dumps(each, sort_keys=True, separators=(",", ":")) for each in (of_config, of_secret)
    )
    digits = hashlib.sha256(text.encode()).hexdigest()[:10]
    return digits.translate(str.maketrans("013ae", "ghkmt"))


async def deploy_as_upstream(
    namespace: Namespace, application_id: str, piped_id: str, manifests: list[Object]
) -> None:
    """What upstream's K8S_SYNC does: marks, the hash, and `kubectl apply` one after the other."""
    config, secret, _ = manifests
    for given in manifests:
        body = json.loads(json.dumps(given))
        if body["kind"] == "Deployment":
            template = body["spec"]["template"]["metadata"]
            template["annotations"] = {HASH: hash_as_upstream(config, secret)}
        marks = {
            "pipecd.dev/managed-by": "piped",
            "pipecd.dev/piped": piped_id,
            "pipecd.dev/application": application_id,
            "pipecd.dev/commit-hash": "f" * 40,
            "pipecd.dev/variant": "primary",
        }
        name = body["metadata"]["name"]
        group = "apps" if body["kind"] == "Deployment" else ""
        body["metadata"] = {
            "name": name,
            "namespace": namespace.name,
            "labels": marks,
            "annotations": {
                **marks,
                "pipecd.dev/original-api-version": body["apiVersion"],
                "pipecd.dev/resource-key": f"{group}:{body['kind']}:{namespace.name}:{name}",
            },
        }
        await asyncio.to_thread(
            namespace.cluster.run_kubectl,
            "--namespace",
            namespace.name,
            *("apply", "-f", "-"),
            stdin=json.dumps(body),
        )
    await asyncio.to_thread(namespace.wait_workload, "Deployment", "web")


async def upstream(lab: KubernetesLab, word: str) -> None:
    """Let upstream's plugin deploy."""
    deployment = lab.harness.deployment
    await deploy_as_upstream(
        lab.namespace, deployment.application_id, deployment.piped_id, make_manifests(word)
    )


async def ours(lab: KubernetesLab, word: str) -> None:
    """Let our plugin deploy, by a deployment of its own."""
    lab.begin(*make_manifests(word))
    await lab.succeed("K8S_SYNC")


async def read_pods(namespace: Namespace) -> set[str]:
    """Who the pods are, and what their template is: the controller may not have acted yet."""
    web = await asyncio.to_thread(namespace.get, "apps/v1", "Deployment", "web") or {}
    pods = await asyncio.to_thread(namespace.find_all, "v1", "Pod", labels="app=web")
    uids = {each["metadata"]["uid"] for each in pods if "deletionTimestamp" not in each["metadata"]}
    return uids | {json.dumps(web["spec"]["template"], sort_keys=True)}


async def test_upstream_then_ours_then_upstream_and_no_pod_restarts(lab: KubernetesLab) -> None:
    lab.begin(*make_manifests("sesame"))
    await upstream(lab, "sesame")
    pods = await read_pods(lab.namespace)

    await lab.succeed("K8S_SYNC")
    assert await read_pods(lab.namespace) == pods
    await ours(lab, "sesame")
    assert await read_pods(lab.namespace) == pods
    await upstream(lab, "sesame")
    assert await read_pods(lab.namespace) == pods
    await ours(lab, "sesame")
    assert await read_pods(lab.namespace) == pods


async def test_a_text_that_changes_restarts_pods_once_and_upstream_does_not_do_it_again(
    lab: KubernetesLab,
) -> None:
    lab.begin(*make_manifests("sesame"))
    await upstream(lab, "sesame")
    await lab.succeed("K8S_SYNC")
    pods = await read_pods(lab.namespace)

    await ours(lab, "another")
    restarted = await read_pods(lab.namespace)
    assert not restarted & pods
    await ours(lab, "another")
    assert await read_pods(lab.namespace) == restarted
    await upstream(lab, "another")
    assert await read_pods(lab.namespace) == restarted
    await ours(lab, "another")
    assert await read_pods(lab.namespace) == restarted

    await ours(lab, "sesame")
    assert not await read_pods(lab.namespace) & (pods | restarted)


async def test_a_text_that_changes_with_the_take_over_restarts_pods(lab: KubernetesLab) -> None:
    lab.begin(*make_manifests("another"))
    await upstream(lab, "sesame")
    pods = await read_pods(lab.namespace)

    await lab.succeed("K8S_SYNC")

    assert not await read_pods(lab.namespace) & pods


async def test_a_take_over_that_stopped_after_the_secret_still_restarts_pods(
    namespace: Namespace, faulty_api_server: FaultyApiServer, tmp_path: Path
) -> None:
    """When it goes on, the cluster has the new text already: that must not look like no change."""
    kubeconfig = faulty_api_server.write_kubeconfig(tmp_path / "kubeconfig")
    lab = KubernetesLab(folder=tmp_path, namespaces={"main": namespace}, kubeconfig=kubeconfig)
    lab.begin(*make_manifests("another"))
    await upstream(lab, "sesame")
    pods = await read_pods(namespace)
    faulty_api_server.fail(
        refuse(403, "Forbidden", "not now"), method="PATCH", path="/deployments/"
    )
    stopped = await lab.run("K8S_SYNC")
    secret = await asyncio.to_thread(namespace.get, "v1", "Secret", "login") or {}
    faulty_api_server.heal()

    await lab.succeed("K8S_SYNC")

    assert stopped.status is StageStatus.FAILURE
    assert secret["data"]["word"] == "YW5vdGhlcg=="
    assert not await read_pods(namespace) & pods
    await lab.close()


@pytest.mark.parametrize("is_changed", [False, True], ids=["same", "changed"])
async def test_a_rollback_restores_the_template_that_was_there(
    lab: KubernetesLab, is_changed: bool
) -> None:
    """After a first deployment of ours, and after one of ours that has restarted pods."""
    lab.begin(*make_manifests("sesame"))
    await upstream(lab, "sesame")
    await lab.succeed("K8S_SYNC")
    if is_changed:
        await ours(lab, "another")
    before = await asyncio.to_thread(lab.read)

    lab.begin(*make_manifests("third"))
    await lab.succeed("K8S_SYNC")
    changed = await asyncio.to_thread(lab.read)
    await lab.succeed("K8S_ROLLBACK", index=1)

    after = await asyncio.to_thread(lab.read)
    assert (
        changed["Deployment/web"]["spec"]["template"]
        != (before["Deployment/web"]["spec"]["template"])
    )
    for body in (*after.values(), *before.values()):
        # What kubectl is told was applied last is not compared: the order of keys may differ.
        annotations = body["metadata"]["annotations"]
        annotations.pop("kubectl.kubernetes.io/last-applied-configuration", None)
    assert after == before


async def test_a_rollback_of_a_deployment_that_did_not_come_to_the_workload_restarts_nothing(
    lab: KubernetesLab,
) -> None:
    lab.begin(*make_manifests("sesame"))
    await upstream(lab, "sesame")
    pods = await read_pods(lab.namespace)
    lab.begin(*make_manifests("another"))

    await lab.succeed("K8S_ROLLBACK")

    assert await read_pods(lab.namespace) == pods


async def test_what_upstream_deployed_has_not_drifted_and_a_changed_text_has(
    namespace: Namespace, tmp_path: Path
) -> None:
    lab = LiveLab(tmp_path, namespace)
    lab.commit(*make_manifests("sesame"))
    deployment = lab.harness.deployment
    await deploy_as_upstream(
        namespace, deployment.application_id, deployment.piped_id, make_manifests("sesame")
    )
    async with watching(lab):
        state = await lab.find_drift()
        assert state == SyncState(status=SyncStatus.SYNCED), state.reason
        await lab.sync()
        state = await lab.wait_drift(SyncStatus.SYNCED)

        lab.commit(*make_manifests("another"))
        state = await lab.wait_drift(SyncStatus.OUT_OF_SYNC)
        assert "2 changed" in state.short_reason
        assert "pipecd.dev/restarted-for" in state.reason
        await lab.sync()
        await lab.wait_drift(SyncStatus.SYNCED)


async def test_from_kubectl_to_ours_no_pod_restarts_until_its_configuration_changes(
    lab: KubernetesLab,
) -> None:
    """Whoever has applied a workload without PipeCD has written no hash."""
    lab.begin(*make_manifests("sesame"))
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": make_manifests("sesame")})
    namespace = lab.namespace
    await asyncio.to_thread(
        namespace.cluster.run_kubectl, "-n", namespace.name, "apply", "-f", "-", stdin=text
    )
    await asyncio.to_thread(namespace.wait_workload, "Deployment", "web")
    pods = await read_pods(namespace)

    await lab.succeed("K8S_SYNC")
    assert await read_pods(namespace) == pods
    await ours(lab, "sesame")
    assert await read_pods(namespace) == pods

    lab.begin(make_config_map("web", colour="red"), *make_manifests("sesame")[1:])
    await lab.succeed("K8S_SYNC")
    assert not await read_pods(namespace) & pods
    await lab.succeed("K8S_ROLLBACK", index=1)
    web = await asyncio.to_thread(namespace.get, "apps/v1", "Deployment", "web")
    assert not web["spec"]["template"]["metadata"].get("annotations")


async def test_a_configuration_that_changes_with_the_take_over_from_kubectl_restarts_pods(
    lab: KubernetesLab,
) -> None:
    lab.begin(make_config_map("web", colour="red"), *make_manifests("sesame")[1:])
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": make_manifests("sesame")})
    namespace = lab.namespace
    await asyncio.to_thread(
        namespace.cluster.run_kubectl, "-n", namespace.name, "apply", "-f", "-", stdin=text
    )
    await asyncio.to_thread(namespace.wait_workload, "Deployment", "web")
    pods = await read_pods(namespace)

    await lab.succeed("K8S_SYNC")

    assert not await read_pods(namespace) & pods
