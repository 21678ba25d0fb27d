# SPDX-License-Identifier: Apache-2.0
"""Brings one manifest to the cluster: by server-side apply, or by replacing the object.

Every step can be done again: whoever is killed anywhere in here begins anew, with what the server
has by then.
"""

import asyncio
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Final

from pipecd_plugin_kubernetes.apply.body import prepare_body
from pipecd_plugin_kubernetes.apply.outcome import (
    AppliedObject,
    ApplyEffect,
    ApplyError,
    Limits,
    is_being_deleted,
    read_uid,
    read_version,
)
from pipecd_plugin_kubernetes.apply.pod_marks import PodMarks
from pipecd_plugin_kubernetes.apply.prerequisites import Kind, wait_gone
from pipecd_plugin_kubernetes.apply.replicas import (
    REPLICAS_PATH,
    ScaleTarget,
    find_scaler,
    has_replicas,
    read_replicas,
    remove_replicas,
)
from pipecd_plugin_kubernetes.apply.takeover import (
    MANAGER,
    has_last_applied,
    plan_managed_fields,
    read_managed_fields,
    write_last_applied,
)
from pipecd_plugin_kubernetes.apply.unchanged import is_applied
from pipecd_plugin_kubernetes.client import (
    AlreadyExistsError,
    ApiError,
    Cluster,
    ConflictError,
    FieldConflict,
    ForbiddenError,
    InvalidError,
    NotFoundError,
    Object,
    ObjectRef,
    PatchType,
)
from pipecd_plugin_kubernetes.manifest import Manifest, ResourceKey, find_map
from pipecd_sdk import StageLog

FAIL_ON_CONFLICT: Final = "pipecd.dev/fail-on-conflict"
"""An annotation: `true` fails the stage instead of taking fields from another manager."""
SYNC_BY_REPLACE: Final = "pipecd.dev/sync-by-replace"
FORCE_SYNC_BY_REPLACE: Final = "pipecd.dev/force-sync-by-replace"
REPLACED_BY: Final = "pipecd.dev/replaced-by"
"""An annotation of ours: which run of a stage made an object anew, so that it does so once."""

