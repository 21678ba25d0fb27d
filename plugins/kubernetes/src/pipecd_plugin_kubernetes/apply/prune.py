# SPDX-License-Identifier: Apache-2.0
"""Deletes what an application no longer has in git, or what is of a variant. Fails closed.

Only what piped applied for this very application is a candidate, and only when everything that it
has was listed. Too many candidates, a Namespace or a definition of a kind among them, fail the
stage before the first deletion.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from pipecd_plugin_kubernetes.apply.deletion import delete_groups
from pipecd_plugin_kubernetes.apply.managed import (
    ListingError,
    ManagedObject,
    Variant,
    is_applied_by,
    list_managed,
)
from pipecd_plugin_kubernetes.apply.order import (
    group_for_deletion,
    group_variant,
    is_foundation,
)
from pipecd_plugin_kubernetes.apply.outcome import Applied, DeletionRefusedError, Limits
from pipecd_plugin_kubernetes.client import Cluster
from pipecd_plugin_kubernetes.manifest import Manifest, ResourceKey
from pipecd_plugin_kubernetes.metadata import APPLICATION
from pipecd_sdk import StageLog

FEW: Final = 5
"""So many objects may always be deleted at once."""
SHARE_PERCENT: Final = 30
"""So much of what an application has may be deleted at once."""
_MOST_NAMED: Final = 50
VARIANT_KINDS: Final = frozenset(
    {
        *(("", kind) for kind in ("Service", "ConfigMap", "Secret", "Pod")),
        *(("apps", kind) for kind in ("Deployment", "StatefulSet", "DaemonSet", "ReplicaSet")),
    }
)
"""Groups and kinds that the variants of an application are made of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletionPermission:
    """What may be deleted beyond the usual, as the application's options say."""

    many: bool = False
    """`deletion.allowMany`."""
    namespaces: bool = False
    """`deletion.allowNamespaces`."""


async def prune(
    cluster: Cluster,
    *,
    application_id: str,
    keep: Iterable[Manifest],
    log: StageLog,
    applied: Applied | None = None,
    variant: Variant | None = None,
    expected: Collection[ResourceKey] = (),
    permission: DeletionPermission | None = None,
    limits: Limits | None = None,
) -> list[ResourceKey]:
    """Deletes what is not among `keep`; returns the keys of what was deleted.

    `applied` is what the stage has just applied: nothing of it is deleted, under whatever name it
    is listed. With `variant` only objects of this variant are looked at. `expected` are keys whose
    deletion was decided already (a rollback takes away what the failed commit brought): they do not
    count as many. Raises ListingError, DeletionRefusedError, or what failed.

    A broken API group that holds nothing of what is kept or applied does not fail the stage: the
    log says that nothing was pruned, and the next deployment tries again.
    """
    kept = list(keep)
    try:
        managed = await list_managed(cluster, application_id=application_id, variant=variant)
    except ListingError as error:
        if error.concerns({(each.group, each.kind) for each in kept}):
            raise
        log.error("nothing was pruned: %s", error.reason())  # noqa: TRY400 - a stage's log
        return []
    permitted = permission or DeletionPermission()
    uids = applied.uids if applied is not None else frozenset()
    ours = [each for each in managed if is_applied_by(each.body, application_id)]
    doomed = find_unkept(ours, kept, namespace=cluster.namespace, uids=uids)
    if not doomed:
        log.info("nothing to prune")
        return []
    total = len({each.uid for each in ours})
    if not kept and not permitted.many:
        raise DeletionRefusedError(
            f"there is no manifest to keep, so all {total} objects of the application would be"
            f" deleted and none was: {_format_keys(doomed)}",
            hint="if this is meant, set deletion.allowMany in the application file for this once",
        )
    _check_permitted(doomed, total=total, expected=expected, permission=permitted)
    log.info("pruning %d of %d objects", len(doomed), total)
    return await delete_groups(
        cluster,
        group_for_deletion(doomed, lambda each: each.manifest),
        log=log,
        limits=limits or Limits(),
        labels=f"{APPLICATION}={application_id}",
    )


