# SPDX-License-Identifier: Apache-2.0
"""The lines of one stage that wait for the control plane, in files: the oldest first.

A file is begun when the last one is large, and removed when all of it has been taken, so that the
disk holds what waits and not what has been. A line that was written survives the end of piped at
once, and that of the machine after the next `sync`. Each file begins with whose log it is.

What was taken is not noted: after a kill the first file is sent again from its start, and the
control plane knows lines by their index.
"""

import hashlib
import json
import os
import re
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Final, NamedTuple

from piped.report import frames

LARGEST_FILE: Final = 4 * 1024 * 1024
"""Bytes after which another file is begun."""


class StageKey(NamedTuple):
    """Whose log it is."""

    deployment_id: str
    stage_id: str
    retried_count: int = 0


class ChunkKind(Enum):
    """What a record is, by its first byte."""

    KEY = b"k"
    LINES = b"l"
    CHECKPOINT = b"c"
    END = b"e"


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """Records that go into one request."""

    kind: ChunkKind
    payload: bytes
    """Messages that were written one after the other, which is one message with all their lines."""
    end: int
    """Where the next one begins, in the first file."""


@dataclass(slots=True)
class File:
    """A file, and how much of it is good."""

    path: Path
    size: int
    synced: int = 0


class Spool:
    """What waits of one stage. All methods are quick, but for a slow disk."""

    def __init__(
        self,
        folder: Path,
        key: StageKey,
        files: Iterable[File] = (),
        *,
        largest_file: int = LARGEST_FILE,
    ) -> None:
        self.key = key
        self._largest_file = largest_file
        self._folder = folder
        self._files = deque(files)
        self._number = max((_number(each.path) for each in self._files), default=0)
        self._total = sum(each.size for each in self._files)
        self._read = 0
        self._writing = -1
        self.is_broken = False
        """Did a part of it not survive?"""

    @property
    def size(self) -> int:
        """Bytes that wait."""
        return self._total - self._read

    @property
    def is_synced(self) -> bool:
        return all(each.synced >= each.size for each in self._files)

    def append(self, records: Iterable[tuple[ChunkKind, bytes]]) -> None:
        """Add records, all or none. Raises OSError."""
        data = b"".join(frames.make_frame(kind.value + payload) for kind, payload in records)
        if self._writing < 0 or self._files[-1].size >= self._largest_file:
            self._begin_file(data)
            return
        last = self._files[-1]
        try:
            frames.write(self._writing, data)
        except OSError:
            self._cut(last)
            raise
        last.size += len(data)
        self._total += len(data)

    def next(self, most: int) -> Chunk | None:
        """What goes into the next request: one checkpoint, or lines of up to `most` bytes."""
        while self._files:
            if (found := self._next_in_first(most)) is not None:
                return found
            first = self._files[0]
            self.is_broken = self.is_broken or self._read < first.size
            self._drop_first()
        return None

    def mark_delivered(self, chunk: Chunk) -> None:
        """The control plane has a chunk, or will never have it."""
        self._read = chunk.end
        if self._read >= self._files[0].size:
            self._drop_first()

    def sync(self) -> None:
        """See to it that what waits survives the end of the machine; may run in a thread.

        Raises OSError.
        """
        for each in tuple(self._files):
            size = each.size
            if each.synced < size:
                with suppress(FileNotFoundError):  # taken meanwhile
                    frames.sync(os.open(each.path, os.O_RDONLY | os.O_CLOEXEC))
                each.synced = size
        frames.sync_folder(self._folder)

    def close(self) -> None:
        """Write no more to the last file; what waits stays."""
        if self._writing >= 0:
            os.close(self._writing)
            self._writing = -1

    def _begin_file(self, data: bytes) -> None:
        """A new file appears with its first records in it, or not at all."""
        whole = frames.make_frame(ChunkKind.KEY.value + json.dumps(self.key).encode()) + data
        self._folder.mkdir(parents=True, exist_ok=True)
        descriptor, path = self._new_file()
        try:
            frames.write(descriptor, whole)
        except OSError:
            os.close(descriptor)
            with suppress(OSError):
                path.unlink()
            raise
        self.close()
        self._writing = descriptor
        self._files.append(File(path=path, size=len(whole)))
        self._total += len(whole)

    def _new_file(self) -> tuple[int, Path]:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
        while True:
            path = self._folder / f"{_name(self.key)}-{self._number + 1:08}"
            with suppress(FileExistsError):  # taken, on a disk that let nobody remove it
                return os.open(path, flags, 0o600), path
            self._number += 1

    def _cut(self, last: File) -> None:
        """Half a record would hide all that comes after it."""
        with suppress(OSError):
            os.ftruncate(self._writing, last.size)
        self.close()

    def _next_in_first(self, most: int) -> Chunk | None:
        first = self._files[0]
        kind, size, end = ChunkKind.LINES, 0, self._read
        payloads: list[bytes] = []
        for place, found, payload in _read(first.path, self._read, first.size):
            if found is ChunkKind.KEY:
                continue
            if payloads and (kind is not ChunkKind.LINES or found is not kind):
                break
            size += len(payload)
            if payloads and size > most:
                break
            kind, end = found, place
            payloads.append(payload)
        if not payloads:
            return None
        return Chunk(kind=kind, payload=b"".join(payloads), end=end)

    def _drop_first(self) -> None:
        first = self._files.popleft()
        self._total -= first.size
        self._read = 0
        if not self._files:
            self.close()
        with suppress(FileNotFoundError):
            first.path.unlink()


def _read(path: Path, start: int, end: int) -> Iterator[tuple[int, ChunkKind, bytes]]:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        for place, record in frames.records(descriptor, start, end):
            yield place, ChunkKind(record[:1]), record[1:]
    finally:
        os.close(descriptor)


def find_spools(folder: Path, *, largest_file: int = LARGEST_FILE) -> list[Spool]:
    """What an earlier piped has left. Raises OSError."""
    files: dict[StageKey, list[File]] = {}
    paths = sorted(folder.iterdir()) if folder.exists() else []
    for path in filter(_is_ours, paths):
        file = File(path=path, size=path.stat().st_size)
        key = _key(file)
        if key is None:
            with suppress(OSError):
                path.unlink()  # a machine has ended before anything of it was synced
        else:
            files.setdefault(key, []).append(file)
    return [Spool(folder, key, found, largest_file=largest_file) for key, found in files.items()]


def probe(folder: Path, size: int) -> None:
    """Write and remove a file of so many bytes. Raises OSError."""
    path = folder / "probe"
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        frames.write(descriptor, bytes(size))
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
        path.unlink()


def _key(file: File) -> StageKey | None:
    for _, _, payload in _read(file.path, 0, file.size):
        return StageKey(*json.loads(payload))
    return None


def _name(key: StageKey) -> str:
    """Ids come from plugins and files of people: not every one is a name for a file."""
    return hashlib.sha256("\0".join(map(str, key)).encode()).hexdigest()[:32]


def _is_ours(path: Path) -> bool:
    return re.fullmatch(r"[0-9a-f]{32}-[0-9]{8,}", path.name) is not None


def _number(path: Path) -> int:
    return int(path.name.rpartition("-")[2])
