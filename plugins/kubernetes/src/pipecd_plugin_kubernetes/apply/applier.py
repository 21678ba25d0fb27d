# SPDX-License-Identifier: Apache-2.0
"""Brings all manifests of a stage to a cluster, in their order, as many at once as that allows."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from pipecd_plugin_kubernetes.apply.concurrency import run_in_order
from pipecd_plugin_kubernetes.apply.known import find_live, list_autoscalers
from pipecd_plugin_kubernetes.apply.order import group_for_apply, is_foundation
from pipecd_plugin_kubernetes.apply.outcome import Applied, AppliedObject, ApplyError, Limits
from pipecd_plugin_kubernetes.apply.pod_marks import PodMarks
from pipecd_plugin_kubernetes.apply.prerequisites import (
    Kind,
    ensure_namespace,
    find_defined_kinds,
    is_definition,
    wait_established,
)
from pipecd_plugin_kubernetes.apply.replicas import AUTOSCALER, find_scale_targets, has_replicas
from pipecd_plugin_kubernetes.apply.single import ObjectApplier, Task
from pipecd_plugin_kubernetes.client import Cluster, Object, ObjectRef, UnknownKindError
from pipecd_plugin_kubernetes.manifest import Manifest, ResourceKey
from pipecd_sdk import StageFailedError, StageLog


async def apply_manifests(
    cluster: Cluster,
    manifests: Iterable[Manifest],
    *,
    log: StageLog,
    create_namespaces: bool = False,
    sets_replicas: Collection[ResourceKey] = (),
    run_id: str = "",
    pod_marks: PodMarks | None = None,
    limits: Limits | None = None,
) -> Applied:
    """Applies manifests, and returns what became of each.

    `sets_replicas` are the keys of workloads whose replicas this stage decides about, whoever
    scales them otherwise. `run_id` names this run of the stage, and is the same when it is
    continued after a kill: what is deleted and made anew is so once for each run. `pod_marks` is
    what was found out about the configuration of pods before anything was applied.

    After a failure nothing more is begun. Raises the StageFailedError of the first manifest that
    failed; what was applied before it stays.
    """
    chosen = _choose_last(manifests, cluster.namespace, log)
    run = _Run(
        cluster=cluster,
        log=log,
        create_namespaces=create_namespaces,
        limits=limits or Limits(),
        sets_replicas=sets_replicas,
        run_id=run_id,
        pod_marks=pod_marks or PodMarks(),
        manifests=chosen,
    )
    applied: list[AppliedObject] = []
    for of_order in group_for_apply(chosen):
        await run.check_kinds([each for group in of_order for each in group])
        for group in of_order:
            applied += await run.apply_group(group)
    return Applied(objects=tuple(applied))


def _choose_last(manifests: Iterable[Manifest], namespace: str, log: StageLog) -> list[Manifest]:
    """Returns manifests without those that a later one of the same object replaces."""
    chosen: dict[ResourceKey, Manifest] = {}
    for manifest in manifests:
        key = replace(manifest.key, namespace=manifest.namespace or namespace)
        before = chosen.pop(key, None)
        if before is not None:
            log.info(
                "%s is given twice (%s): the last one is applied",
                manifest.key,
                " and ".join(each.origin or "?" for each in (before, manifest)),
            )
        chosen[key] = manifest
    return list(chosen.values())


class _Run:
    """One application of manifests: what is known while it goes on."""

    def __init__(
        self,
        *,
        cluster: Cluster,
        log: StageLog,
        create_namespaces: bool,
        limits: Limits,
        sets_replicas: Collection[ResourceKey],
        run_id: str,
        pod_marks: PodMarks,
        manifests: Sequence[Manifest],
    ) -> None:
        self._cluster = cluster
        self._log = log
        self._limits = limits
        self._creates_namespaces = create_namespaces
        self._namespaces: set[str] = {
            each.name for each in manifests if (each.group, each.kind) == ("", "Namespace")
        }
        self._autoscaled_namespaces: set[str] = set()
        self._definitions = find_defined_kinds(manifests)
        self._made: set[Kind] = set()
        self._applier = ObjectApplier(
            cluster=cluster,
            log=log,
            limits=limits,
            sets_replicas=frozenset(sets_replicas),
            run_id=run_id,
            pod_marks=pod_marks,
        )
        self._own_autoscalers = [
            each.body for each in manifests if (each.group, each.kind) == AUTOSCALER
        ]

    async def check_kinds(self, manifests: Sequence[Manifest]) -> None:
        """Raises when the cluster cannot know a kind, before the first manifest is applied."""
        here = find_defined_kinds(manifests)
        for manifest in manifests:
            kind = (manifest.group, manifest.kind)
            if kind in here or kind in self._made:
                continue
            try:
                await self._cluster.find_resource(manifest.api_version, manifest.kind)
            except UnknownKindError:
                later = self._definitions.get(kind)
                if later is None:
                    raise
                raise ApplyError(
                    f"{manifest.describe()} comes before the definition of its kind, {later.name}",
                    hint="give the definition a lower pipecd.dev/order, or the same",
                ) from None

    async def apply_group(self, group: Sequence[Manifest]) -> list[AppliedObject]:
        """Applies manifests that need no order among each other."""
        resolved = [(each, await self._find_ref(each)) for each in group]
        await self._ensure_namespaces(ref for _, ref in resolved)
        live = await find_live(self._cluster, resolved, limits=self._limits)
        await self._learn_autoscalers(resolved, live)
        tasks = [Task(manifest=each, ref=ref, live=live.get(ref)) for each, ref in resolved]
        applied = await run_in_order(
            tasks,
            self._applier.apply,
            most_at_once=self._limits.most_at_once,
            on_done=self._report,
            on_failed=self._report_failure,
        )
        if group and is_foundation(group[0].key):
            await self._wait_definitions(applied)
        return applied

    async def _find_ref(self, manifest: Manifest) -> ObjectRef:
        kind = (manifest.group, manifest.kind)
        if kind in self._made:
            await self._cluster.find_resource(
                manifest.api_version,
                manifest.kind,
                within_seconds=self._limits.definition_seconds,
            )
        return await self._cluster.ref_of(manifest.body)

    async def _ensure_namespaces(self, refs: Iterable[ObjectRef]) -> None:
        if not self._creates_namespaces:
            return
        for name in dict.fromkeys(ref.namespace for ref in refs if ref.namespace):
            if name not in self._namespaces:
                self._namespaces.add(name)
                await ensure_namespace(self._cluster, name, log=self._log, limits=self._limits)

    async def _learn_autoscalers(
        self, resolved: Sequence[tuple[Manifest, ObjectRef]], live: dict[ObjectRef, Object]
    ) -> None:
        """Finds out what autoscalers target, in the namespaces of workloads that are there."""
        namespaces = [
            ref.namespace
            for manifest, ref in resolved
            if ref.namespace
            and (has_replicas(manifest) or (ref in live and has_replicas(Manifest(live[ref]))))
        ]
        missing = [
            each for each in dict.fromkeys(namespaces) if each not in self._autoscaled_namespaces
        ]
        if not missing:
            return
        self._autoscaled_namespaces.update(missing)
        found = await list_autoscalers(self._cluster, missing, log=self._log)
        self._applier.autoscaled.update(
            find_scale_targets([*self._own_autoscalers, *found], namespace=self._cluster.namespace)
        )

    async def _wait_definitions(self, applied: Sequence[AppliedObject]) -> None:
        for each in applied:
            if is_definition(each.manifest):
                await wait_established(self._cluster, each.ref, each.live, limits=self._limits)
        kinds = find_defined_kinds(each.manifest for each in applied)
        self._made.update(kinds)
        self._applier.new_kinds.update(kinds)

    def _report(self, task: Task, applied: AppliedObject) -> None:
        self._log.info("%s %s", applied.effect.value, task.manifest.key)
        for note in applied.notes:
            self._log.info("  %s", note)

    def _report_failure(self, task: Task, error: StageFailedError) -> None:
        self._log.error("%s: %s", task.manifest.key, error.reason())
