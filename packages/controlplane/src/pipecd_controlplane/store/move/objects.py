# SPDX-License-Identifier: Apache-2.0
"""Copies the objects that rows refer to from one blob store to another.

The rows have the size and the checksum of each object, so a target tells by itself what it has
got: nothing needs to be remembered of a copy that was killed.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Final

from pipecd_controlplane.store.blobs.blob_store import (
    BlobRef,
    BlobStore,
    check_key,
    iterate_checked,
)
from pipecd_controlplane.store.move.progress import MoveProgress
from pipecd_controlplane.store.move.sides import MovableDatabase
from pipecd_controlplane.store.move.tables import TableSize, list_tables
from pipecd_controlplane.store.sealed_values import read_value
from pipecd_model.errors import LostDataError, StateError

REFERENCE: Final = ("object_key", "size", "sha256")
"""The columns of a table that refers to objects; the first is empty where a row does not."""

VALUE: Final = "data"
"""The column that holds a value, or the checksum of its object, where objects are values."""

SOME: Final = 100

OBJECTS: Final = "objects"
"""What they are called in the progress of a move."""


@dataclass(slots=True)
class ObjectCount:
    """How many objects there are, and which of them are not as they were written."""

    count: int
    lost: list[str] = field(default_factory=list)
    """Their keys."""


async def list_references(database: MovableDatabase) -> AsyncGenerator[BlobRef]:
    """Yields what all rows refer to."""
    for table in list_tables():
        if not set(REFERENCE) <= set(table.names):
            continue
        places = [table.names.index(each) for each in REFERENCE]
        value = table.names.index(VALUE) if VALUE in table.names else None
        async with aclosing(database.read_batches(table, after=None)) as batches:
            async for rows in batches:
                for row in rows:
                    key, size, sha256 = (row[place] for place in places)
                    if not key:  # the row holds its value itself
                        continue
                    if value is None or read_value(row[value], key, size, sha256).ref is not None:
                        yield BlobRef(key=key, size=size, sha256=sha256)


async def list_some_references(database: MovableDatabase) -> list[str]:
    """Returns keys that rows refer to, not all if there are many."""
    found: list[str] = []
    async with aclosing(list_references(database)) as references:
        async for each in references:
            found.append(each.key)
            if len(found) >= SOME:
                break
    return found


async def measure_objects(database: MovableDatabase) -> TableSize:
    """Returns how many objects the rows refer to, and of how many bytes."""
    rows = size = 0
    async for each in list_references(database):
        rows += 1
        size += each.size
    return TableSize(rows=rows, bytes=size)


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectMove:
    """Both blob stores, opened, and who is told."""

    source: BlobStore
    target: BlobStore
    progress: MoveProgress
    skips_lost: bool = False
    """Whether a move goes on without objects that the source has lost."""

    async def run(self, database: MovableDatabase) -> None:
        """Copies what the target has not got, and reads every object of the target once.

        Raises StateError when the source has lost some.
        """
        copied = await self._for_each(database, "copying", self._copy)
        if copied.lost and not self.skips_lost:
            raise StateError(
                f"{self.source.place} has lost {len(copied.lost)} of {copied.count} objects",
                hint="restore them from a backup and run the same command again, or go on without"
                " them with --skip-missing",
            )

    async def verify(self, database: MovableDatabase) -> None:
        """Reads every object of the target. Raises StateError when one is not as it was written."""
        found = await self._for_each(database, "verifying", self._verify)
        if found.lost:
            raise StateError(
                f"{self.target.place} has not got {len(found.lost)} of {found.count} objects",
                hint="run the move again, it copies what is not there",
            )

    async def _for_each(
        self, database: MovableDatabase, step: str, work: Callable[[BlobRef], Awaitable[None]]
    ) -> ObjectCount:
        size = await measure_objects(database)
        counted = ObjectCount(count=size.rows)
        if not size.rows:
            return counted
        self.progress.begin(step, {OBJECTS: size})
        async for ref in list_references(database):
            try:
                check_key(ref.key)
            except ValueError as error:
                raise StateError(
                    f"{database.name} refers to what is {error}",
                    hint="no pipecd writes such a row; restore a backup that you trust",
                ) from error
            try:
                await work(ref)
            except LostDataError as lost:
                self.progress.say(str(lost))
                counted.lost.append(ref.key)
            self.progress.advance(OBJECTS, 1)
        self.progress.end()
        return counted

    async def _copy(self, ref: BlobRef) -> None:
        """Raises LostDataError when the source has not got it as it was written.

        An object that turns out to be damaged at its end is not written.
        """
        if await self._is_in_target(ref):
            return
        await self.target.put_parts(ref.key, iterate_checked(self.source, ref))
        try:
            await self._verify(ref)
        except LostDataError as error:
            raise StateError(
                f"what was just written is not what is read: {error}",
                hint="see what is wrong there, then run the same command again",
            ) from error

    async def _is_in_target(self, ref: BlobRef) -> bool:
        found = await self.target.find(ref.key)
        if found is None or found.size != ref.size:
            return False
        try:
            await self._verify(ref)
        except LostDataError:
            return False
        return True

    async def _verify(self, ref: BlobRef) -> None:
        async for _part in iterate_checked(self.target, ref):
            pass
