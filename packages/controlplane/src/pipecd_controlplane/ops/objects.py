# SPDX-License-Identifier: Apache-2.0
"""The timed jobs of the blob store.

Logs and large values become objects, and objects that nobody wants go.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import aclosing
from typing import Final

from pipecd_controlplane.ops.jobs import Job
from pipecd_controlplane.store import log_sealing, value_sealing
from pipecd_controlplane.store.blobs.blob_store import BlobEntry, BlobsRefusedError, BlobStore
from pipecd_controlplane.store.entities import Now
from pipecd_controlplane.store.kept_objects import keeps_objects
from pipecd_controlplane.store.log_sealing import DueLog
from pipecd_controlplane.store.spaces import find_space
from pipecd_controlplane.store.stores import Stores
from pipecd_model.errors import PipecdError, UnavailableError
from pipecd_runtime.logs import logger

log = logger(__name__)

SEAL_SECONDS: Final = 30
SEAL_VALUES_SECONDS: Final = 600
"""A value that is replaced all the time leaves no more orphans than one each time."""
ORPHANS_SECONDS: Final = 86_400

YOUNG_SECONDS: Final = 86_400
"""How long an object is left alone that nobody refers to: it may be about to be referred to."""

AT_ONCE: Final = 8
"""How many objects are deleted at the same time."""

STEP: Final = 200


def list_object_jobs(stores: Stores, now: Now, *, seals: bool) -> list[Job]:
    """Returns the jobs that seal logs and values, and remove objects that nobody refers to."""
    blobs = stores.blobs
    if blobs is None:
        return []

    async def seal() -> None:
        await seal_logs(stores, blobs)

    async def seal_more() -> None:
        await seal_values(stores, blobs)

    async def clean() -> None:
        await remove_orphans(stores, blobs, now)

    sealing = [
        Job(name="seal-logs", every=SEAL_SECONDS, run=seal, rest=SEAL_SECONDS),
        Job(name="seal-values", every=SEAL_VALUES_SECONDS, run=seal_more, rest=SEAL_SECONDS),
    ]
    return [
        *(sealing if seals else []),
        Job(name="orphan-objects", every=ORPHANS_SECONDS, run=clean, rest=3600),
    ]


async def seal_logs(stores: Stores, blobs: BlobStore) -> int:
    """Seals the logs that are complete and worth it; returns how many objects were written.

    What is wrong with one log does not keep the others. Raises UnavailableError when the store
    does not answer, BlobsRefusedError when it refuses: all of them stay as they are until then.
    A database that keeps objects seals nothing: its original would take that for orphans.
    """
    if await keeps_objects(stores.database):
        return 0
    written = 0
    due = await stores.log_sealing.list_due()
    while due:
        for each in due:
            written += await _seal_whole(stores, blobs, each)
        due = await stores.log_sealing.list_due(after=due[-1].key)
    return written


async def _seal_whole(stores: Stores, blobs: BlobStore, due: DueLog) -> int:
    written = 0
    try:
        while await stores.log_sealing.seal(blobs, due):
            written += 1
    except (UnavailableError, BlobsRefusedError):
        raise
    except PipecdError as error:
        log.warning("stage_log.not_sealed", log=str(due.key), error=error.with_hint())
    return written


async def seal_values(stores: Stores, blobs: BlobStore) -> int:
    """Seals the values that are worth it; returns how many objects were written.

    Raises as `seal_logs` does; the values stay in their rows until then. A database that keeps
    objects seals none, as there.
    """
    if await keeps_objects(stores.database):
        return 0
    written = 0
    async with aclosing(stores.value_sealing.iterate_due()) as due:
        async for each in due:
            try:
                written += await stores.value_sealing.seal(blobs, each)
            except (UnavailableError, BlobsRefusedError):
                raise
            except PipecdError as error:
                log.warning("value.not_sealed", value=str(each.key), error=error.with_hint())
    return written


async def remove_orphans(stores: Stores, blobs: BlobStore, now: Now) -> int:
    """Deletes objects that nobody refers to, once they are old enough; returns how many.

    They are what a crash leaves between the writing of an object and the transaction that refers
    to it, or between a purge and the deletion of its objects; and those of values that were
    replaced or purged. A database that keeps objects has none: what it does not know may be
    another's.
    """
    if await keeps_objects(stores.database):
        return 0
    before = now() - YOUNG_SECONDS
    space = await find_space(stores.database)
    removed = 0
    for kind, find_unreferred in (
        (log_sealing.KIND, stores.log_sealing.find_unreferred),
        (value_sealing.KIND, stores.value_sealing.find_unreferred),
    ):
        removed += await _remove_orphans_of(blobs, f"{kind}/{space}/", find_unreferred, before)
    if removed:
        log.info("objects.orphans_removed", count=removed)
    return removed


async def _remove_orphans_of(
    blobs: BlobStore,
    prefix: str,
    find_unreferred: Callable[[Iterable[str]], Awaitable[list[str]]],
    before: int,
) -> int:
    removed = 0
    batch: list[BlobEntry] = []

    async def remove() -> int:
        orphans = await find_unreferred(each.key for each in batch)
        await delete_objects(blobs, orphans)
        return len(orphans)

    async for entry in blobs.iterate(prefix):
        if entry.modified_at >= before:
            continue
        batch.append(entry)
        if len(batch) >= STEP:
            removed += await remove()
            batch.clear()
    return removed + await remove()


async def delete_objects(blobs: BlobStore | None, keys: Iterable[str]) -> None:
    """Deletes objects that no row refers to. One that stays is found later, as an orphan."""
    if blobs is None:
        return
    slots = asyncio.Semaphore(AT_ONCE)

    async def delete(key: str) -> None:
        async with slots:
            try:
                await blobs.delete(key)
            except PipecdError as error:
                log.warning("object.not_deleted", key=key, error=error.with_hint())

    async with asyncio.TaskGroup() as tasks:
        for key in keys:
            tasks.create_task(delete(key))
