# SPDX-License-Identifier: Apache-2.0
"""Waits until the workloads that were applied are ready, or says which pod is not, and why."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final

from pipecd_plugin_kubernetes.apply.outcome import (
    Applied,
    AppliedObject,
    NotReadyError,
    is_being_deleted,
)
from pipecd_plugin_kubernetes.apply.pods import (
    PodTrouble,
    describe_pods,
    find_troubles,
    format_selector,
)
from pipecd_plugin_kubernetes.apply.wait_start import WaitStart
from pipecd_plugin_kubernetes.apply.watching import follow_objects
from pipecd_plugin_kubernetes.client import ApiResource, Cluster, ClusterError, Object
from pipecd_plugin_kubernetes.health import assess
from pipecd_plugin_kubernetes.manifest import ResourceKey, find_map
from pipecd_plugin_kubernetes.metadata import APPLICATION
from pipecd_sdk import Health, StageLog

_WAITED_FOR: Final = frozenset(
    {
        ("", "Pod"),
        *(("apps", kind) for kind in ("Deployment", "StatefulSet", "DaemonSet", "ReplicaSet")),
        *(("extensions", kind) for kind in ("Deployment", "DaemonSet", "ReplicaSet")),
    }
)
_STALE_SECONDS: Final = 15.0
"""How long a failure of the rollout before this one may still be shown by the server."""
_QUIET_SECONDS: Final = 2.0
"""At most so often there is a line about one workload."""
_LOOK_AT_PODS_AFTER_SECONDS: Final = 3.0
_KEEP_START_AFTER_SECONDS: Final = 2.0
"""A wait that is shorter is not worth a note of when it began."""
_FIRST_LOOK_SECONDS: Final = 15.0
"""How long workloads are looked for when the time was over before this process began."""
_MOST_POD_WATCHES: Final = 8
_MOST_TROUBLES: Final = 20
"""Of the pods of one workload that the log tells of while it is waited for."""


@dataclass(slots=True, kw_only=True)
class _Workload:
    """One workload that is waited for."""

    applied: AppliedObject
    body: Object | None
    """As it was last; None when it is gone."""
    is_stale: bool
    """Whether a missed deadline that the server shows may be that of the rollout before."""
    is_seen: bool = False
    """Whether the watch has shown it."""
    missed_since: float | None = None
    told: str = ""
    told_at: float = field(default=float("-inf"))
    pod_troubles: set[tuple[str, str, str]] = field(default_factory=set)

    @property
    def key(self) -> ResourceKey:
        return self.applied.key


def judge(body: Mapping[str, Any] | None) -> tuple[bool, bool, str]:
    """Returns whether a workload is ready, whether it has failed for good, and why. Pure."""
    if body is None:
        return False, True, "it was deleted by somebody while it was waited for"
    kind = body.get("kind")
    spec = find_map(body, "spec")
    if kind == "Deployment" and spec.get("paused") is True:
        return True, False, "it is paused, so its change is not rolled out"
    if kind in {"StatefulSet", "DaemonSet"} and _is_updated_by_hand(spec):
        return _judge_updated_by_hand(body)
    health, why = assess(body)
    if health is Health.HEALTHY:
        return True, False, ""
    if kind == "Pod":
        return False, find_map(body, "status").get("phase") == "Failed", why
    return False, _has_missed_deadline(body), why


def _is_updated_by_hand(spec: Mapping[str, Any]) -> bool:
    return find_map(spec, "updateStrategy").get("type") == "OnDelete"


def _judge_updated_by_hand(body: Mapping[str, Any]) -> tuple[bool, bool, str]:
    status = find_map(body, "status")
    seen = status.get("observedGeneration") == find_map(body, "metadata").get("generation")
    if body.get("kind") == "DaemonSet":
        wanted, ready = status.get("desiredNumberScheduled", 0), status.get("numberAvailable", 0)
    else:
        wanted, ready = find_map(body, "spec").get("replicas", 1), status.get("readyReplicas", 0)
    if seen and wanted == ready:
        return True, False, "its pods are updated when somebody deletes them (OnDelete)"
    return False, False, f"{ready} of {wanted} pods are ready"


def _find_deadline_condition(body: Mapping[str, Any]) -> Mapping[str, Any]:
    conditions = find_map(body, "status").get("conditions")
    for each in conditions if isinstance(conditions, list) else []:
        if isinstance(each, dict) and each.get("reason") == "ProgressDeadlineExceeded":
            return each
    return {}


def _has_missed_deadline(body: Mapping[str, Any]) -> bool:
    observed = find_map(body, "status").get("observedGeneration")
    return bool(_find_deadline_condition(body)) and observed == find_map(body, "metadata").get(
        "generation"
    )


async def wait_ready(
    cluster: Cluster,
    applied: Applied,
    *,
    log: StageLog,
    within: timedelta,
    start: WaitStart | None = None,
) -> None:
    """Waits until all workloads among what was applied are ready.

    Ends earlier when one can no longer become so: a Deployment that made no progress within its
    `progressDeadlineSeconds`, a Pod that failed, a workload that somebody deleted. Raises
    NotReadyError; the log then has the pods in trouble with their last lines. There is a line of
    progress when something changed. `start` keeps when the wait began, for the process that goes on
    when this one is killed.
    """
    waiting = [_make_workload(each) for each in applied if _is_waited_for(each)]
    if not waiting:
        return
    watcher = _Watcher(
        cluster,
        waiting,
        log=log,
        timeout_seconds=within.total_seconds(),
        waited_seconds=await start.read_waited_seconds() if start is not None else 0.0,
        start=start,
    )
    await watcher.run()


def _is_waited_for(applied: AppliedObject) -> bool:
    resource = applied.ref.resource
    return (resource.group, resource.kind) in _WAITED_FOR


def _make_workload(applied: AppliedObject) -> _Workload:
    return _Workload(
        applied=applied,
        body=_complete(applied.live, applied.ref.resource),
        is_stale=bool(_find_deadline_condition(applied.live)),
    )


def _complete(body: Object, resource: ApiResource) -> Object:
    """Returns an object with its kind, which the server leaves out in lists."""
    return {**body, "apiVersion": resource.api_version, "kind": resource.kind}


class _Watcher:
    def __init__(
        self,
        cluster: Cluster,
        workloads: list[_Workload],
        *,
        log: StageLog,
        timeout_seconds: float,
        waited_seconds: float,
        start: WaitStart | None,
    ) -> None:
        self._cluster = cluster
        self._log = log
        self._loop = asyncio.get_running_loop()
        self._waiting = {each.applied.uid: each for each in workloads}
        self._total = len(workloads)
        self._timeout_seconds = timeout_seconds
        self._start = start
        self._here_since = self._loop.time()
        self._begun = self._here_since - waited_seconds
        """When the wait began, which may have been in an earlier process."""
        self._changed = asyncio.Event()
        self._broken: ClusterError | None = None
        self._pod_watches: dict[str, asyncio.Task[None]] = {}

    async def run(self) -> None:
        """Waits until all workloads are ready. Raises NotReadyError."""
        places: dict[tuple[ApiResource, str, str], None] = {}
        for each in self._waiting.values():
            ref, labels = each.applied.ref, each.applied.manifest.labels
            application = labels.get(APPLICATION, "")
            selector = f"{APPLICATION}={application}" if application else ""
            places[(ref.resource, ref.namespace, selector)] = None
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._follow(*place)) for place in places]
            try:
                failed = await self._wait(group)
            finally:
                for task in (*tasks, *self._pod_watches.values()):
                    task.cancel()
        if self._broken is not None:
            raise self._broken
        if failed:
            await self._fail(failed)
        self._log.success("all %d workloads are ready", self._total)

    async def _follow(self, resource: ApiResource, namespace: str, labels: str) -> None:
        changes = follow_objects(self._cluster, resource, namespace=namespace, labels=labels)
        try:
            async with aclosing(changes) as snapshots:
                async for known in snapshots:
                    self._learn(resource, namespace, known)
                    self._changed.set()
        except ClusterError as error:
            self._broken = error
            self._changed.set()

    def _learn(self, resource: ApiResource, namespace: str, known: Mapping[str, Object]) -> None:
        for uid, each in self._waiting.items():
            ref = each.applied.ref
            if (ref.resource, ref.namespace) == (resource, namespace):
                body = known.get(uid)
                each.body = None if body is None else _complete(body, resource)
                each.is_seen = True

    async def _wait(self, group: asyncio.TaskGroup) -> list[_Workload]:
        """Returns the workloads that did not become ready."""
        end = self._begun + self._timeout_seconds
        while True:
            self._changed.clear()
            now = self._loop.time()
            if self._broken is not None:
                return []
            failed = self._look(now)
            if failed or not self._waiting:
                return failed
            if now >= end and self._has_looked(now):
                return list(self._waiting.values())
            await self._keep_start(now)
            self._watch_pods(group, now)
            limit = now + _QUIET_SECONDS
            try:
                async with asyncio.timeout_at(min(end, limit) if end > now else limit):
                    await self._changed.wait()
            except TimeoutError:
                continue

    def _has_looked(self, now: float) -> bool:
        """Returns whether everything was seen once, or does not show itself."""
        is_seen = all(each.is_seen for each in self._waiting.values())
        return is_seen or now - self._here_since >= _FIRST_LOOK_SECONDS

    async def _keep_start(self, now: float) -> None:
        waited_seconds = now - self._begun
        if self._start is not None and waited_seconds >= _KEEP_START_AFTER_SECONDS:
            await self._start.keep(self._start.now() - timedelta(seconds=waited_seconds))

    def _look(self, now: float) -> list[_Workload]:
        """Lets go of what is ready; returns what has failed for good."""
        failed: list[_Workload] = []
        for uid, each in list(self._waiting.items()):
            if not each.is_seen:
                continue
            is_ready, is_failed, why = judge(each.body)
            if is_ready and not is_being_deleted(each.body or {}):
                del self._waiting[uid]
                self._log.info("%s is ready%s", each.key, f": {why}" if why else "")
            elif is_failed and not self._is_of_rollout_before(each, now):
                failed.append(each)
            else:
                self._tell(each, why, now)
        return failed

    def _is_of_rollout_before(self, workload: _Workload, now: float) -> bool:
        """Returns whether a missed deadline may be an old one that the server still shows."""
        if not workload.is_stale or workload.body is None:
            return False
        shown = _find_deadline_condition(workload.body)
        if not shown or shown != _find_deadline_condition(workload.applied.live):
            workload.is_stale = False
            return False
        if workload.missed_since is None:
            workload.missed_since = now
        return now - workload.missed_since < _STALE_SECONDS

    def _tell(self, workload: _Workload, why: str, now: float) -> None:
        if why and why != workload.told and now - workload.told_at >= _QUIET_SECONDS:
            workload.told, workload.told_at = why, now
            self._log.info("%s: %s", workload.key, why)

    def _watch_pods(self, group: asyncio.TaskGroup, now: float) -> None:
        """Begins to look at the pods of workloads that take longer."""
        if now - self._here_since < _LOOK_AT_PODS_AFTER_SECONDS:
            return
        for uid, each in self._waiting.items():
            if len(self._pod_watches) >= _MOST_POD_WATCHES:
                return
            if uid not in self._pod_watches and each.applied.ref.resource.kind != "Pod":
                self._pod_watches[uid] = group.create_task(self._follow_pods(uid, each))

    async def _follow_pods(self, uid: str, workload: _Workload) -> None:
        """Tells of each new kind of trouble that a pod of a workload has."""
        selector = format_selector(workload.applied.live)
        if not selector:
            return
        resource = await self._cluster.find_resource("v1", "Pod")
        changes = follow_objects(
            self._cluster, resource, namespace=workload.applied.ref.namespace, labels=selector
        )
        try:
            async with aclosing(changes) as snapshots:
                async for known in snapshots:
                    if uid not in self._waiting:
                        return
                    self._tell_troubles(workload, find_troubles(list(known.values())))
        except ClusterError as error:
            self._log.info("%s: its pods cannot be watched: %s", workload.key, error)

    def _tell_troubles(self, workload: _Workload, troubles: Sequence[PodTrouble]) -> None:
        for trouble in troubles:
            mark = (trouble.pod, trouble.container, trouble.reason)
            if mark not in workload.pod_troubles and len(workload.pod_troubles) < _MOST_TROUBLES:
                workload.pod_troubles.add(mark)
                self._log.info("%s: %s", workload.key, trouble)

    async def _fail(self, failed: list[_Workload]) -> None:
        seconds = self._loop.time() - self._begun
        reasons: list[str] = []
        for each in failed:
            _, is_failed, why = judge(each.body)
            late = "" if is_failed else f" after {seconds:.0f} seconds"
            reasons.append(f"{each.key} is not ready{late}: {why}")
            self._log.error("%s", reasons[-1])
            if each.body is not None:
                for line in await describe_pods(self._cluster, each.body):
                    self._log.error("%s", f"  {line}")
        raise NotReadyError(
            "; ".join(reasons[:5]) + (f" and {len(reasons) - 5} more" if len(reasons) > 5 else ""),
            hint="the lines above have its pods and what they said last",
        )
