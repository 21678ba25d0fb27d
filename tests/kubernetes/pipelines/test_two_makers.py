# SPDX-License-Identifier: Apache-2.0
"""The piped file of the plugin RFC, and two makers of one platform side by side in one piped."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from pipecd_runtime.ports import pick_port
from pipecd_test_support.kubernetes.real_cluster import Namespace
from pipecd_test_support.kubernetes_site import (
    KubernetesSite,
    make_application,
    make_deployment,
    make_manifests,
    read_objects,
)
from pipecd_test_support.piped_site import PipedSite
from pipecd_wire.model import deployment_pb2 as pb

BIN = Path(sys.executable).parent


def configure(site: PipedSite, namespace: Namespace) -> None:
    """Write the file as the RFC spells it: `plugin`, `sourceURL`, and a name of its own."""
    kubernetes = {
        "name": "k8s_plugin",
        "port": pick_port(),
        "sourceURL": str(BIN / "pipecd-plugin-kubernetes"),
        "deployTargets": [
            {
                "name": "dev",
                "labels": {"env": "dev"},
                "config": {
                    "masterURL": namespace.cluster.server,
                    "kubeConfigPath": str(namespace.cluster.kubeconfig),
                },
            }
        ],
    }
    other = {
        "name": "k8s_other",
        "port": pick_port(),
        "sourceURL": str(BIN / "pipecd-plugin-dummy"),
        "deployTargets": [{"name": "dev"}],
    }
    file = site.configure()
    document = json.loads(file.read_text())
    del document["spec"]["plugins"]
    document["spec"]["plugin"] = [kubernetes, other]
    file.write_text(json.dumps(document))


async def test_two_makers_of_one_platform_run_side_by_side(
    own_piped: PipedSite, namespace: Namespace
) -> None:
    configure(own_piped, namespace)
    own_piped.start()
    record = str(own_piped.folder / "record")
    ours: dict[str, Any] = {
        "plugin": "k8s_plugin",
        "options": {"input": {"namespace": namespace.name}},
    }
    async with own_piped.client() as client:
        mine = KubernetesSite(own_piped, client, "ours", plugin="k8s_plugin", targets=["dev"])
        other = KubernetesSite(own_piped, client, "other", plugin="k8s_other", targets=["dev"])
        first = mine.commit(
            make_application("ours", **ours), m__yaml=make_manifests(make_deployment())
        )
        await mine.succeed(first)
        stages = [{"name": "K8S_CANARY_ROLLOUT"}, {"name": "K8S_PRIMARY_ROLLOUT"}]
        stages.append({"name": "K8S_CANARY_CLEAN"})
        second = mine.commit(
            make_application("ours", stages, **ours),
            m__yaml=make_manifests(make_deployment(image="web:v2")),
        )
        theirs = other.commit(
            make_application(
                "other",
                [{"name": "DUMMY_SYNC", "with": {"record": record}}],
                plugin="k8s_other",
            )
        )

        ended = await asyncio.gather(mine.deploy(second), other.deploy(theirs))
        told = [await mine.explain(ended[0]), await other.explain(ended[1])]

    assert [each.status for each in ended] == [pb.DEPLOYMENT_SUCCESS] * 2, "\n".join(told)
    found = await asyncio.to_thread(read_objects, namespace)
    containers = found["Deployment/web"]["spec"]["template"]["spec"]["containers"]
    assert containers[0]["image"] == "web:v2"
    assert own_piped.records()[0].startswith("DUMMY_SYNC")
