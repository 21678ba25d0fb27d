# SPDX-License-Identifier: Apache-2.0
"""Follows objects of a cluster through a watch, and waits for what shall become of them."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing

from pipecd_plugin_kubernetes.apply.outcome import read_uid
from pipecd_plugin_kubernetes.client import (
    ApiResource,
    ChangeType,
    Cluster,
    GoneError,
    Object,
    ObjectRef,
)


async def follow_objects(
    cluster: Cluster,
    resource: ApiResource,
    *,
    namespace: str = "",
    labels: str = "",
    fields: str = "",
) -> AsyncGenerator[Mapping[str, Object]]:
    """Yields all objects by uid, now and after each change. Never ends by itself.

    What is yielded is the same map each time, changed. A watch that has fallen behind begins anew.
    """
    while True:
        listing = await cluster.list(resource, namespace=namespace, labels=labels, fields=fields)
        known: dict[str, Object] = {read_uid(each): each for each in listing}
        yield known
        watch = cluster.watch(
            resource,
            namespace=namespace,
            labels=labels,
            fields=fields,
            resource_version=listing.resource_version,
        )
        try:
            async with aclosing(watch) as events:
                async for event in events:
                    if event.type is ChangeType.BOOKMARK or event.body is None:
                        continue
                    if event.type is ChangeType.DELETED:
                        known.pop(read_uid(event.body), None)
                    else:
                        known[read_uid(event.body)] = event.body
                    yield known
        except GoneError:
            continue


async def wait_for_object(
    cluster: Cluster,
    ref: ObjectRef,
    is_done: Callable[[Object | None], bool],
    *,
    timeout_seconds: float,
) -> tuple[bool, Object | None]:
    """Waits until an object is as it should be; None means that there is none.

    Returns whether it came to that in time, and the object as it was last.
    """
    last: Object | None = None
    try:
        async with asyncio.timeout(timeout_seconds):
            changes = follow_objects(
                cluster,
                ref.resource,
                namespace=ref.namespace,
                fields=f"metadata.name={ref.name}",
            )
            async with aclosing(changes) as snapshots:
                async for known in snapshots:
                    last = next(iter(known.values()), None)
                    if is_done(last):
                        return True, last
    except TimeoutError:
        return False, last
    raise AssertionError("the watch never ends by itself")
