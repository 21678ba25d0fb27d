# SPDX-License-Identifier: Apache-2.0
"""Reads values of rows that are objects when they are large: live states, shared objects.

A row is read within a unit of work, its object outside of any. Between the two the value may be
replaced or purged, so an object that is missing is a loss only while its row still refers to it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from pipecd_controlplane.store.blobs.blob_store import (
    BlobDamagedError,
    BlobRef,
    BlobStore,
    check_blob,
    limiting_fetch,
)
from pipecd_controlplane.store.database import Value
from pipecd_model.errors import LostDataError, StateError
from pipecd_runtime.logs import logger

log = logger(__name__)

NO_OBJECT: Final[Mapping[str, Value]] = {"object_key": "", "size": 0, "sha256": ""}
"""The columns of a row that holds its value itself; whoever writes a value writes them too."""


class LostValueError(LostDataError):
    """A value cannot be read any more."""

    def __init__(self, noun: str, lost: LostDataError) -> None:
        super().__init__(f"{noun} is lost: {lost}", hint=lost.hint, **lost.subject)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredValue:
    """What a row holds: a value, or the object that it is in."""

    data: bytes
    ref: BlobRef | None = None
    """The object, when the value is not here."""
    updated_at: int = 0


def read_value(data: bytes, object_key: str, size: int, sha256: str) -> StoredValue:
    """Returns what the columns of a row say.

    A pipecd that knows of no objects replaces the value and nothing else, so the object counts only
    as long as its checksum stands in place of the value.
    """
    if object_key and data.hex() == sha256:
        return StoredValue(data=b"", ref=BlobRef(key=object_key, size=size, sha256=sha256))
    return StoredValue(data=data)


class SealedValues:
    """The values that are objects."""

    def __init__(self, blobs: BlobStore | None) -> None:
        self._blobs = blobs

    async def open(
        self, noun: str, read: Callable[[], Awaitable[StoredValue | None]]
    ) -> StoredValue | None:
        """Returns what `read` finds in a row, with the value itself; None when there is no row.

        The row is read again when its object is not there. Raises LostValueError for `noun` when
        it still refers to the same one.
        """
        held = await read()
        while held is not None and held.ref is not None:
            try:
                return replace(held, data=await self._fetch(held.ref), ref=None)
            except LostDataError as lost:
                again = await read()
                if again == held:
                    log.error("value.lost", value=noun, error=str(lost), **lost.subject)  # noqa: TRY400 - as for logs
                    raise LostValueError(noun, lost) from lost
                held = again
        return held

    async def _fetch(self, ref: BlobRef) -> bytes:
        if self._blobs is None:
            raise StateError("this program has no blob store to read large values from")
        try:
            async with limiting_fetch(self._blobs, "it"):
                data = await self._blobs.get_range(ref.key, 0, ref.size)
        except ValueError as error:  # of a row whose key is none
            raise BlobDamagedError(ref.key, self._blobs.place, str(error)) from error
        await asyncio.to_thread(check_blob, self._blobs, ref, data)
        return data
