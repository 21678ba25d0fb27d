# SPDX-License-Identifier: Apache-2.0
"""The contract of a blob store: what a folder and a bucket both promise.

An object is bytes under a key. It is written whole or not at all, and is durable when the call
returns; a reader sees all of it or nothing. Whoever refers to an object keeps its length and its
SHA-256 beside the key (`BlobRef`) and compares what is read, so damage is found at reading. Keys
are made here, never from words of callers.

Every call raises BlobsUnavailableError when the store does not answer, BlobsRefusedError when it
answers that this is not allowed; both say which store, and what to do.
"""

import asyncio
import hashlib
import re
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final, Protocol

from pipecd_model.errors import LostDataError, StateError, UnavailableError

READ_BYTES: Final = 4 * 1024 * 1024
"""How much of an object is in memory at once where it is read piece by piece."""

FETCH_SECONDS: Final = 10.0
"""How long somebody who is waited for waits for an object: less than callers wait for an answer, so
that they hear which place is silent."""

LONGEST_KEY: Final = 200

_KEY: Final = re.compile(r"[a-z0-9][a-z0-9._-]*(/[a-z0-9][a-z0-9._-]*)*")
_PREFIX: Final = re.compile(r"([a-z0-9][a-z0-9._-]*/)*")


class BlobsUnavailableError(UnavailableError):
    """The blob store does not answer, or cannot do it right now."""


class BlobsRefusedError(StateError):
    """The blob store refuses: no rights, no such bucket, a key that is taken."""


class NoBlobStoreError(BlobsRefusedError):
    """There is no such bucket, or the folder has never held an object."""


class BlobMissingError(LostDataError):
    """An object that something refers to is not there."""

    def __init__(self, key: str, place: str) -> None:
        super().__init__(
            f"the object {key!r} is missing in {place}",
            hint="an administrator can restore it from a backup of that place;"
            " all servers of one database must use the same",
            key=key,
        )


class BlobDamagedError(LostDataError):
    """An object is not what was written."""

    def __init__(self, key: str, place: str, why: str) -> None:
        super().__init__(
            f"the object {key!r} in {place} is damaged: {why}",
            hint="an administrator can restore it from a backup of that place",
            key=key,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class BlobRef:
    """What is kept of an object by whoever refers to it."""

    key: str
    size: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BlobEntry:
    """An object as a listing shows it."""

    key: str
    size: int
    modified_at: int
    """In seconds, by the clock of the store."""


class BlobStore(Protocol):
    """A place for objects."""

    @property
    def place(self) -> str:
        """Returns where it is, for sentences: `the bucket 'logs'`. No secrets."""

    @property
    def find_hint(self) -> str:
        """Returns what to do where this is another store than the one that was meant."""

    def name_object(self, key: str) -> str:
        """Returns by what name people find an object who look there without pipecd."""

    async def put(self, key: str, data: bytes, *, replace: bool = False) -> None:
        """Writes an object. Raises BlobsRefusedError when the key is taken, without `replace`."""

    async def put_parts(self, key: str, parts: AsyncIterator[bytes]) -> int:
        """Writes an object of any length, with little of it in memory; returns its length.

        For keys that nobody else writes (`make_key`): one that is taken may be replaced. An error
        of the iterator is raised, and nothing is written.
        """

    async def get(self, key: str) -> bytes:
        """Returns an object. Raises BlobMissingError."""

    async def get_range(self, key: str, start: int, length: int) -> bytes:
        """Returns a part of an object. Raises BlobMissingError, BlobDamagedError if it is short."""

    async def find(self, key: str) -> BlobEntry | None:
        """Returns what there is of an object; None when it is not there."""

    async def delete(self, key: str) -> None:
        """Deletes an object. One that is not there is deleted already."""

    def iterate(self, prefix: str = "") -> AsyncIterator[BlobEntry]:
        """Yields all objects whose key begins with a prefix: empty, or one that ends with `/`.

        In no particular order. What is written or deleted meanwhile may be among them or not. What
        others have put there under a name that is no key is left out.
        """

    async def check(self) -> None:
        """Uses the store. Raises when that fails, within the limits of the store."""


def make_key(kind: str, *, now: int, space: str = "") -> str:
    """Returns a key that nobody else has: `stage-logs/SPACE/20261118/4f1c…`.

    The day is of use to people who look into the store, and keeps folders from growing endlessly.
    """
    days = now // 86_400
    name = secrets.token_hex(16)
    return "/".join(part for part in (kind, space, f"d{days}", name) if part)


def check_key(key: str) -> str:
    """Returns the key. Raises ValueError for one that could lead out of the store."""
    if not is_key(key):
        raise ValueError(f"not a key of an object: {key!r}")
    return key


def is_key(name: str) -> bool:
    return len(name) <= LONGEST_KEY and _KEY.fullmatch(name) is not None


def check_prefix(prefix: str) -> str:
    """Returns the prefix. Raises ValueError for one that no key can have."""
    if len(prefix) > LONGEST_KEY or not _PREFIX.fullmatch(prefix):
        raise ValueError(f"not a prefix of objects: {prefix!r}")
    return prefix


def describe_blob(key: str, data: bytes) -> BlobRef:
    """Returns what to keep of an object."""
    return BlobRef(key=key, size=len(data), sha256=hashlib.sha256(data).hexdigest())


async def get_checked(store: BlobStore, ref: BlobRef) -> bytes:
    """Returns an object that is as it was written. Raises BlobMissingError, BlobDamagedError."""
    data = await store.get(ref.key)
    check_blob(store, ref, data)
    return data


def check_blob(store: BlobStore, ref: BlobRef, data: bytes) -> None:
    """Raises BlobDamagedError for data that is not as it was written."""
    if len(data) != ref.size:
        why = f"it has {len(data)} bytes in place of {ref.size}"
        raise BlobDamagedError(ref.key, store.place, why)
    if hashlib.sha256(data).hexdigest() != ref.sha256:
        raise BlobDamagedError(ref.key, store.place, "its checksum is another one")


@asynccontextmanager
async def limiting_fetch(store: BlobStore, noun: str) -> AsyncIterator[None]:
    """Limits the block, which reads from a store, to FETCH_SECONDS.

    Raises BlobsUnavailableError then, with words on what cannot be read meanwhile.
    """
    try:
        async with asyncio.timeout(FETCH_SECONDS):
            yield
    except TimeoutError:
        raise BlobsUnavailableError(
            f"{store.place} does not answer within {FETCH_SECONDS:g} seconds",
            hint=f"{noun} can be read when it does",
        ) from None


async def iterate_checked(store: BlobStore, ref: BlobRef) -> AsyncIterator[bytes]:
    """Yields an object piece by piece. Raises BlobDamagedError, at its end for another checksum."""
    total = hashlib.sha256()
    for start in range(0, ref.size, READ_BYTES):
        part = await store.get_range(ref.key, start, min(READ_BYTES, ref.size - start))
        total.update(part)
        yield part
    found = await store.find(ref.key)
    if found is None:
        raise BlobMissingError(ref.key, store.place)
    if found.size != ref.size:
        why = f"it has {found.size} bytes in place of {ref.size}"
        raise BlobDamagedError(ref.key, store.place, why)
    if total.hexdigest() != ref.sha256:
        raise BlobDamagedError(ref.key, store.place, "its checksum is another one")
