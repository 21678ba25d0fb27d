# SPDX-License-Identifier: Apache-2.0
"""Any node of the live tree of a real cluster opens; values of Secrets never show."""

import asyncio
import base64
from pathlib import Path
from typing import Any

import pytest

from pipecd_sdk import Details, Resource, ResourceGoneError
from pipecd_test_support.kubernetes.live_lab import LiveLab, watching
from pipecd_test_support.kubernetes.real_cluster import Namespace
from pipecd_test_support.kubernetes.workloads import make_deployment

NEEDLE = "open-sesame-thyself"
CONFIG = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "settings"},
    "data": {"colour": "green"},
}


def secret(value: str = NEEDLE, **parts: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "keys", "annotations": {"tool/copy": f"password={NEEDLE}"}},
        "stringData": {"password": value},
        **parts,
    }


def has(kind: str, count: int = 1) -> Any:
    return lambda found: sum(each.kind == kind for each in found) >= count


def find(resources: list[Resource], kind: str) -> Resource:
    return next(each for each in resources if each.kind == kind)


async def test_every_node_of_the_tree_opens(namespace: Namespace, tmp_path: Path) -> None:
    lab = LiveLab(tmp_path, namespace)
    async with watching(lab):
        await lab.deploy(make_deployment("web", replicas=1), CONFIG, secret())
        resources = await lab.wait_until(has("Pod"))
        opened = {each.kind: await lab.harness.open_resource(each) for each in resources}

    assert opened.keys() >= {"Deployment", "ReplicaSet", "Pod", "ConfigMap", "Secret"}
    for kind, details in opened.items():
        assert f"kind: {kind}\n" in details.manifest
        assert "managedFields" not in details.manifest
    for kind in ("Deployment", "ConfigMap", "Secret"):
        assert opened[kind].difference == "", "what was just applied is what git says"
    for kind in ("ReplicaSet", "Pod"):
        assert opened[kind].difference is None
        assert any("not in git" in note for note in opened[kind].notes)
    assert any(each.reason == "ScalingReplicaSet" for each in opened["Deployment"].events)
    times = [each.at for each in opened["Pod"].events if each.at is not None]
    assert times
    assert times == sorted(times)


async def test_a_change_by_hand_is_shown_field_by_field(
    namespace: Namespace, tmp_path: Path
) -> None:
    lab = LiveLab(tmp_path, namespace)
    async with watching(lab):
        await lab.deploy(make_deployment("web", replicas=1), CONFIG)
        resources = await lab.wait_until(has("Deployment"))
        change = {"spec": {"replicas": 3}}
        await lab.patch("apps/v1", "Deployment", "web", change)
        changed = await lab.harness.open_resource(find(resources, "Deployment"))
        same = await lab.harness.open_resource(find(resources, "ConfigMap"))
        lab.commit(make_deployment("web", replicas=1))
        removed = await lab.harness.open_resource(find(resources, "ConfigMap"))

    assert changed.difference is not None
    assert [
        line.strip() for line in changed.difference.splitlines() if line.startswith(("-", "+"))
    ] == [
        "-   replicas: 3",
        "+   replicas: 1",
    ]
    assert "replicas: 3\n" in changed.manifest
    assert same.difference == ""
    assert removed.difference is None
    assert any("git does not have it any more" in note for note in removed.notes)


async def test_a_pod_shows_the_last_lines_of_each_container_and_of_its_previous_run(
    namespace: Namespace, tmp_path: Path
) -> None:
    await asyncio.to_thread(
        namespace.set_log, ["one", "two", "three"], previous=["it was", "the end"]
    )
    lab = LiveLab(tmp_path, namespace)
    async with watching(lab):
        await lab.deploy(make_deployment("web", image="web:2-crash", replicas=1), wait_ready=False)
        resources = await lab.wait_until(
            lambda found: any("CrashLoop" in each.description for each in found)
        )
        pod = find(resources, "Pod")
        opened = await lab.harness.open_resource(pod, log_lines=2)
        strange = await lab.harness.open_resource(pod, container="no-such")

    lines = {each.previous: each.text.split("\n") for each in opened.logs}
    assert [each for each in lines[False] if each] == ["two", "three"]
    assert [each for each in lines[True] if each] == ["it was", "the end"]
    assert {each.container for each in opened.logs} == {"web"}
    assert "it has no container 'no-such'; it has web" in strange.notes


async def test_values_of_secrets_show_nowhere(namespace: Namespace, tmp_path: Path) -> None:
    """Not in the manifest, an annotation, the difference, a refusal of the server, an error."""
    lab = LiveLab(tmp_path, namespace)
    encoded = base64.b64encode(NEEDLE.encode()).decode()
    shown: list[Details] = []
    async with watching(lab):
        await lab.deploy(secret())
        await asyncio.to_thread(
            namespace.cluster.run_kubectl,
            "annotate",
            "secret",
            "keys",
            f"--namespace={namespace.name}",
            f'kubectl.kubernetes.io/last-applied-configuration={{"data":"{encoded}"}}',
        )
        resources = await lab.wait_until(has("Secret"))
        keys = find(resources, "Secret")
        shown.append(await lab.harness.open_resource(keys))
        await lab.patch("v1", "Secret", "keys", {"stringData": {"password": f"{NEEDLE}-2"}})
        shown.append(await lab.harness.open_resource(keys))
        # The server refuses the dry run of these, and says why.
        for wrong in (
            secret(stringData={"password": NEEDLE, "not a/key": NEEDLE}),
            secret(type="kubernetes.io/tls", data={"tls.crt": encoded}),
        ):
            lab.commit(wrong)
            shown.append(await lab.harness.open_resource(keys))

    second = base64.b64encode(f"{NEEDLE}-2".encode()).decode()
    for details in shown:
        text = repr(details)
        assert "password" in text
        for value in (NEEDLE, encoded, encoded.rstrip("="), second):
            assert value not in text
    assert shown[0].difference == ""
    assert shown[1].difference, "it says that it differs, and not how"
    assert "***" in shown[1].difference


async def test_what_is_not_of_the_application_is_gone(namespace: Namespace, tmp_path: Path) -> None:
    """Neither another application's object, nor one of the same name that came later."""
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    ours.mkdir()
    theirs.mkdir()
    lab, other = LiveLab(ours, namespace), LiveLab(theirs, namespace)
    async with watching(lab), watching(other):
        await lab.deploy(CONFIG)
        await other.deploy(secret())
        settings = find(await lab.wait_until(has("ConfigMap")), "ConfigMap")
        keys = find(await other.wait_until(has("Secret")), "Secret")
        with pytest.raises(ResourceGoneError):
            await lab.harness.open_resource(keys)
        await asyncio.to_thread(
            namespace.cluster.run_kubectl,
            "delete",
            "configmap",
            "settings",
            f"--namespace={namespace.name}",
        )
        await asyncio.to_thread(namespace.apply, CONFIG)
        with pytest.raises(ResourceGoneError):
            await lab.harness.open_resource(settings)
