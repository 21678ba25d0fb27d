# SPDX-License-Identifier: Apache-2.0
"""Objects in a bucket of S3, or of anything that speaks its protocol, through obstore.

Each request has a time limit and is retried a few times, so a call ends within a minute whatever
the network does. Whole objects are read piece by piece: the limit is for one piece.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import suppress
from typing import Any, Final, TypeVar

import obstore
from obstore import exceptions

from pipecd_controlplane.store.blobs.blob_store import (
    BlobDamagedError,
    BlobEntry,
    BlobMissingError,
    BlobsRefusedError,
    BlobsUnavailableError,
    NoBlobStoreError,
    check_key,
    check_prefix,
    is_key,
)
from pipecd_controlplane.store.blobs.config import AwsProfile, KeyFiles, S3Bucket
from pipecd_controlplane.store.blobs.s3_credentials import read_keys
from pipecd_controlplane.store.blobs.s3_driver import create_bucket, make_store
from pipecd_model.errors import PipecdError

PART_BYTES: Final = 5 * 1024 * 1024
"""Of an upload: the least that S3 allows, and twice in memory."""

MARKER: Final = "pipecd-blobs"
"""The key of a small object that is read to see whether the bucket can be used."""

_CODE: Final = re.compile(r"<Code>([A-Za-z0-9]{1,80})</Code>")
_STATUS: Final = re.compile(r"non-2xx status code: (\d{3})")
_FROM_FILES: Final = re.compile(r"credential provider: ConfigError: (.*)")
"""What `s3_credentials` says, as the driver hands it on."""

T = TypeVar("T")


class S3Blobs:
    """A blob store in a bucket."""

    def __init__(self, config: S3Bucket) -> None:
        self._config = config
        self._store = make_store(config, prefix=config.prefix)

    @property
    def place(self) -> str:
        prefix = f" with the prefix {self._config.prefix!r}" if self._config.prefix else ""
        return f"the bucket {self._config.bucket!r}{prefix}{self._name_endpoint()}"

    @property
    def find_hint(self) -> str:
        return "name the right endpoint, bucket and prefix in spec.filestore.config"

    def name_object(self, key: str) -> str:
        prefix = self._config.prefix.strip("/")
        return f"the object {f'{prefix}/{key}' if prefix else key!r}"

    async def open(self) -> None:
        """Sees whether objects can be written and read.

        Raises what `put` and `get` raise, and ConfigError for files with credentials.
        """
        await self._check_credentials()
        if self._config.create_bucket:
            await self._ask(MARKER, create_bucket(self._config, self.place))
        await self._put_marker()
        await self.get(MARKER)

    async def look(self) -> None:
        """Sees whether objects can be read, and writes nothing. Raises as `open`."""
        await self._check_credentials()
        with suppress(BlobMissingError):
            await self.get(MARKER)

    async def holds_any(self, keys: Sequence[str]) -> bool:
        """Returns whether one of some objects is there; none is in a bucket that is to be made.

        They are asked for in their order, and the first one that is there ends it. It makes
        nothing. Raises as `open`.
        """
        try:
            await self.look()
            return await self._finds_any(keys)
        except NoBlobStoreError:
            if not self._config.create_bucket:
                raise
        return False

    async def _finds_any(self, keys: Sequence[str]) -> bool:
        refused: BlobsRefusedError | None = None
        for key in filter(is_key, keys):
            try:
                if await self.find(key) is not None:
                    return True
            except NoBlobStoreError:
                raise
            except BlobsRefusedError as error:
                # Without s3:ListBucket this is the answer for an object that is missing.
                refused = error
        if refused is not None:
            raise refused
        return False

    async def _check_credentials(self) -> None:
        if isinstance(self._config.credentials, AwsProfile | KeyFiles):
            await asyncio.to_thread(read_keys, self._config.credentials)

    async def put(self, key: str, data: bytes, *, replace: bool = False) -> None:
        mode: Any = "overwrite" if replace else "create"
        await self._ask(key, obstore.put_async(self._store, check_key(key), data, mode=mode))

    async def put_parts(self, key: str, parts: AsyncIterator[bytes]) -> int:
        size = 0
        failure: Exception | None = None

        async def count() -> AsyncIterator[bytes]:
            nonlocal size, failure
            try:
                async for part in parts:
                    size += len(part)
                    yield part
            except Exception as error:
                failure = error  # of the caller's, whatever its class
                raise

        # Of a key that nobody else writes: a condition would need the whole object in memory.
        put = obstore.put_async(
            self._store, check_key(key), count(), chunk_size=PART_BYTES, max_concurrency=2
        )
        try:
            await self._ask(key, put)
        except Exception:
            if failure is not None:
                raise failure from None
            raise
        return size

    async def get(self, key: str) -> bytes:
        found = await self._ask(key, obstore.get_async(self._store, check_key(key)))
        return bytes(await self._ask(key, found.bytes_async()))

    async def get_range(self, key: str, start: int, length: int) -> bytes:
        asked = obstore.get_range_async(self._store, check_key(key), start=start, length=length)
        data = bytes(await self._ask(key, asked))
        if len(data) < length:
            raise BlobDamagedError(key, self.place, f"it ends before byte {start + length}")
        return data

    async def find(self, key: str) -> BlobEntry | None:
        try:
            found = await self._ask(key, obstore.head_async(self._store, check_key(key)))
        except BlobMissingError:
            return None
        return _make_entry(found)

    async def delete(self, key: str) -> None:
        try:
            await self._ask(key, obstore.delete_async(self._store, check_key(key)))
        except BlobMissingError:
            return

    async def iterate(self, prefix: str = "") -> AsyncIterator[BlobEntry]:
        # Its prefix is of whole segments; it lists nothing for one that ends with a slash.
        pages = obstore.list(self._store, prefix=check_prefix(prefix).rstrip("/") or None)
        while True:
            try:
                page = await self._ask(prefix, pages.__anext__())
            except StopAsyncIteration:
                return
            for each in page:
                if is_key(each["path"]) and each["path"] != MARKER:
                    yield _make_entry(each)

    async def check(self) -> None:
        try:
            await self.get(MARKER)
        except BlobMissingError:
            # Somebody tidied up: a bucket that takes it again is well.
            await self._put_marker()

    async def _put_marker(self) -> None:
        await self.put(MARKER, b"objects of a pipecd control plane\n", replace=True)

    async def _ask(self, key: str, answer: Awaitable[T]) -> T:
        """Waits for an answer, and turns errors of the driver into sentences."""
        try:
            return await answer
        except (PipecdError, StopAsyncIteration):
            raise
        except (exceptions.BaseError, OSError, ValueError) as error:
            raise self._explain(key, error) from error

    def _explain(self, key: str, error: Exception) -> Exception:
        """Returns what to raise for an error of the driver, by the class of what went wrong."""
        text = str(error)
        code = found[1] if (found := _CODE.search(text)) else ""
        said = f": {code}" if code else ""
        if code in {"NoSuchBucket", "InvalidBucketName"}:
            return NoBlobStoreError(
                f"there is no bucket {self._config.bucket!r}{self._name_endpoint()}",
                hint="create it, or name another in spec.filestore.config.bucket",
            )
        if isinstance(error, FileNotFoundError):
            return BlobMissingError(key, self.place)
        if isinstance(error, exceptions.AlreadyExistsError):
            return BlobsRefusedError(f"the object {key!r} is in {self.place} already")
        if found := _FROM_FILES.search(text):
            return BlobsRefusedError(found[1], hint="see spec.filestore.config")
        if isinstance(error, exceptions.PermissionDeniedError | exceptions.UnauthenticatedError):
            return BlobsRefusedError(
                f"{self.place} refuses these credentials{said}",
                hint="docs/security.md has the rights that the server needs",
            )
        if code == "InvalidRange":
            return BlobDamagedError(key, self.place, "it is shorter than it was")
        if (status := _STATUS.search(text)) and status[1].startswith("4"):
            return BlobsRefusedError(
                f"{self.place} refuses a request with status {status[1]}{said}",
                hint="see spec.filestore.config: endpoint, region, bucket",
            )
        return BlobsUnavailableError(
            f"{self.place} does not answer{said or f': {_find_reason(text)}'}",
            hint="see spec.filestore.config, and whether the server can reach it",
        )

    def _name_endpoint(self) -> str:
        return f" at {self._config.endpoint}" if self._config.endpoint else ""


def _make_entry(found: Any) -> BlobEntry:
    return BlobEntry(
        key=found["path"],
        size=found["size"],
        modified_at=int(found["last_modified"].timestamp()),
    )


def _find_reason(text: str) -> str:
    """Returns the short part of what the driver says; the long one has addresses and internals."""
    first = text.partition("\n")[0]
    reason = first.rpartition(" - ")[2] or first
    return reason[:200].strip()