def find_unkept(
    managed: Sequence[ManagedObject],
    keep: Iterable[Manifest],
    *,
    namespace: str,
    uids: Collection[str] = (),
) -> list[ManagedObject]:
    """Returns the live objects that are not kept, each once. Pure.

    An object that is served under several groups is kept when it is under any of them. `namespace`
    is where those go whose manifests name none.
    """
    keys: set[ResourceKey] = set()
    for manifest in keep:
        keys.add(manifest.key.normalize())
        if not manifest.namespace:
            keys.add(replace(manifest.key, namespace=namespace).normalize())
    bare = {replace(key, namespace="") for key in keys}
    doomed: dict[str, ManagedObject] = {}
    safe: set[str] = set(uids)
    for each in managed:
        key = each.manifest.key.normalize()
        is_cluster_wide = not each.ref.resource.namespaced
        is_kept = replace(key, namespace="") in bare if is_cluster_wide else key in keys
        if is_kept or not each.uid:
            safe.add(each.uid)
        else:
            doomed.setdefault(each.uid, each)
    return [each for uid, each in doomed.items() if uid not in safe]


def _check_permitted(
    doomed: Sequence[ManagedObject],
    *,
    total: int,
    expected: Collection[ResourceKey],
    permission: DeletionPermission,
) -> None:
    """Raises when this is more than may be deleted without somebody having said so."""
    _check_foundations(doomed, permission)
    decided = {key.normalize() for key in expected}
    counted = [each for each in doomed if each.manifest.key.normalize() not in decided]
    most = max(FEW, total * SHARE_PERCENT // 100)
    if len(counted) > most and not permission.many:
        raise DeletionRefusedError(
            f"{len(counted)} of the application's {total} objects would be deleted, more than"
            f" {most}, so none was: {_format_keys(counted)}",
            hint="if this is meant, set deletion.allowMany in the application file for this once",
        )


def _check_foundations(doomed: Sequence[ManagedObject], permission: DeletionPermission) -> None:
    found = [each for each in doomed if is_foundation(each.manifest.key)]
    if found and not permission.namespaces:
        raise DeletionRefusedError(
            "these would be deleted with everything that is in them, so nothing was:"
            f" {_format_keys(found)}",
            hint="if this is meant, set deletion.allowNamespaces in the application file for this"
            " once",
        )


def _format_keys(objects: Sequence[ManagedObject]) -> str:
    keys = sorted(str(each.manifest.key) for each in objects)
    more = len(keys) - _MOST_NAMED
    return ", ".join(keys[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


async def remove_variant(
    cluster: Cluster,
    *,
    application_id: str,
    variant: Variant,
    log: StageLog,
    kinds: Collection[tuple[str, str]] = VARIANT_KINDS,
    permission: DeletionPermission | None = None,
    limits: Limits | None = None,
) -> list[ResourceKey]:
    """Deletes everything of a variant: Services, workloads, the rest, what has no namespace.

    `kinds` are the groups and kinds that variants of this application may have. A broken API group
    that is none of them is told about and does not keep the variant alive; any other failure to
    list raises ListingError.
    """

    def judge(error: ListingError) -> None:
        if error.concerns(kinds):
            raise error
        log.error("%s", error.reason())

    managed = await list_managed(
        cluster, application_id=application_id, variant=variant, on_unlisted=judge
    )
    ours = [each for each in managed if is_applied_by(each.body, application_id)]
    doomed = list({each.uid: each for each in reversed(ours) if each.uid}.values())[::-1]
    if not doomed:
        log.info("nothing of the variant %s is there", variant[1])
        return []
    _check_foundations(doomed, permission or DeletionPermission())
    log.info("removing %d objects of the variant %s", len(doomed), variant[1])
    return await delete_groups(
        cluster,
        group_variant(doomed, lambda each: each.manifest),
        log=log,
        limits=limits or Limits(),
        labels=f"{APPLICATION}={application_id}",
    )
