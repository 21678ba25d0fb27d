# SPDX-License-Identifier: Apache-2.0
"""The spool of one stage: its undelivered log lines in files, the oldest first.

A new file is begun when the last one is large, and deleted when all of it has been delivered, so
that the disk holds only undelivered lines. A written line survives a crash of piped at once, and a
power cut after the next `sync`. Each file begins with the key of its stage.

Delivered lines are not recorded: after a crash the first file is sent again from its start, and the
control plane recognizes repeated lines by their index.
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

from pipecd_piped.report import frames

LARGEST_FILE: Final = 4 * 1024 * 1024
"""Bytes after which a new file is begun."""


class StageKey(NamedTuple):
    """Identifies the log of one try of a stage."""

    deployment_id: str
    stage_id: str
    retried_count: int = 0


class ChunkKind(Enum):
    """The kind of a record, from its first byte."""

    KEY = b"k"
    LINES = b"l"
    CHECKPOINT = b"c"
    END = b"e"


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """Records that are sent in one request."""

    kind: ChunkKind
    payload: bytes
    """Serialized messages, concatenated: protobuf parses them as one message with all lines."""
    end: int
    """The offset of the next chunk in the first file."""


@dataclass(slots=True)
class File:
    """A file of the spool, with its size and how much of it is synced."""

    path: Path
    size: int
    synced: int = 0


class Spool:
    """The undelivered lines of one stage. Methods block only for the disk."""

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
        """Whether a part of a file was damaged and its lines are lost."""

    @property
    def size(self) -> int:
        """The bytes that are not delivered yet."""
        return self._total - self._read

    @property
    def is_synced(self) -> bool:
        return all(each.synced >= each.size for each in self._files)

    def append(self, records: Iterable[tuple[ChunkKind, bytes]]) -> None:
        """Append all records or, when the disk fails, none. Raises OSError."""
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
        """Returns the next chunk to send: one checkpoint, or lines of up to `most` bytes."""
        while self._files:
            if (found := self._next_in_first(most)) is not None:
                return found
            first = self._files[0]
            self.is_broken = self.is_broken or self._read < first.size
            self._drop_first()
        return None

    def mark_delivered(self, chunk: Chunk) -> None:
        """Drop a chunk that is delivered, or refused for good."""
        self._read = chunk.end
        if self._read >= self._files[0].size:
            self._drop_first()

    def sync(self) -> None:
        """Sync undelivered lines to disk, so that they survive a power cut; may run in a thread.

        Raises OSError.
        """
        for each in tuple(self._files):
            size = each.size
            if each.synced < size:
                with suppress(FileNotFoundError):  # delivered meanwhile
                    frames.sync(os.open(each.path, os.O_RDONLY | os.O_CLOEXEC))
                each.synced = size
        frames.sync_folder(self._folder)

    def close(self) -> None:
        """Close the last file; undelivered lines stay on disk."""
        if self._writing >= 0:
            os.close(self._writing)
            self._writing = -1

    def _begin_file(self, data: bytes) -> None:
        """Begin a new file with its first records; a failed write leaves no file."""
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
            with suppress(FileExistsError):  # delivered, but the disk did not let us delete it
                return os.open(path, flags, 0o600), path
            self._number += 1

    def _cut(self, last: File) -> None:
        """Truncate a partly written record, which would hide all records after it."""
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
    """Returns the spools that an earlier piped has left. Raises OSError."""
    files: dict[StageKey, list[File]] = {}
    paths = sorted(folder.iterdir()) if folder.exists() else []
    for path in filter(_is_ours, paths):
        file = File(path=path, size=path.stat().st_size)
        key = _key(file)
        if key is None:
            with suppress(OSError):
                path.unlink()  # a power cut came before anything of it was synced
        else:
            files.setdefault(key, []).append(file)
    return [Spool(folder, key, found, largest_file=largest_file) for key, found in files.items()]


def probe(folder: Path, size: int) -> None:
    """Write and delete a file of `size` bytes, to test the disk. Raises OSError."""
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
    """Returns a file name for a stage: a hash, because an id may be no valid file name."""
    return hashlib.sha256("\0".join(map(str, key)).encode()).hexdigest()[:32]


def _is_ours(path: Path) -> bool:
    return re.fullmatch(r"[0-9a-f]{32}-[0-9]{8,}", path.name) is not None


def _number(path: Path) -> int:
    return int(path.name.rpartition("-")[2])
