# SPDX-License-Identifier: Apache-2.0
"""A blob store that is used as long as it has the mark of the database.

The mark is made before the first object; until then a database is bound to no store.
Of several servers that make it at once one is first; the others find its mark in their store, or
have another store and write nothing there.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from pipecd_controlplane.store.blobs.blob_store import (
    BlobEntry,
    BlobMissingError,
    BlobStore,
    BlobsUnavailableError,
)
from pipecd_controlplane.store.blobs.mark import (
    MARK,
    MARKS,
    has_mark,
    make_mark,
    make_mark_key,
    put_mark,
)
from pipecd_controlplane.store.database import Database
from pipecd_controlplane.store.installation_values import choose_value, find_value


class MarkedBlobs:
    """The blob store of a database."""

    def __init__(self, blobs: BlobStore, database: Database) -> None:
        self._blobs = blobs
        self._database = database
        self._mark = ""
        """Empty as long as none is known here; it never changes while a server runs."""

    @property
    def place(self) -> str:
        return self._blobs.place

    @property
    def find_hint(self) -> str:
        return self._blobs.find_hint

    def name_object(self, key: str) -> str:
        return self._blobs.name_object(key)

    async def claim(self, fresh: str) -> None:
        """Makes `fresh` the mark unless the database has one. Raises BlobsUnavailableError."""
        if not await self._find_mark():
            # First the object: a crash in between leaves one that nothing asks for.
            await put_mark(self._blobs, fresh)
            self._mark = await choose_value(self._database, MARK, fresh)
            if self._mark != fresh:
                await self._blobs.delete(make_mark_key(fresh))
        await self._check_mark()

    async def put(self, key: str, data: bytes, *, replace: bool = False) -> None:
        await self.claim(make_mark())
        await self._blobs.put(key, data, replace=replace)

    async def put_parts(self, key: str, parts: AsyncIterator[bytes]) -> int:
        await self.claim(make_mark())
        return await self._blobs.put_parts(key, parts)

    async def get(self, key: str) -> bytes:
        async with self._distrusting():
            return await self._blobs.get(key)

    async def get_range(self, key: str, start: int, length: int) -> bytes:
        async with self._distrusting():
            return await self._blobs.get_range(key, start, length)

    async def find(self, key: str) -> BlobEntry | None:
        found = await self._blobs.find(key)
        if found is None:
            await self._check_mark()
        return found

    async def delete(self, key: str) -> None:
        await self._blobs.delete(key)

    async def iterate(self, prefix: str = "") -> AsyncIterator[BlobEntry]:
        async for each in self._blobs.iterate(prefix):
            if not each.key.startswith(MARKS):
                yield each

    async def check(self) -> None:
        await self._blobs.check()
        await self._check_mark()

    @asynccontextmanager
    async def _distrusting(self) -> AsyncIterator[None]:
        """An object is missing only where the mark is."""
        try:
            yield
        except BlobMissingError:
            await self._check_mark()
            raise

    async def _find_mark(self) -> str:
        self._mark = self._mark or await find_value(self._database, MARK)
        return self._mark

    async def _check_mark(self) -> None:
        """Raises BlobsUnavailableError when this is not the store of the database."""
        mark = await self._find_mark()
        if mark and not await has_mark(self._blobs, mark):
            raise BlobsUnavailableError(
                f"{self.place} is not the blob store of this database: it lacks the mark"
                f" {make_mark_key(mark)!r}",
                hint=f"{self.find_hint}; all servers of one database must use the same store",
            )