_TRIES: Final = 8
"""How often an object is read again that somebody else changes at the same time."""
_NEVER: Final = "1"
"""A resource version that no object has: applied with it, an object is created or nothing is."""
_MOST_CONFLICTS: Final = 20
_NEW_KIND_PAUSE_SECONDS: Final = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A manifest and what is known before it is applied."""

    manifest: Manifest
    ref: ObjectRef
    live: Object | None
    """The object as it was a moment ago; None when there was none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectApplier:
    """Applies manifests to one cluster, one at a time."""

    cluster: Cluster
    log: StageLog
    limits: Limits
    sets_replicas: Collection[ResourceKey] = ()
    """The workloads whose replicas the stage decides about."""
    run_id: str = ""
    """Names this run of the stage; the same when it is continued after a kill."""
    pod_marks: PodMarks = field(default_factory=PodMarks)
    """What is known about the configuration of pods."""
    autoscaled: dict[ScaleTarget, str] = field(default_factory=dict)
    """What autoscalers in the cluster and among the manifests target."""
    new_kinds: set[Kind] = field(default_factory=set)
    """Kinds that this stage has defined: the server may need a moment to serve them."""

    async def apply(self, task: Task) -> AppliedObject:
        """Brings a manifest to the cluster. Raises a StageFailedError that names the object."""
        live = task.live
        for _ in range(_TRIES):
            if live is not None and is_being_deleted(live):
                await wait_gone(self.cluster, task.ref, live, log=self.log, limits=self.limits)
                live = await self.cluster.get(task.ref)
                continue
            try:
                return await self._apply_once(task.manifest, task.ref, live)
            except (ConflictError, AlreadyExistsError, NotFoundError) as error:
                if isinstance(error, ConflictError) and error.conflicts:
                    raise
                if isinstance(error, NotFoundError) and live is None:
                    if not self._is_new(task):
                        raise _explain(error, task) from None
                    await asyncio.sleep(_NEW_KIND_PAUSE_SECONDS)
                live = await self.cluster.get(task.ref)
            except ApiError as error:
                raise _explain(error, task) from None
        raise ApplyError(
            f"{task.ref} was changed by somebody else each time it was to be applied,"
            f" {_TRIES} times in a row",
            hint="find out who writes it all the time: see its managedFields",
        )

    def _is_new(self, task: Task) -> bool:
        return (task.manifest.group, task.manifest.kind) in self.new_kinds

    async def _apply_once(
        self, manifest: Manifest, ref: ObjectRef, live: Object | None
    ) -> AppliedObject:
        """Applies a manifest over what is there. Raises ConflictError when that has changed."""
        annotations = manifest.annotations
        if annotations.get(FORCE_SYNC_BY_REPLACE) == "enabled":
            return await self._recreate(manifest, ref, live)
        if annotations.get(SYNC_BY_REPLACE) == "enabled":
            return await self._replace(manifest, ref, live)
        body = prepare_body(manifest, ref)
        if live is None:
            body["metadata"]["resourceVersion"] = _NEVER
            made = await self.cluster.apply(body, manager=MANAGER)
            return AppliedObject(manifest=manifest, ref=ref, live=made, effect=ApplyEffect.CREATED)
        return await self._apply_over(manifest, ref, live, body)

    async def _apply_over(
        self, manifest: Manifest, ref: ObjectRef, live: Object, body: Object
    ) -> AppliedObject:
        notes: list[str] = []
        is_left = self._leave_replicas(manifest, ref, live, body, notes)
        await self.pod_marks.settle(manifest, body, live)
        if has_last_applied(live) and not self._write_last_applied(manifest, body, is_left=is_left):
            notes.append("it is too large for the annotation of client-side apply, which goes")
        before = read_version(live)
        live = await self._take_over(manifest, ref, live, notes, leaves_replicas=is_left)
        if read_version(live) == before and is_applied(body, live):
            return AppliedObject(
                manifest=manifest,
                ref=ref,
                live=live,
                effect=ApplyEffect.UNCHANGED,
                notes=tuple(notes),
            )
        try:
            after = await self.cluster.apply(body, manager=MANAGER)
        except ConflictError as error:
            if not error.conflicts:
                raise
            self._check_conflicts(manifest, ref, error)
            after = await self.cluster.apply(body, manager=MANAGER, force=True)
            notes.append(f"taken from others: {_format_conflicts(error.conflicts)}")
        is_changed = not before or read_version(after) != before
        return AppliedObject(
            manifest=manifest,
            ref=ref,
            live=after,
            effect=ApplyEffect.CHANGED if is_changed else ApplyEffect.UNCHANGED,
            notes=tuple(notes),
        )

    def _write_last_applied(self, manifest: Manifest, body: Object, *, is_left: bool) -> bool:
        source = dict(manifest.body)
        if is_left:
            remove_replicas(source)
        return write_last_applied(body, source)

    def _check_conflicts(self, manifest: Manifest, ref: ObjectRef, error: ConflictError) -> None:
        if manifest.annotations.get(FAIL_ON_CONFLICT) == "true":
            raise ApplyError(
                f"{ref} was not applied, because others own fields of it:"
                f" {_format_conflicts(error.conflicts)}",
                hint=f"take these fields out of git, or the annotation {FAIL_ON_CONFLICT}",
            )

    async def _take_over(
        self,
        manifest: Manifest,
        ref: ObjectRef,
        live: Object,
        notes: list[str],
        *,
        leaves_replicas: bool,
    ) -> Object:
        """Makes fields of former tools ours, without a change to the object itself."""
        if not read_managed_fields(live):
            # Nobody is recorded: the server records it at the first apply, here of nothing at all.
            live = await self.cluster.apply(_make_identity(ref), manager=MANAGER, force=True)
        release = REPLICAS_PATH if leaves_replicas else ()
        planned = plan_managed_fields(live, manifest, release=release)
        if planned is None:
            return live
        entries, managers = planned
        patch: list[Object] = [
            {"op": "replace", "path": "/metadata/managedFields", "value": entries},
            {"op": "replace", "path": "/metadata/resourceVersion", "value": read_version(live)},
        ]
        if managers:
            notes.append(f"fields of {', '.join(map(repr, sorted(set(managers))))} are ours now")
        return await self.cluster.patch(ref, patch, content_type=PatchType.JSON, manager=MANAGER)

    def _leave_replicas(
        self, manifest: Manifest, ref: ObjectRef, live: Object, body: Object, notes: list[str]
    ) -> bool:
        """Takes the replicas out of a body where somebody else decides about them."""
        if manifest.key in self.sets_replicas:
            return False
        resource = ref.resource
        target = ScaleTarget(resource.group, resource.kind, ref.namespace, ref.name)
        scaler = find_scaler(live, target, self.autoscaled)
        if not scaler:
            return False
        wanted, found = read_replicas(manifest.body), read_replicas(live)
        if has_replicas(manifest) and wanted != found:
            notes.append(f"replicas stay {found}, git says {wanted}: they belong to {scaler}")
        remove_replicas(body)
        return True

    async def _replace(
        self, manifest: Manifest, ref: ObjectRef, live: Object | None
    ) -> AppliedObject:
        body = prepare_body(manifest, ref)
        if live is None:
            made = await self.cluster.create(body, manager=MANAGER)
            return AppliedObject(manifest=manifest, ref=ref, live=made, effect=ApplyEffect.CREATED)
        notes: list[str] = []
        if self._leave_replicas(manifest, ref, live, body, notes):
            body["spec"] = {**find_map(body, "spec"), "replicas": read_replicas(live)}
        await self.pod_marks.settle(manifest, body, live)
        if has_last_applied(live):
            self._write_last_applied(manifest, body, is_left=False)
        body["metadata"]["resourceVersion"] = read_version(live)
        after = await self.cluster.replace(body, manager=MANAGER)
        is_changed = read_version(after) != read_version(live)
        effect = ApplyEffect.REPLACED if is_changed else ApplyEffect.UNCHANGED
        return AppliedObject(
            manifest=manifest, ref=ref, live=after, effect=effect, notes=tuple(notes)
        )

    async def _recreate(
        self, manifest: Manifest, ref: ObjectRef, live: Object | None
    ) -> AppliedObject:
        """Deletes the object and makes it anew, once for each run of a stage."""
        body = prepare_body(manifest, ref)
        if self.run_id:
            annotations = {**find_map(body, "metadata", "annotations"), REPLACED_BY: self.run_id}
            body["metadata"]["annotations"] = annotations
        effect = ApplyEffect.CREATED
        if live is not None:
            marks = find_map(live, "metadata", "annotations")
            if self.run_id and marks.get(REPLACED_BY) == self.run_id:
                return AppliedObject(
                    manifest=manifest, ref=ref, live=live, effect=ApplyEffect.UNCHANGED
                )
            if self._leave_replicas(manifest, ref, live, body, []):
                body["spec"] = {**find_map(body, "spec"), "replicas": read_replicas(live)}
            if await self.cluster.delete(ref, uid=read_uid(live)):
                await self._wait_deleted(ref, live)
            effect = ApplyEffect.REPLACED
        made = await self.cluster.create(body, manager=MANAGER)
        return AppliedObject(manifest=manifest, ref=ref, live=made, effect=effect)

    async def _wait_deleted(self, ref: ObjectRef, live: Object) -> None:
        current = await self.cluster.get(ref)
        if current is not None and read_uid(current) == read_uid(live):
            await wait_gone(self.cluster, ref, current, log=self.log, limits=self.limits)


