# SPDX-License-Identifier: Apache-2.0
"""What counts as a difference from git in a real cluster, and what does not."""

import asyncio
import base64
from pathlib import Path
from typing import Any

from pipecd_plugin_kubernetes.manifest import Manifest
from pipecd_plugin_kubernetes.stages.prepare import mark

from pipecd_sdk import Health, SyncState, SyncStatus
from pipecd_test_support.kubernetes.faulty_api_server import FaultyApiServer
from pipecd_test_support.kubernetes.live_lab import LiveLab, watching
from pipecd_test_support.kubernetes.real_cluster import Namespace
from pipecd_test_support.kubernetes.tokens import NOBODY_TOKEN
from pipecd_test_support.kubernetes.webhooks import serving_webhook
from pipecd_test_support.kubernetes.workloads import make_deployment

SETTINGS = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "settings"},
    "data": {"colour": "green"},
}
PASSWORD = {
    "apiVersion": "v1",
    "kind": "Secret",
    "metadata": {"name": "password"},
    "stringData": {"word": "open sesame"},
}


async def test_a_field_that_somebody_changed_is_drift_and_set_back_it_is_none(
    namespace: Namespace, tmp_path: Path
) -> None:
    lab = LiveLab(tmp_path, namespace)
    async with watching(lab):
        await lab.deploy(make_deployment("web"), SETTINGS)
        assert (await lab.find_drift()).status is SyncStatus.SYNCED

        await lab.patch("v1", "ConfigMap", "settings", {"data": {"colour": "red"}})
        state = await lab.wait_drift(SyncStatus.OUT_OF_SYNC)
        assert state.short_reason == "1 object differs from git: 1 changed"
        assert "name='settings', kind='ConfigMap'" in state.reason
        assert "#data.colour" in state.reason
        assert "*****" in state.reason
        assert "red" not in state.reason
        assert f"git at {'1'.zfill(40)[:7]}" in state.reason

        await lab.patch("v1", "ConfigMap", "settings", {"data": {"colour": "green"}})
        await lab.wait_drift(SyncStatus.SYNCED)


async def test_an_image_is_shown_with_both_values(namespace: Namespace, tmp_path: Path) -> None:
    lab = LiveLab(tmp_path, namespace)
    async with watching(lab):
        await lab.deploy(make_deployment("web"))
        pods = {"containers": [{"name": "web", "image": "web:9"}]}
        await lab.patch("apps/v1", "Deployment", "web", {"spec": {"template": {"spec": pods}}})
        state = await lab.wait_drift(SyncStatus.OUT_OF_SYNC)

    assert "#spec.template.spec.containers.0.image" in state.reason
    assert "image: web:9" in state.reason
    assert "image: web:1" in state.reason


async def test_fields_of_others_and_another_commit_are_no_drift(
    namespace: Namespace, tmp_path: Path
) -> None:
    lab = LiveLab(tmp_path, namespace)
    async with watching(lab):
        await lab.deploy(make_deployment("web"), SETTINGS)
        others = {"metadata": {"labels": {"team": "shop"}, "annotations": {"seen": "yes"}}}
        await lab.patch("apps/v1", "Deployment", "web", others)
        await lab.patch("v1", "ConfigMap", "settings", {"data": {"added": "by hand"}})
        lab.commit(make_deployment("web"), SETTINGS)
        state = await lab.find_drift()

    assert (state.status, state.reason) == (SyncStatus.SYNCED, "")


async def test_replicas_that_somebody_scales_are_no_drift(
    namespace: Namespace, tmp_path: Path
) -> None:
    lab = LiveLab(tmp_path, namespace)
    async with watching(lab):
        await lab.deploy(make_deployment("web"))
        words = ("scale", "deployment/web", "--replicas=4", f"--namespace={namespace.name}")
        await asyncio.to_thread(namespace.cluster.run_kubectl, *words)
        assert (await lab.find_drift()).status is SyncStatus.SYNCED

        # By hand, and not through `scale`, they are git's.
        await lab.patch("apps/v1", "Deployment", "web", {"spec": {"replicas": 3}})
        state = await lab.wait_drift(SyncStatus.OUT_OF_SYNC)
    assert "#spec.replicas" in state.reason


