# SPDX-License-Identifier: Apache-2.0
"""The rights that the documentation tells people to give to piped are enough, and are needed."""

import asyncio
from pathlib import Path

from pipecd_test_support.kubernetes.real_cluster import Namespace
from pipecd_test_support.kubernetes_site import (
    KubernetesSite,
    configure,
    make_application,
    make_config_map,
    make_deployment,
    make_manifests,
    make_service,
)
from pipecd_test_support.piped_site import PipedSite
from pipecd_wire.model import deployment_pb2 as pb

LABELS = {"pipecd.dev/variant": "primary"}
CANARY = ["K8S_CANARY_ROLLOUT", "K8S_PRIMARY_ROLLOUT", "K8S_CANARY_CLEAN"]


async def test_an_account_with_these_rights_deploys_prunes_and_rolls_back(
    kubeconfig: Path, own_piped: PipedSite, namespace: Namespace
) -> None:
    configure(own_piped, {"main": kubeconfig})
    own_piped.start()
    async with own_piped.client() as person:
        site = KubernetesSite(own_piped, person, "shop")
        stages = [{"name": name} for name in CANARY]
        options = {
            "input": {"namespace": namespace.name},
            "quickSync": {"prune": True},
            "readiness": {"timeout": "5s"},
        }
        application = make_application("shop", stages, options=options)
        first = make_manifests(
            make_deployment(labels=LABELS), make_service(), make_config_map(a="1")
        )
        crash = make_manifests(make_deployment(labels=LABELS, image="web:2-crash"), make_service())

        await site.succeed(site.commit(application, web__yaml=first))
        ended = await site.deploy(site.commit(application, web__yaml=crash))

        assert ended.status == pb.DEPLOYMENT_FAILURE
        assert "CrashLoopBackOff" in await site.explain(ended)
        [rollback] = [each for each in ended.stages if each.name == "K8S_ROLLBACK"]
        assert rollback.status == pb.STAGE_SUCCESS
        quick = make_application("shop", options=options)
        await site.succeed(
            site.commit(quick, web__yaml=make_manifests(make_deployment(labels=LABELS)))
        )
    left = await asyncio.to_thread(namespace.find_all, "v1", "Service")
    assert left == []


async def test_a_kind_that_is_missing_fails_the_stage_with_a_sentence(
    kubeconfig: Path, own_piped: PipedSite, namespace: Namespace
) -> None:
    configure(own_piped, {"main": kubeconfig})
    own_piped.start()
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "most"},
        "spec": {"hard": {"pods": "10"}},
    }
    async with own_piped.client() as person:
        site = KubernetesSite(own_piped, person, "quota")
        application = make_application("quota", options={"input": {"namespace": namespace.name}})

        ended = await site.deploy(site.commit(application, web__yaml=make_manifests(quota)))

        assert ended.status == pb.DEPLOYMENT_FAILURE
        said = await site.explain(ended)
    assert "ResourceQuota" in said
    assert "forbidden" in said.lower()
