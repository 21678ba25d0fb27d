# SPDX-License-Identifier: Apache-2.0
"""What a commit would change in a real cluster, before it is deployed."""

from pathlib import Path

from pipecd_test_support.kubernetes.live_lab import LiveLab, watching
from pipecd_test_support.kubernetes.real_cluster import Namespace
from pipecd_test_support.kubernetes.tokens import NOBODY_TOKEN
from pipecd_test_support.kubernetes.workloads import make_deployment

SETTINGS = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "settings"},
    "data": {"colour": "green"},
}


def make_secret(word: str) -> dict[str, object]:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "password"},
        "stringData": {"word": word},
    }


async def test_a_first_deployment_adds_everything(namespace: Namespace, tmp_path: Path) -> None:
    lab = LiveLab(tmp_path, namespace)
    async with watching(lab):
        lab.commit(make_deployment("web"), SETTINGS)
        preview = await lab.preview()

    assert preview.summary == "2 added (the first deployment)"
    assert "+  colour: green" in preview.details
    assert "refuses" not in preview.details


async def test_the_same_manifests_change_nothing(namespace: Namespace, tmp_path: Path) -> None:
    lab = LiveLab(tmp_path, namespace)
    async with watching(lab):
        await lab.deploy(make_deployment("web"), make_secret("x"))
        lab.commit(make_deployment("web"), make_secret("x"))
        preview = await lab.preview()

    assert (preview.no_change, preview.details) == (True, "")


async def test_changes_are_shown_field_by_field_and_secrets_never(
    namespace: Namespace, tmp_path: Path
) -> None:
    lab = LiveLab(tmp_path, namespace)
    async with watching(lab):
        await lab.deploy(make_deployment("web"), make_secret("sesame"), SETTINGS)
        lab.commit(make_deployment("web", image="web:2"), make_secret("xyzzy"))
        preview = await lab.preview()

    assert preview.summary == "2 changed, 1 removed from git"
    assert "image: web:1\n" in preview.details
    assert "image: web:2\n" in preview.details
    assert "#data.word" in preview.details
    assert "it stays in the cluster unless a stage prunes" in preview.details
    for hidden in ("sesame", "xyzzy", "eHl6enk"):
        assert hidden not in preview.details


async def test_what_the_server_would_refuse_is_said(namespace: Namespace, tmp_path: Path) -> None:
    lab = LiveLab(tmp_path, namespace)
    async with watching(lab):
        await lab.deploy(make_deployment("web"))
        changed = make_deployment("web")
        changed["spec"]["selector"] = {"matchLabels": {"app": "other"}}
        changed["spec"]["template"]["metadata"]["labels"] = {"app": "other"}
        odd = {"apiVersion": "nowhere.io/v1", "kind": "Odd", "metadata": {"name": "odd"}}
        lab.commit(changed, odd, {**SETTINGS, "data": {"no key!": "x"}})
        preview = await lab.preview()

    assert preview.details.count("the cluster's dry run refuses it") == 3
    assert "immutable" in preview.details
    assert "nowhere.io/v1" in preview.details


async def test_what_somebody_changed_by_hand_and_a_sync_would_set_back_is_said(
    namespace: Namespace, tmp_path: Path
) -> None:
    lab = LiveLab(tmp_path, namespace)
    async with watching(lab):
        await lab.deploy(make_deployment("web"))
        await lab.patch("apps/v1", "Deployment", "web", {"spec": {"replicas": 5}})
        lab.commit(make_deployment("web", image="web:2"))
        preview = await lab.preview()

    assert "in the cluster this would change too" in preview.details
    assert "#spec.replicas" in preview.details


async def test_a_cluster_that_cannot_be_asked_costs_only_its_part(
    namespace: Namespace, tmp_path: Path
) -> None:
    away = namespace.cluster.write_kubeconfig(
        tmp_path / "away", token=NOBODY_TOKEN, server="https://127.0.0.1:1"
    )
    lab = LiveLab(tmp_path, namespace, kubeconfig=away)
    async with watching(lab):
        lab.commit(SETTINGS)
        preview = await lab.preview()

    assert preview.summary == "1 added (the first deployment)"
    assert "The cluster was not asked" in preview.details