async def test_ignored_fields_and_ignored_objects_are_no_drift(
    namespace: Namespace, tmp_path: Path
) -> None:
    name = namespace.name
    paths = [
        f"v1:ConfigMap:{name}:settings#data.colour",
        f"apps/v1:Deployment:{name}:web#spec.replicas",
    ]
    config = {"spec": {"driftDetection": {"ignoreFields": paths}}}
    mute = {"pipecd.dev/ignore-drift-detection": "true"}
    ignored = {**PASSWORD, "metadata": {"name": "password", "annotations": mute}}
    lab = LiveLab(tmp_path, namespace)
    async with watching(lab):
        lab.commit(make_deployment("web"), SETTINGS, ignored, config=config)
        await lab.sync()
        await lab.patch("v1", "ConfigMap", "settings", {"data": {"colour": "red"}})
        await lab.patch("apps/v1", "Deployment", "web", {"spec": {"replicas": 5}})
        await lab.patch("v1", "Secret", "password", {"data": {"word": "eA=="}})
        await lab.wait_until(lambda found: len(found) > 3)
        assert (await lab.find_drift()).status is SyncStatus.SYNCED

        lab.commit(make_deployment("web"), SETTINGS, ignored)
        state = await lab.wait_drift(SyncStatus.OUT_OF_SYNC)
    assert state.short_reason == "2 objects differ from git: 2 changed"


async def test_a_secret_is_compared_and_never_shown(namespace: Namespace, tmp_path: Path) -> None:
    lab = LiveLab(tmp_path, namespace)
    async with watching(lab):
        await lab.deploy(PASSWORD)
        assert (await lab.find_drift()).status is SyncStatus.SYNCED
        word = base64.b64encode(b"xyzzy").decode()
        await lab.patch("v1", "Secret", "password", {"data": {"word": word}})
        state = await lab.wait_drift(SyncStatus.OUT_OF_SYNC)
        resources, _ = await lab.read()

    shown = state.reason + repr(resources)
    assert "#data.word" in shown
    for hidden in ("xyzzy", word, "sesame", base64.b64encode(b"open sesame").decode()):
        assert hidden not in shown


async def test_what_is_not_in_git_any_more_and_what_is_missing_are_counted(
    namespace: Namespace, tmp_path: Path
) -> None:
    lab = LiveLab(tmp_path, namespace)
    async with watching(lab):
        await lab.deploy(SETTINGS, make_deployment("web"))
        lab.commit(make_deployment("web"), PASSWORD)
        state = await lab.wait_drift(SyncStatus.OUT_OF_SYNC)

    assert state.short_reason == "2 objects differ from git: 1 missing in the cluster, 1 not in git"
    assert state.reason.index("# 1. not in git: name='settings'") < state.reason.index(
        "# 2. missing in the cluster: name='password'"
    )


async def test_variants_of_a_deployment_that_runs_are_no_drift(
    namespace: Namespace, tmp_path: Path
) -> None:
    lab = LiveLab(tmp_path, namespace)
    async with watching(lab):
        await lab.deploy(make_deployment("web"), SETTINGS)
        await lab.sync(stage="K8S_CANARY_ROLLOUT", replicas=1)
        await lab.wait_until(lambda found: any(each.name == "web-canary" for each in found))
        assert (await lab.find_drift()).status is SyncStatus.SYNCED


async def test_a_selector_that_a_stage_has_changed_is_no_drift(
    namespace: Namespace, tmp_path: Path
) -> None:
    lab = LiveLab(tmp_path, namespace)
    async with watching(lab):
        await lab.deploy(make_deployment("web"), addVariantLabelToSelector=True)
        assert (await lab.find_drift()).status is SyncStatus.SYNCED


async def test_an_object_without_a_namespace_pairs_although_a_namespace_is_set(
    namespace: Namespace, tmp_path: Path
) -> None:
    role: dict[str, Any] = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": f"reader-{namespace.name}"},
        "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}],
    }
    lab = LiveLab(tmp_path, namespace)
    async with watching(lab):
        await lab.deploy(role)
        state = await lab.find_drift()
    namespace.api.delete(role["apiVersion"], "ClusterRole", role["metadata"]["name"])

    assert state.status is SyncStatus.SYNCED


