# SPDX-License-Identifier: Apache-2.0
"""Objects as files in a folder: the default, inside the data folder.

A file is written beside the others under a name of its own, synced, and then linked to its key, so
a crash leaves a whole object or none. What a killed writer left is removed a day later.
"""

import asyncio
import errno
import os
import secrets
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, ParamSpec, TypeVar

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
from pipecd_runtime.files import sync_folder
from pipecd_runtime.private_folder import UnsafeFolderError, close_folder

INCOMING: Final = ".incoming"
"""The folder of files that are being written; no key can begin like this."""

LEFT_SECONDS: Final = 86_400
"""After which a file there has no writer any more."""

HINTS: Final = {
    errno.ENOSPC: "make room on its disk",
    errno.EDQUOT: "make room on its disk",
    errno.EROFS: "its disk is mounted read-only",
    errno.EACCES: "the user of the server needs to read and write there",
    errno.EPERM: "the user of the server needs to read and write there",
    errno.ESTALE: "the share is not mounted any more",
}

P = ParamSpec("P")
T = TypeVar("T")


class FolderBlobs:
    """A blob store in a folder, used by any number of processes at once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @property
    def place(self) -> str:
        return f"the folder {str(self._folder)!r}"

    @property
    def find_hint(self) -> str:
        return "mount its share, or name the right folder in spec.filestore.config.path"

    def name_object(self, key: str) -> str:
        return f"the file {str(self._folder / key)!r}"

    async def open(self, *, referred: Sequence[str] = ()) -> None:
        """Makes the folder if need be. Raises BlobsRefusedError when it cannot be used.

        It is not used either if it was never ours and has none of the objects in `referred`: where
        a share is not mounted yet, its place is there, and empty.
        """

        def prepare() -> None:
            if referred and not self._is_ours(referred):
                raise NoBlobStoreError(
                    f"the database refers to objects, and {self.place} has never held any",
                    hint="mount its share first; `pipecd move` copies objects that are elsewhere;"
                    f" to go on without them, make the folder {INCOMING!r} in it",
                )
            try:
                close_folder(self._folder)
                (self._folder / INCOMING).mkdir(mode=0o700, exist_ok=True)
                self._remove_leftovers()
            except UnsafeFolderError as unsafe:
                raise BlobsRefusedError(str(unsafe), hint=unsafe.hint) from unsafe
            except OSError as error:
                raise BlobsRefusedError(
                    f"cannot keep objects in {self.place}: {error.strerror}",
                    hint="name a folder that this user may write to in spec.filestore.config.path",
                ) from error

        await asyncio.to_thread(prepare)

    async def look(self, *, referred: Sequence[str]) -> None:
        """Sees whether objects can be read, and makes nothing.

        Raises NoBlobStoreError if it was never ours and has none of the objects in `referred`,
        BlobsRefusedError when it cannot be used.
        """

        def see() -> None:
            try:
                is_ours = self._is_ours(referred)
                if self._folder.exists():
                    os.scandir(self._folder).close()
            except OSError as error:
                raise self._refuse_reading(error) from error
            if not is_ours:
                raise NoBlobStoreError(
                    f"{self.place} has never held objects",
                    hint="mount its share, or see spec.filestore.config.path",
                )

        await asyncio.to_thread(see)

    async def holds_any(self, keys: Sequence[str]) -> bool:
        """Returns whether one of some objects is there, also where the folder is none of ours.

        It makes nothing. Raises BlobsRefusedError when the folder cannot be read.
        """
        try:
            return await asyncio.to_thread(self._holds_any, keys)
        except OSError as error:
            raise self._refuse_reading(error) from error

    async def put(self, key: str, data: bytes, *, replace: bool = False) -> None:
        path = self._find_path(key)

        def write() -> None:
            with self._writing(path, replace=replace) as descriptor:
                _write(descriptor, data)

        await self._run(key, write)

    async def put_parts(self, key: str, parts: AsyncIterator[bytes]) -> int:
        path = self._find_path(key)
        size = 0
        fresh = self._folder / INCOMING / secrets.token_hex(16)
        # Each step has a descriptor of its own: a thread goes on when its caller is cancelled, and
        # would write into whatever got the number of a descriptor that was closed meanwhile.
        try:
            await self._run(key, _touch, fresh)
            async for part in parts:
                await self._run(key, _append, fresh, part)
                size += len(part)
            await self._run(key, self._place_synced, fresh, path)
        finally:
            fresh.unlink(missing_ok=True)
        return size

    async def get(self, key: str) -> bytes:
        return await self._run(key, self._find_path(key).read_bytes)

    async def get_range(self, key: str, start: int, length: int) -> bytes:
        path = self._find_path(key)

        def read() -> bytes:
            with path.open("rb") as file:
                file.seek(start)
                return file.read(length)

        data = await self._run(key, read)
        if len(data) < length:
            why = f"it ends before byte {start + length}"
            raise BlobDamagedError(key, self.place, why)
        return data

    async def find(self, key: str) -> BlobEntry | None:
        path = self._find_path(key)
        try:
            found = await self._run(key, path.stat)
        except BlobMissingError:
            return None
        return BlobEntry(key=key, size=found.st_size, modified_at=int(found.st_mtime))

    async def delete(self, key: str) -> None:
        path = self._find_path(key)

        def remove() -> None:
            path.unlink(missing_ok=True)
            sync_folder(path.parent)
            # Folders of days that are over: one that is not empty stays.
            with suppress(OSError):
                path.parent.rmdir()

        with suppress(BlobMissingError):
            await self._run(key, remove)

    async def iterate(self, prefix: str = "") -> AsyncIterator[BlobEntry]:
        top = self._folder / check_prefix(prefix)
        folders = [top]
        while folders:
            folder = folders.pop()
            with suppress(BlobMissingError):
                entries, inner = await self._run(str(folder), self._scan, folder)
                folders += inner
                for entry in entries:
                    yield entry

    async def check(self) -> None:
        def write() -> None:
            fresh = self._folder / INCOMING / secrets.token_hex(16)
            _touch(fresh)
            fresh.unlink()

        await self._run(INCOMING, write)

    def _scan(self, folder: Path) -> tuple[list[BlobEntry], list[Path]]:
        entries, inner = [], []
        with os.scandir(folder) as found:
            for each in found:
                if each.name.startswith("."):
                    continue
                if each.is_dir(follow_symlinks=False):
                    inner.append(Path(each.path))
                    continue
                key = str(Path(each.path).relative_to(self._folder))
                if not is_key(key):
                    continue
                with suppress(FileNotFoundError):
                    stat = each.stat(follow_symlinks=False)
                    entries.append(
                        BlobEntry(key=key, size=stat.st_size, modified_at=int(stat.st_mtime))
                    )
        return entries, inner

    def _refuse_reading(self, error: OSError) -> BlobsRefusedError:
        return BlobsRefusedError(
            f"cannot read {self.place}: {error.strerror}", hint="see spec.filestore.config.path"
        )

    def _is_ours(self, referred: Sequence[str]) -> bool:
        # A copy of a folder may be without the one for writing.
        return (self._folder / INCOMING).exists() or self._holds_any(referred)

    def _holds_any(self, keys: Sequence[str]) -> bool:
        return any((self._folder / key).exists() for key in keys if is_key(key))

    def _find_path(self, key: str) -> Path:
        return self._folder / check_key(key)

    @contextmanager
    def _writing(self, path: Path, *, replace: bool) -> Iterator[int]:
        fresh = self._folder / INCOMING / secrets.token_hex(16)
        descriptor = _create(fresh)
        try:
            yield descriptor
            os.fsync(descriptor)
            self._place(fresh, path, replace)
        finally:
            os.close(descriptor)
            fresh.unlink(missing_ok=True)

    def _place_synced(self, fresh: Path, path: Path) -> None:
        with _opened(fresh) as descriptor:
            os.fsync(descriptor)
        self._place(fresh, path, True)

    def _place(self, fresh: Path, path: Path, replace: bool) -> None:
        """Gives a written file its name. Raises FileExistsError for one that is taken."""
        while True:
            self._make_folders(path.parent)
            try:
                if replace:
                    fresh.replace(path)
                else:
                    path.hardlink_to(fresh)
            except FileNotFoundError:
                if fresh.exists():
                    continue  # the last object of its folder was deleted meanwhile, and it too
                raise
            sync_folder(path.parent)
            return

    def _make_folders(self, folder: Path) -> None:
        if folder == self._folder or folder.is_dir():
            return
        self._make_folders(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)
        sync_folder(folder.parent)

    def _remove_leftovers(self) -> None:
        with os.scandir(self._folder / INCOMING) as found:
            for each in found:
                with suppress(FileNotFoundError):
                    if time.time() - each.stat(follow_symlinks=False).st_mtime > LEFT_SECONDS:
                        Path(each.path).unlink()

    async def _run(
        self, key: str, work: Callable[P, T], *arguments: P.args, **options: P.kwargs
    ) -> T:
        """Runs file operations in a thread, and turns their errors into sentences."""
        try:
            return await asyncio.to_thread(work, *arguments, **options)
        except FileExistsError:
            raise BlobsRefusedError(f"the object {key!r} is in {self.place} already") from None
        except (FileNotFoundError, NotADirectoryError) as error:
            # Of a share that is not mounted the place where it was is there, and empty.
            if not (self._folder / INCOMING).is_dir():
                raise BlobsUnavailableError(
                    f"{self.place} is gone", hint="mount it again, or restore it from a backup"
                ) from error
            raise BlobMissingError(key, self.place) from None
        except OSError as error:
            raise BlobsUnavailableError(
                f"cannot use the object {key!r} in {self.place}: {error.strerror}",
                hint=HINTS.get(error.errno or 0, "see the state of its disk"),
            ) from error


def _create(path: Path) -> int:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
    return os.open(path, flags, 0o600)


def _touch(path: Path) -> None:
    os.close(_create(path))


def _append(path: Path, data: bytes) -> None:
    with _opened(path) as descriptor:
        _write(descriptor, data)


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    flags = os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
    descriptor = os.open(path, flags)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _write(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
