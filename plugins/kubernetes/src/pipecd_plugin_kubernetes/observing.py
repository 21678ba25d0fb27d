# SPDX-License-Identifier: Apache-2.0
"""What both plugins can tell of a deploy target: what runs, what drifted, what would change."""

import hashlib
from collections.abc import Sequence
from functools import partial

import msgspec

from pipecd_plugin_kubernetes.client import Cluster
from pipecd_plugin_kubernetes.clusters import Clusters
from pipecd_plugin_kubernetes.config import KubernetesOptions, KubernetesPluginConfig
from pipecd_plugin_kubernetes.desired import read_ignored_fields
from pipecd_plugin_kubernetes.details import GitDifference, open_object, to_git_difference
from pipecd_plugin_kubernetes.drift import DriftDetector, DriftQuestion
from pipecd_plugin_kubernetes.livestate import LiveObject, LiveStates, LiveView
from pipecd_plugin_kubernetes.livestate.records import IGNORE_DRIFT
from pipecd_plugin_kubernetes.manifest import Manifest
from pipecd_plugin_kubernetes.planpreview import Load, PreviewQuestion, preview
from pipecd_plugin_kubernetes.renderer import Renderer, load_for
from pipecd_plugin_kubernetes.targets import resolve_targets
from pipecd_sdk import (
    DeployTarget,
    Details,
    DetailsContext,
    Drift,
    LiveContext,
    LiveSnapshot,
    LiveState,
    LiveWatch,
    PlanPreview,
    Preview,
    PreviewContext,
    Resource,
    ResourceDetails,
    ResourceGoneError,
    Source,
    SyncState,
    SyncStatus,
    TargetError,
    WatchContext,
)


class Observing(LiveState, LiveWatch, Drift, PlanPreview, ResourceDetails):
    """Live state by watches, drift and previews by dry runs, one deploy target at a time."""

    config: KubernetesPluginConfig
    clusters: Clusters

    def start_observing(self) -> None:
        """Makes what is kept between questions; called once the clusters are there."""
        self.states = LiveStates(self.clusters.get)
        self.drifts = DriftDetector(self.states)

    async def watch(self, ctx: WatchContext) -> None:
        await self.states.watch(ctx)

    async def live_state(self, ctx: LiveContext, target: DeployTarget) -> LiveSnapshot:
        return await self.states.read(ctx.application_id, target)

    async def drift(self, ctx: LiveContext, target: DeployTarget, live: LiveSnapshot) -> SyncState:
        options = find_options(ctx.source, target)
        if options is None:
            return SyncState(
                status=SyncStatus.SYNCED,
                short_reason="the application is not deployed to this deploy target",
            )
        view = live.data
        if not isinstance(view, LiveView):
            raise TargetError("what runs is not known")
        cluster = await self.clusters.get(target)
        asked = self._make_question(ctx, target, options, cluster)
        return await self.drifts.detect(asked, view, cluster)

    async def open_resource(
        self, ctx: DetailsContext, target: DeployTarget, resource: Resource
    ) -> Details:
        live = await self.states.read(ctx.application_id, target)
        view = live.data
        found = next((each for each in live.resources if each.id == resource.id), None)
        if found is None or not isinstance(view, LiveView):
            raise ResourceGoneError(
                f"{resource.kind} {resource.name!r} does not run any more",
                hint="the live state shows what runs now",
            )
        record = view.find(found.id)
        if record is None:
            return Details(notes=[found.description])  # it stands for what cannot be read
        return await open_object(
            await self.clusters.get(target),
            record,
            partial(self._compare_object, ctx, target, view),
            container=ctx.container,
            log_lines=ctx.log_lines,
        )

    async def _compare_object(
        self, ctx: LiveContext, target: DeployTarget, view: LiveView, record: LiveObject
    ) -> GitDifference:
        options = find_options(ctx.source, target)
        if options is None:
            return GitDifference(notes=["git does not deploy the application to this target"])
        if record.is_ignored:
            return GitDifference(notes=[f"it is not compared with git: {IGNORE_DRIFT} says so"])
        cluster = await self.clusters.get(target)
        asked = self._make_question(ctx, target, options, cluster)
        return to_git_difference(
            record, await self.drifts.compare_object(asked, view, cluster, record)
        )

    def _make_question(
        self,
        ctx: LiveContext,
        target: DeployTarget,
        options: KubernetesOptions,
        cluster: Cluster,
    ) -> DriftQuestion:
        renderer = Renderer(self.config, ctx.tools, application_name=ctx.application_name)
        return DriftQuestion(
            application_id=ctx.application_id,
            piped_id=ctx.piped_id,
            target=target.name,
            commit=ctx.source.commit_hash,
            stamp=_make_stamp(ctx.source, options),
            options=options,
            ignored=read_ignored_fields(ctx.source.config),
            load=partial(load_for, renderer, ctx.source, options, cluster, target.name),
        )

    async def plan_preview(self, ctx: PreviewContext, target: DeployTarget) -> Preview:
        renderer = Renderer(self.config, ctx.tools, application_name=ctx.application_name)
        options = find_options(ctx.source.target, target)
        if options is None:
            return Preview(
                summary="the application is not deployed to this deploy target", no_change=True
            )
        load_running: Load | None = None
        if ctx.source.running is not None:
            before = find_options(ctx.source.running, target)
            load_running = (
                partial(renderer.load, ctx.source.running, before) if before else _load_nothing
            )
        return await preview(
            PreviewQuestion(
                application_id=ctx.application_id,
                piped_id=ctx.piped_id,
                options=options,
                load_target=partial(renderer.load, ctx.source.target, options),
                load_running=load_running,
                connect=partial(self.clusters.get, target),
            )
        )


def find_options(source: Source, target: DeployTarget) -> KubernetesOptions | None:
    """Returns the options of an application for a deploy target; None when it is not one of it."""
    for chosen in resolve_targets(source.options, [target]):
        return chosen.options
    return None


async def _load_nothing() -> Sequence[Manifest]:
    return ()


def _make_stamp(source: Source, options: KubernetesOptions) -> bytes:
    """Returns what changes with the commit, the application file, and what is different here."""
    encoded = msgspec.json.encode([source.commit_hash, source.config_filename])
    parts = (encoded, source.config, repr(options).encode())
    return hashlib.blake2b(b"\0".join(parts), digest_size=16).digest()