async def test_only_what_changed_is_compared_again(
    namespace: Namespace, tmp_path: Path, faulty_api_server: FaultyApiServer
) -> None:
    """A dry run costs the server as much as an apply: statuses change all the time."""
    kubeconfig = faulty_api_server.write_kubeconfig(tmp_path / "kubeconfig")
    lab = LiveLab(tmp_path, namespace, kubeconfig=kubeconfig)

    def find_dry_runs() -> list[str]:
        return [
            each.path.rpartition("/")[2]
            for each in faulty_api_server.questions
            if each.method == "PATCH" and "dryRun" in each.query
        ]

    async with watching(lab):
        await lab.deploy(make_deployment("web"), SETTINGS)
        await lab.find_drift()
        assert sorted(find_dry_runs()) == ["settings", "web"]
        await asyncio.to_thread(namespace.wait_workload, "Deployment", "web")
        await lab.wait_until(
            lambda found: any(
                each.kind == "Deployment" and each.health is Health.HEALTHY for each in found
            )
        )
        assert len(find_dry_runs()) == 2

        await lab.patch("v1", "ConfigMap", "settings", {"data": {"colour": "red"}})
        await lab.wait_drift(SyncStatus.OUT_OF_SYNC)
        assert find_dry_runs()[2:] == ["settings"]

        lab.commit(make_deployment("web", replicas=3), SETTINGS)
        await lab.find_drift()
        assert find_dry_runs()[3:] == ["web"]


def allow(namespace: Namespace, *rules: dict[str, Any]) -> None:
    """Gives the user `nobody` rights in a namespace."""
    api = "rbac.authorization.k8s.io"
    role = {"name": "nobody"}
    namespace.apply(
        {"apiVersion": f"{api}/v1", "kind": "Role", "metadata": role, "rules": list(rules)}
    )
    namespace.apply(
        {
            "apiVersion": f"{api}/v1",
            "kind": "RoleBinding",
            "metadata": role,
            "roleRef": {"apiGroup": api, "kind": "Role", "name": "nobody"},
            "subjects": [{"kind": "User", "apiGroup": api, "name": "nobody"}],
        }
    )


