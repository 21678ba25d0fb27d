# SPDX-License-Identifier: Apache-2.0
"""Deletes objects group by group, and waits until each group is gone."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from typing import Final

from pipecd_plugin_kubernetes.apply.concurrency import run_in_order
from pipecd_plugin_kubernetes.apply.managed import ManagedObject
from pipecd_plugin_kubernetes.apply.outcome import DeletionFailedError, Limits
from pipecd_plugin_kubernetes.apply.prerequisites import describe_hold
from pipecd_plugin_kubernetes.apply.watching import follow_objects
from pipecd_plugin_kubernetes.client import ApiResource, Cluster, ConflictError, Object
from pipecd_plugin_kubernetes.manifest import ResourceKey
from pipecd_sdk import StageFailedError, StageLog

_MOST_NAMED: Final = 5


async def delete_groups(
    cluster: Cluster,
    groups: Sequence[Sequence[ManagedObject]],
    *,
    log: StageLog,
    limits: Limits,
    labels: str = "",
) -> list[ResourceKey]:
    """Deletes objects, the next group when the one before is gone; returns their keys.

    Only the very objects are deleted, not others that have taken their names. `labels` is a
    selector that they all fulfil, so that less has to be watched. Raises a StageFailedError.
    """
    deleted: list[ResourceKey] = []

    async def delete(item: ManagedObject) -> bool:
        try:
            return await cluster.delete(item.ref, uid=item.uid)
        except ConflictError:
            return False  # another object has its name now, which is not ours to delete

    def report(item: ManagedObject, is_there: bool) -> None:
        log.info("%s %s", "deleted" if is_there else "already gone:", item.manifest.key)
        deleted.append(item.manifest.key)

    def report_failure(item: ManagedObject, error: StageFailedError) -> None:
        log.error("%s: %s", item.manifest.key, error.reason())

    for group in groups:
        await run_in_order(
            group,
            delete,
            most_at_once=limits.most_at_once,
            on_done=report,
            on_failed=report_failure,
        )
        await _wait_group_gone(cluster, group, log=log, limits=limits, labels=labels)
    return deleted


async def _wait_group_gone(
    cluster: Cluster,
    group: Sequence[ManagedObject],
    *,
    log: StageLog,
    limits: Limits,
    labels: str,
) -> None:
    left = {each.uid: each for each in group}
    bodies: dict[str, Object] = {}
    places = dict.fromkeys((each.ref.resource, each.ref.namespace) for each in group)
    try:
        async with asyncio.timeout(limits.deletion_seconds):
            for resource, namespace in places:
                await _wait_place(
                    cluster, resource, namespace, labels=labels, left=left, bodies=bodies, log=log
                )
    except TimeoutError:
        raise DeletionFailedError(
            f"{len(left)} of the deleted objects were not gone after"
            f" {limits.deletion_seconds:g} seconds: {_describe(left, bodies)}",
            hint="what they wait for has to finish, or their finalizers to be removed by hand",
        ) from None


async def _wait_place(
    cluster: Cluster,
    resource: ApiResource,
    namespace: str,
    *,
    labels: str,
    left: dict[str, ManagedObject],
    bodies: dict[str, Object],
    log: StageLog,
) -> None:
    """Waits until none of the objects of one kind in one namespace is left."""
    here = {
        uid
        for uid, each in left.items()
        if (each.ref.resource, each.ref.namespace) == (resource, namespace)
    }
    told = ""
    changes = follow_objects(cluster, resource, namespace=namespace, labels=labels)
    async with aclosing(changes) as snapshots:
        async for known in snapshots:
            remaining = here & known.keys()
            for uid in here - remaining:
                left.pop(uid, None)
            here = remaining
            bodies.update({uid: known[uid] for uid in here})
            if not here:
                return
            line = _describe({uid: left[uid] for uid in sorted(here)}, bodies)
            if line != told:
                told = line
                log.info("waiting until gone: %s", line)


def _describe(left: Mapping[str, ManagedObject], bodies: Mapping[str, Object]) -> str:
    parts = [
        f"{each.manifest.key}{describe_hold(bodies.get(uid, each.body))}"
        for uid, each in list(left.items())[:_MOST_NAMED]
    ]
    more = len(left) - _MOST_NAMED
    return ", ".join(parts) + (f" and {more} more" if more > 0 else "")
