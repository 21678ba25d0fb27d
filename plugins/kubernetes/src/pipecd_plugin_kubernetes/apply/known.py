# SPDX-License-Identifier: Apache-2.0
"""What the cluster has of the manifests before they are applied, in as few calls as can be."""

from collections.abc import Sequence
from typing import Final

from pipecd_plugin_kubernetes.apply.concurrency import run_in_order
from pipecd_plugin_kubernetes.apply.outcome import Limits
from pipecd_plugin_kubernetes.apply.replicas import AUTOSCALER
from pipecd_plugin_kubernetes.client import (
    ApiResource,
    Cluster,
    ForbiddenError,
    Object,
    ObjectRef,
)
from pipecd_plugin_kubernetes.manifest import Manifest, find_map
from pipecd_plugin_kubernetes.metadata import APPLICATION
from pipecd_sdk import StageLog

_WORTH_A_LIST: Final = 4
"""Objects of one kind in one namespace, from which on one list is cheaper than single calls."""

Place = tuple[ApiResource, str]


async def find_live(
    cluster: Cluster, manifests: Sequence[tuple[Manifest, ObjectRef]], *, limits: Limits
) -> dict[ObjectRef, Object]:
    """Returns the live objects of manifests.

    Where there are many of a kind, those that the application has not applied before are left out:
    who applies them finds out whether they are there.
    """
    places: dict[Place, list[tuple[Manifest, ObjectRef]]] = {}
    for manifest, ref in manifests:
        places.setdefault((ref.resource, ref.namespace), []).append((manifest, ref))
    single: list[ObjectRef] = []
    listed: list[tuple[Place, str]] = []
    for place, members in places.items():
        applications = {each.labels.get(APPLICATION, "") for each, _ in members}
        if len(members) < _WORTH_A_LIST or len(applications) != 1 or "" in applications:
            single += [ref for _, ref in members]
        else:
            listed.append((place, applications.pop()))
    found: dict[ObjectRef, Object] = {}

    async def list_place(task: tuple[Place, str]) -> None:
        (resource, namespace), application = task
        selector = f"{APPLICATION}={application}"
        try:
            listing = await cluster.list(resource, namespace=namespace, labels=selector)
        except ForbiddenError:
            single.extend(ref for _, ref in places[(resource, namespace)])
            return
        for body in listing:
            name = str(find_map(body, "metadata").get("name", ""))
            found[ObjectRef(resource, namespace, name)] = body

    async def get_single(ref: ObjectRef) -> None:
        body = await cluster.get(ref)
        if body is not None:
            found[ref] = body

    await run_in_order(listed, list_place, most_at_once=limits.most_at_once)
    await run_in_order(single, get_single, most_at_once=limits.most_at_once)
    return found


async def list_autoscalers(
    cluster: Cluster, namespaces: Sequence[str], *, log: StageLog | None = None
) -> list[Object]:
    """Returns the HorizontalPodAutoscalers of namespaces; none where they may not be listed."""
    resource = await _find_autoscaler_resource(cluster)
    if resource is None:
        return []
    found: list[Object] = []
    for namespace in namespaces:
        try:
            listing = await cluster.list(resource, namespace=namespace)
        except ForbiddenError as error:
            if log is not None:
                log.info(
                    "autoscalers are not known, so replicas of git are applied unless somebody has"
                    " scaled: %s",
                    error,
                )
            return found
        found += [_place_in(each, namespace) for each in listing]
    return found


def _place_in(body: Object, namespace: str) -> Object:
    return {**body, "metadata": {**find_map(body, "metadata"), "namespace": namespace}}


async def _find_autoscaler_resource(cluster: Cluster) -> ApiResource | None:
    discovery = await cluster.discover()
    for each in discovery.select_preferred():
        if (each.group, each.kind) == AUTOSCALER and "list" in each.verbs:
            return each
    return None