async def test_without_the_right_to_a_dry_run_fields_are_compared_and_that_is_said(
    namespace: Namespace, tmp_path: Path
) -> None:
    allow(namespace, {"apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "list", "watch"]})
    kubeconfig = namespace.cluster.write_kubeconfig(tmp_path / "nobody", token=NOBODY_TOKEN)
    writer = LiveLab(tmp_path, namespace)
    reader = LiveLab(
        tmp_path,
        namespace,
        kubeconfig=kubeconfig,
        target={"appStateInformer": {"namespace": namespace.name}},
    )
    async with watching(writer, reader):
        await writer.deploy(make_deployment("web"), SETTINGS)
        reader.harness.deployment = writer.harness.deployment
        reader.harness.directory = writer.harness.directory
        assert (await reader.find_drift()).status is SyncStatus.SYNCED

        await writer.patch("v1", "ConfigMap", "settings", {"data": {"colour": "red"}})
        state = await reader.wait_drift(SyncStatus.OUT_OF_SYNC)

    assert "compared without the server's dry run, which was refused" in state.reason
    assert "patch" in state.reason


async def test_a_webhook_that_refuses_dry_runs_is_said_and_fields_are_compared(
    namespace: Namespace, tmp_path: Path
) -> None:
    lab = LiveLab(tmp_path, namespace)
    probe = {**SETTINGS, "metadata": {"name": "probe"}}
    with serving_webhook(namespace, probe) as webhook:
        webhook.refuses_dry_runs = True
        async with watching(lab):
            await lab.deploy(SETTINGS)
            assert (await lab.find_drift()).status is SyncStatus.SYNCED

            await lab.patch("v1", "ConfigMap", "settings", {"data": {"colour": "red"}})
            state = await lab.wait_drift(SyncStatus.OUT_OF_SYNC)
            lab.commit({**SETTINGS, "data": {"colour": "blue"}})
            shown = (await lab.preview()).details

    assert "compared without the server's dry run, which was refused" in state.reason
    assert "no dry runs here" in state.reason
    assert "1 changed" in state.short_reason
    assert "the cluster's dry run refuses it" in shown


def encode(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


async def test_a_refusal_never_shows_what_is_in_a_secret(
    namespace: Namespace, tmp_path: Path
) -> None:
    """This webhook says all that it was sent."""
    lab = LiveLab(tmp_path, namespace)
    probe = {**PASSWORD, "metadata": {"name": "probe"}}
    with serving_webhook(namespace, probe) as webhook:
        webhook.refuses_dry_runs = True
        async with watching(lab):
            await lab.deploy(PASSWORD)
            assert (await lab.find_drift()).status is SyncStatus.SYNCED

            await lab.patch("v1", "Secret", "password", {"stringData": {"word": "xyzzy"}})
            state = await lab.wait_drift(SyncStatus.OUT_OF_SYNC)
            lab.commit({**PASSWORD, "stringData": {"word": "plugh"}})
            shown = (await lab.preview()).details
            webhook.denial = "weak: plugh"
            result = await lab.harness.run("K8S_SYNC", {})

    assert "denied the request" in state.reason
    assert "denied the request" in shown
    assert "denied the request" in result.reason
    for text in (state.reason, shown, result.reason, lab.harness.text):
        for word in ("sesame", "xyzzy", "plugh", "no dry runs", *map(encode, ("xyzzy", "plugh"))):
            assert word not in text


async def test_what_may_not_be_listed_is_unknown_and_not_drift(
    namespace: Namespace, tmp_path: Path
) -> None:
    kubeconfig = namespace.cluster.write_kubeconfig(tmp_path / "nobody", token=NOBODY_TOKEN)
    lab = LiveLab(
        tmp_path,
        namespace,
        kubeconfig=kubeconfig,
        target={"appStateInformer": {"namespace": namespace.name}},
    )
    async with watching(lab):
        lab.commit(SETTINGS)
        resources, state = await lab.read()

    assert state.status is SyncStatus.UNKNOWN
    assert "nobody" in state.reason
    assert [each.kind for each in resources] == ["Cluster"]


async def test_what_kubectl_applied_for_upstream_is_as_git_has_it(
    namespace: Namespace, tmp_path: Path
) -> None:
    """An application that upstream's plugin deployed, by `kubectl apply`, has not drifted."""
    lab = LiveLab(tmp_path, namespace)
    bodies = [make_deployment("web"), SETTINGS, PASSWORD]
    lab.commit(*bodies)
    deployment = lab.harness.deployment
    options = lab.harness.plugin.application_config()
    placed = [
        Manifest({**body, "metadata": {**body["metadata"], "namespace": namespace.name}})
        for body in bodies
    ]
    marked = mark(placed, deployment, options, commit="f" * 40)
    text = "---\n".join(each.to_yaml() for each in marked)
    await asyncio.to_thread(namespace.cluster.run_kubectl, "apply", "--filename", "-", stdin=text)
    async with watching(lab):
        state = await lab.find_drift()
        assert state == SyncState(status=SyncStatus.SYNCED), state.reason

        await lab.patch("v1", "ConfigMap", "settings", {"data": {"colour": "red"}})
        state = await lab.wait_drift(SyncStatus.OUT_OF_SYNC)
    assert state.short_reason == "1 object differs from git: 1 changed"


async def test_a_service_of_the_primary_alone_is_no_drift_and_one_that_left_git_is(
    namespace: Namespace, tmp_path: Path
) -> None:
    def make_service(name: str) -> dict[str, Any]:
        return {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": name},
            "spec": {"selector": {"app": "web"}, "ports": [{"port": 80}]},
        }

    lab = LiveLab(tmp_path, namespace, service={"name": "web"})
    bodies = [make_deployment("web"), make_service("web")]
    async with watching(lab):
        lab.commit(*bodies, make_service("web-admin"))
        await lab.sync(stage="K8S_PRIMARY_ROLLOUT", createService=True)
        await lab.wait_until(lambda found: any(each.name == "web-primary" for each in found))
        assert (await lab.find_drift()).status is SyncStatus.SYNCED

        lab.commit(*bodies)
        state = await lab.wait_drift(SyncStatus.OUT_OF_SYNC)
    assert state.short_reason == "1 object differs from git: 1 not in git"
    assert "name='web-admin'" in state.reason
