# SPDX-License-Identifier: Apache-2.0
"""An application in a namespace of a real cluster: deployed, looked at, and compared with git."""

import asyncio
import gc
import warnings
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

from msgspec.structs import replace
from pipecd_plugin_kubernetes.plugin import Kubernetes

from pipecd_sdk import Health, Preview, Resource, StageStatus, SyncState, SyncStatus, WatchContext
from pipecd_sdk.kit import yaml
from pipecd_sdk.testing import StageHarness, deploy_target, example_deployment
from pipecd_test_support.kubernetes.real_cluster import Namespace

TARGET = "main"


class LiveLab:
    """One application, its files, and what the plugin announced."""

    def __init__(
        self,
        folder: Path,
        namespace: Namespace,
        *,
        kubeconfig: Path | None = None,
        plugin: Kubernetes | None = None,
        **options: Any,
    ) -> None:
        self.namespace = namespace
        self.folder = folder
        self.plugin = plugin or Kubernetes()
        self.target_config = {"kubeConfigPath": str(kubeconfig or namespace.cluster.kubeconfig)}
        given = options.pop("target", {})
        self.harness = StageHarness(
            self.plugin,
            deployment=replace(example_deployment(), application_id=f"app-{uuid4()}"),
            directory=folder / "target",
            options={
                "input": {"namespace": namespace.name},
                "readiness": {"wait": False},
                **options,
            },
            targets=[deploy_target(Kubernetes, TARGET, {**self.target_config, **given})],
        )
        self.announced: list[str] = []
        self._changed = asyncio.Event()
        self._commits = 0

    @property
    def application_id(self) -> str:
        return self.harness.deployment.application_id

    def commit(self, *bodies: Mapping[str, Any], config: Mapping[str, Any] | None = None) -> None:
        """Makes a new commit of these manifests; the one before is what runs."""
        self._commits += 1
        if self._commits > 1:
            self.harness.running_directory = self.harness.directory
        directory = self.folder / f"commit-{self._commits}"
        directory.mkdir()
        for number, body in enumerate(bodies):
            (directory / f"{number:03}.yaml").write_text(yaml.dump(dict(body)))
        if config is not None:
            (directory / "app.pipecd.yaml").write_text(yaml.dump(dict(config)))
        self.harness.directory = directory
        commit = replace(self.harness.deployment.commit, hash=f"{self._commits:040x}")
        self.harness.deployment = replace(self.harness.deployment, commit=commit)

    async def sync(self, *, stage: str = "K8S_SYNC", **options: Any) -> None:
        """Runs a stage, which must succeed."""
        result = await self.harness.run(stage, options)
        assert result.status is StageStatus.SUCCESS, self.harness.text

    async def deploy(self, *bodies: Mapping[str, Any], **options: Any) -> None:
        """Commits manifests and brings the cluster to them, without waiting for readiness."""
        self.commit(*bodies)
        await self.sync(**options)

    async def read(self) -> tuple[list[Resource], SyncState]:
        """Returns what runs, and whether it is what git says."""
        seen = await self.harness.live_state()
        return [resource for _, resource in seen.resources], seen.sync

    async def find_tree(self) -> dict[tuple[str, str], Resource]:
        """Returns what runs, by kind and name."""
        resources, _ = await self.read()
        return {(each.kind, each.name): each for each in resources}

    async def find_drift(self) -> SyncState:
        return (await self.read())[1]

    async def preview(self) -> Preview:
        return (await self.harness.plan_preview())[TARGET]

    async def wait_until(self, condition: Any, *, limit_seconds: float = 60) -> list[Resource]:
        """Waits for announcements until the resources satisfy a condition."""
        async with asyncio.timeout(limit_seconds):
            while True:
                self._changed.clear()
                resources, _ = await self.read()
                if condition(resources):
                    return resources
                await self._changed.wait()

    async def wait_drift(self, status: SyncStatus, *, limit_seconds: float = 60) -> SyncState:
        """Waits for announcements until the application is, or is not, as git says."""
        async with asyncio.timeout(limit_seconds):
            while True:
                self._changed.clear()
                state = await self.find_drift()
                if state.status is status:
                    return state
                await self._changed.wait()

    async def patch(self, api_version: str, kind: str, name: str, change: dict[str, Any]) -> None:
        """Changes an object, as a person does by hand."""
        await asyncio.to_thread(
            self.namespace.api.patch, api_version, kind, name, self.namespace.name, change
        )

    def announce(self, application_id: str) -> None:
        if application_id == self.application_id:
            self.announced.append(application_id)
            self._changed.set()


@asynccontextmanager
async def watching(*labs: LiveLab) -> AsyncIterator[None]:
    """Runs the watch of the labs' plugins while the block runs."""

    def announce(application_id: str) -> None:
        for lab in labs:
            lab.announce(application_id)

    tasks = [
        asyncio.create_task(plugin.watch(WatchContext(targets=(), announce=announce)))
        for plugin in {id(lab.plugin): lab.plugin for lab in labs}.values()
    ]
    await asyncio.sleep(0)  # until they watch
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        for lab in labs:
            await lab.plugin.clusters.close()
        await _collect_sockets()
    assert all(task.cancelled() for task in tasks)


async def _collect_sockets() -> None:
    """Collects connections that were cancelled while they were made, without a complaint.

    A test may end while dozens of watches connect; asyncio closes such a socket only then. In a
    plugin the process ends.
    """
    for _ in range(5):
        await asyncio.sleep(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


def find_pods(resources: Sequence[Resource], health: Health) -> list[str]:
    """Returns the names of pods of a health."""
    return [each.name for each in resources if each.kind == "Pod" and each.health is health]
