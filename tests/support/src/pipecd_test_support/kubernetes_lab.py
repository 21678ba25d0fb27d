# SPDX-License-Identifier: Apache-2.0
"""Stages of the Kubernetes plugins on real clusters, without a control plane and a piped."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from msgspec.structs import replace
from pipecd_plugin_kubernetes.plugin import Kubernetes

from pipecd_sdk import DeployTarget, StageResult, StageStatus
from pipecd_sdk.testing import StageHarness, deploy_target, example_deployment
from pipecd_test_support.kubernetes_site import Object, make_manifests, read_objects


@dataclass(kw_only=True)
class KubernetesLab:
    """One application in namespaces of clusters: commits that follow each other."""

    folder: Path
    namespaces: Mapping[str, Any]
    """By the names of deploy targets; all have the same name."""
    kubeconfig: Path | None = None
    """Used in place of those of the namespaces' clusters."""
    plugin: Kubernetes = field(default_factory=Kubernetes)
    options: dict[str, Any] = field(default_factory=dict)
    commits: list[Path] = field(default_factory=list)
    harness: StageHarness[Kubernetes] = field(init=False)

    @property
    def namespace(self) -> Any:
        return next(iter(self.namespaces.values()))

    @property
    def targets(self) -> list[DeployTarget]:
        return [
            deploy_target(
                self.plugin,
                name,
                {"kubeConfigPath": str(self.kubeconfig or each.cluster.kubeconfig)},
                labels={"name": name},
            )
            for name, each in self.namespaces.items()
        ]

    def begin(
        self,
        *manifests: Object,
        options: Mapping[str, Any] | None = None,
        files: Mapping[str, str] | None = None,
    ) -> StageHarness[Kubernetes]:
        """Begin a deployment of a commit; the one before it runs."""
        number = len(self.commits) + 1
        folder = self.folder / f"commit-{number}"
        folder.mkdir()
        if manifests:
            (folder / "manifests.yaml").write_text(make_manifests(*manifests))
        for name, text in (files or {}).items():
            (folder / name).write_text(text)
        running = self._complete(self.options)
        self.options = {**self.options, **(options or {})}
        given = self._complete(self.options)
        example = example_deployment()
        self.harness = StageHarness(
            self.plugin,
            directory=folder,
            running_directory=self.commits[-1] if self.commits else None,
            options=given,
            running_options=running,
            deployment=replace(
                example,
                id=f"deployment-{number}",
                application_id=f"application-{self.namespace.name}",
                commit=replace(example.commit, hash=f"{number:040x}"),
                running_commit=f"{number - 1:040x}" if self.commits else "",
            ),
            targets=self.targets,
        )
        self.commits.append(folder)
        return self.harness

    def _complete(self, options: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "readiness": {"timeout": "30s"},
            **options,
            "input": {"namespace": self.namespace.name, **options.get("input", {})},
        }

    async def run(
        self, stage: str, options: Mapping[str, Any] | None = None, *, index: int = 0
    ) -> StageResult:
        """Run a stage of the deployment that was begun; without options as in a quick sync."""
        return await self.harness.run(stage, options, index=index)

    async def succeed(
        self, stage: str, options: Mapping[str, Any] | None = None, *, index: int = 0
    ) -> None:
        """Run a stage, which must succeed."""
        result = await self.run(stage, options, index=index)
        if result.status is not StageStatus.SUCCESS:
            raise AssertionError(f"{stage}: {result.reason}\n{self.harness.text}")

    def read(self) -> dict[str, Object]:
        """What the first namespace has."""
        return read_objects(self.namespace)

    async def close(self) -> None:
        await self.plugin.clusters.close()
