# SPDX-License-Identifier: Apache-2.0
"""One stage on one deploy target: what the work of every stage is given."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from pipecd_plugin_kubernetes.apply import Applied, apply_manifests, wait_ready
from pipecd_plugin_kubernetes.apply.wait_start import WaitStart
from pipecd_plugin_kubernetes.client import Cluster
from pipecd_plugin_kubernetes.config import KubernetesOptions
from pipecd_plugin_kubernetes.manifest import Manifest, ResourceKey
from pipecd_plugin_kubernetes.stages.configuration import ConfigurationNotes
from pipecd_plugin_kubernetes.stages.ledger import Ledger
from pipecd_sdk import Deployment, DeployTarget, Source, StageContext, StageFailedError, StageLog

Load = Callable[[Source, KubernetesOptions], Awaitable[Sequence[Manifest]]]
"""Renders the manifests of a commit, without anything that PipeCD adds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetRun:
    """One stage on one deploy target."""

    ctx: StageContext
    target: DeployTarget
    cluster: Cluster
    applying: Cluster
    """The same one; its warnings go to the log. They are about what is applied."""
    log: StageLog
    options: KubernetesOptions
    """Those of the commit that is deployed, for this deploy target."""
    running_options: KubernetesOptions | None
    """Those of the commit that ran before; None when it did not run on this deploy target."""
    load: Load

    @property
    def deployment(self) -> Deployment:
        """Returns the deployment."""
        return self.ctx.deployment

    @property
    def ledger(self) -> Ledger:
        """Returns the notes of what was there before the deployment."""
        return Ledger(self.ctx.deployment_metadata, self.target.name, self.cluster)

    async def load_target(self) -> Sequence[Manifest]:
        """Returns the manifests of the commit that is deployed. Raises StageFailedError."""
        manifests = await self.load(self.ctx.source.target, self.options)
        if not manifests:
            raise StageFailedError(
                "there are no manifests",
                hint="are they in the application's folder, and named by input.manifests?",
            )
        return manifests

    async def load_running(self) -> Sequence[Manifest]:
        """Returns the manifests of the commit that ran before. Raises StageFailedError."""
        running = self.ctx.source.running
        if running is None or self.running_options is None:
            raise StageFailedError("no earlier commit was deployed here")
        return await self.load(running, self.running_options)

    async def apply(
        self,
        manifests: Sequence[Manifest],
        *,
        routing: Sequence[Manifest] = (),
        sets_replicas: Sequence[ResourceKey] = (),
    ) -> Applied:
        """Notes what is there, applies manifests and, unless told otherwise, waits until ready.

        `routing` are those of them that route traffic; `sets_replicas` are the workloads whose
        replicas the stage decides about.
        """
        await self._note(manifests, routing)
        applied = await self.apply_only(manifests, sets_replicas=sets_replicas)
        await self.wait_ready(applied)
        return applied

    async def apply_only(
        self,
        manifests: Sequence[Manifest],
        *,
        sets_replicas: Sequence[ResourceKey] = (),
        goes_back: bool = False,
    ) -> Applied:
        """Applies manifests and returns what became of them; a rollback `goes_back`."""
        notes = ConfigurationNotes(self.ctx.deployment_metadata, self.target.name, self.cluster)
        if goes_back:
            pod_marks = await notes.restore()
        else:
            pod_marks = await notes.look(manifests, is_first=self.ctx.source.running is None)
        return await apply_manifests(
            self.applying,
            manifests,
            log=self.log,
            create_namespaces=self.options.input.auto_create_namespace,
            sets_replicas=sets_replicas,
            run_id=f"{self.deployment.id}/{self.ctx.stage.id}",
            pod_marks=pod_marks,
        )

    async def wait_ready(self, applied: Applied) -> None:
        """Waits until what was applied is ready, unless the application says not to."""
        if self.options.readiness.wait:
            await wait_ready(
                self.cluster,
                applied,
                log=self.log,
                within=self.options.readiness.timeout,
                start=WaitStart(metadata=self.ctx.metadata, key=f"waits-since/{self.target.name}"),
            )

    async def _note(self, manifests: Sequence[Manifest], routing: Sequence[Manifest]) -> None:
        if self.ctx.source.running is None:
            return  # nothing to go back to
        rendered: list[ResourceKey] = []
        if self.running_options is not None:
            try:
                rendered = [each.key for each in await self.load_running()]
            except StageFailedError as error:
                # What runs can then be told only by looking.
                self.log.info("the commit that runs cannot be rendered: %s", error)
        await self.ledger.note(manifests, rendered=rendered, routing=routing)
