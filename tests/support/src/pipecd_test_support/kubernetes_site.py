# SPDX-License-Identifier: Apache-2.0
"""Applications in a repository, deployed to real clusters by a real control plane and piped."""

import asyncio
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import yaml

from pipecd_test_support.piped_site import PipedSite, SiteClient
from pipecd_wire.model import deployment_pb2 as pb

Object = dict[str, Any]

COMPARED: Final = (
    ("apps/v1", "Deployment"),
    ("apps/v1", "StatefulSet"),
    ("apps/v1", "DaemonSet"),
    ("autoscaling/v2", "HorizontalPodAutoscaler"),
    ("gateway.networking.k8s.io/v1", "HTTPRoute"),
    ("networking.istio.io/v1", "DestinationRule"),
    ("networking.istio.io/v1", "VirtualService"),
    ("v1", "ConfigMap"),
    ("v1", "Secret"),
    ("v1", "Service"),
    ("v1", "ServiceAccount"),
)
"""All kinds that applications of these tests have, and those that could be made by mistake."""
COUNTERS: Final = ("deployment.kubernetes.io/revision",)
UNCOMPARED: Final = (
    "creationTimestamp",
    "generation",
    "managedFields",
    "resourceVersion",
    "uid",
)


def read_objects(namespace: Any) -> dict[str, Object]:
    """What a namespace has, by kind and name: spec, data, labels, annotations; no counters."""
    found: dict[str, Object] = {}
    for api_version, kind in COMPARED:
        for body in namespace.find_all(api_version, kind):
            metadata = {k: v for k, v in body["metadata"].items() if k not in UNCOMPARED}
            annotations = {
                key: value
                for key, value in metadata.get("annotations", {}).items()
                if key not in COUNTERS
            }
            kept = {k: v for k, v in body.items() if k not in {"metadata", "status"}}
            metadata["annotations"] = annotations
            found[f"{kind}/{metadata['name']}"] = {**kept, "metadata": metadata}
    return found


def read_uids(namespace: Any) -> dict[str, str]:
    """Who is who: an object that is made anew has another uid."""
    return {
        f"{kind}/{body['metadata']['name']}": body["metadata"]["uid"]
        for api_version, kind in (("v1", "Service"), ("v1", "ConfigMap"), ("apps/v1", "Deployment"))
        for body in namespace.find_all(api_version, kind)
    }


def make_application(
    name: str,
    stages: Iterable[Mapping[str, Any]] = (),
    *,
    plugin: str = "kubernetes",
    options: Mapping[str, Any] | None = None,
    **spec: Any,
) -> str:
    """The text of an application file that deploys only when it is told to."""
    whole: dict[str, Any] = {
        "name": name,
        "trigger": {"onCommit": {"disabled": True}},
        "plugins": {plugin: dict(options or {})},
        **spec,
    }
    if given := list(stages):
        whole["pipeline"] = {"stages": given}
        whole["planner"] = {"alwaysUsePipeline": True}
    document = {"apiVersion": "pipecd.dev/v1beta1", "kind": "Application", "spec": whole}
    return json.dumps(document, indent=1)


def make_manifests(*bodies: Mapping[str, Any]) -> str:
    """The text of a file with several manifests."""
    return yaml.safe_dump_all([dict(each) for each in bodies], sort_keys=False)


def make_deployment(
    name: str = "web",
    *,
    image: str = "web:v1",
    replicas: int | None = 2,
    labels: Mapping[str, str] | None = None,
    config: str = "",
) -> Object:
    """A Deployment; `config` is a ConfigMap that its pods read."""
    all_labels = {"app": name, **(labels or {})}
    container: Object = {"name": "web", "image": image}
    if config:
        container["envFrom"] = [{"configMapRef": {"name": config}}]
    spec: Object = {
        "selector": {"matchLabels": all_labels},
        "template": {"metadata": {"labels": all_labels}, "spec": {"containers": [container]}},
    }
    if replicas is not None:
        spec["replicas"] = replicas
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": spec}


def make_service(name: str = "web", *, labels: Mapping[str, str] | None = None) -> Object:
    """A Service."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name},
        "spec": {"selector": {"app": name, **(labels or {})}, "ports": [{"port": 80}]},
    }


def make_config_map(name: str = "web", **data: str) -> Object:
    """A ConfigMap."""
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


class KubernetesSite:
    """A piped with the Kubernetes plugins, and one application on its clusters."""

    def __init__(
        self,
        site: PipedSite,
        client: SiteClient,
        path: str,
        *,
        plugin: str = "kubernetes",
        targets: Sequence[str] = ("main",),
        is_registered_with_targets: bool = True,
    ) -> None:
        self.site = site
        self.client = client
        self.path = path
        self.plugin = plugin
        self.targets = list(targets)
        self.registered_targets = self.targets if is_registered_with_targets else []
        self.application_id = ""

    def commit(self, application: str, **files: str | None) -> str:
        """Commit the application file and files beside it; answers the hash."""
        named = {f"{self.path}/{name.replace('__', '.')}": text for name, text in files.items()}
        return self.site.commit({f"{self.path}/app.pipecd.yaml": application, **named})

    async def start(self, commit: str) -> str:
        """Begin a deployment; answers its id."""
        if not self.application_id:
            self.application_id = await self.client.register(
                self.path, **{self.plugin: self.registered_targets}
            )
        return await self.client.deploy(
            self.path, commit, self.application_id, {self.plugin: self.targets}
        )

    async def deploy(self, commit: str) -> pb.Deployment:
        """Deploy a commit to its end."""
        return await self.client.completed(await self.start(commit))

    async def succeed(self, commit: str) -> pb.Deployment:
        """Deploy a commit, which must succeed."""
        ended = await self.deploy(commit)
        if ended.status != pb.DEPLOYMENT_SUCCESS:
            raise AssertionError(f"{ended.status_reason}\n{await self.explain(ended)}")
        return ended

    async def wait_completed(self, deployment_id: str) -> pb.Deployment:
        """Wait for the end of a deployment; a piped that was killed is started again."""

        async def start_again() -> None:
            while True:
                if not self.site.alive():
                    self.site.start()
                await asyncio.sleep(0.05)  # between looks at another process

        restarting = asyncio.create_task(start_again())
        try:
            return await self.client.completed(deployment_id)
        finally:
            restarting.cancel()
            await asyncio.wait([restarting])

    async def explain(self, deployment: pb.Deployment) -> str:
        """The logs of all stages, for a test that failed."""
        parts = []
        for stage in deployment.stages:
            if stage.status not in {pb.STAGE_NOT_STARTED_YET, pb.STAGE_SKIPPED}:
                lines = await self.client.log(deployment, stage)
                parts.append("\n".join([f"== {stage.name}", *lines]))
        return "\n".join(parts)


def configure(
    site: PipedSite, clusters: Mapping[str, Path], *others: Mapping[str, Any] | str, **spec: Any
) -> None:
    """Write the file of a piped with both Kubernetes plugins, a target for each kubeconfig."""
    targets = [
        {"name": name, "labels": {"name": name}, "config": {"kubeConfigPath": str(path)}}
        for name, path in clusters.items()
    ]
    site.configure(
        {"name": "kubernetes", "deployTargets": targets},
        {"name": "kubernetes_multicluster", "deployTargets": targets},
        *(others or ("wait", "waitapproval", "scriptrun")),
        **spec,
    )