def _make_identity(ref: ObjectRef) -> Object:
    metadata = {"name": ref.name} | ({"namespace": ref.namespace} if ref.namespace else {})
    resource = ref.resource
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata}


def _format_conflicts(conflicts: Collection[FieldConflict]) -> str:
    """Returns who owns which fields: `'kubectl-edit' (.spec.replicas, .spec.paused)`."""
    by_manager: dict[str, list[str]] = {}
    for each in list(conflicts)[:_MOST_CONFLICTS]:
        by_manager.setdefault(each.manager, []).append(each.field)
    parts = [f"{manager!r} ({', '.join(fields)})" for manager, fields in by_manager.items()]
    more = len(conflicts) - _MOST_CONFLICTS
    return ", ".join(parts) + (f" and {more} more fields" if more > 0 else "")


def _explain(error: ApiError, task: Task) -> ApiError | ApplyError:
    """Returns the error with what can be done about it, where there is something."""
    namespace = task.ref.namespace
    if isinstance(error, NotFoundError) and namespace and "namespaces" in error.message:
        return ApplyError(
            f"{task.ref} cannot be applied: there is no namespace {namespace!r}",
            hint="set input.autoCreateNamespace, or add a manifest of the namespace",
        )
    if isinstance(error, ForbiddenError) and _has_cause(error, "NamespaceTerminating"):
        return ApplyError(
            f"{task.ref} cannot be applied: its namespace is being deleted",
            hint="let the deletion finish, then sync again; input.autoCreateNamespace waits for it",
        )
    if isinstance(error, InvalidError) and "duplicate entries for key" in error.message:
        return ApplyError(
            str(error),
            hint="something is given twice in a list, which client-side apply let pass: remove one,"
            f" or set the annotation {SYNC_BY_REPLACE}: enabled",
        )
    if isinstance(error, InvalidError) and "immutable" in str(error):
        return ApplyError(
            str(error),
            hint="a field that cannot be changed: delete the object, or let it be made anew by the"
            f" annotation {FORCE_SYNC_BY_REPLACE}: enabled",
        )
    return error


def _has_cause(error: ApiError, reason: str) -> bool:
    return any(each.reason == reason for each in error.causes)
