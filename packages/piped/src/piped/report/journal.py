# SPDX-License-Identifier: Apache-2.0
"""The journal of the outbox: reports that the control plane has not taken, kept on disk.

One file that only grows until nothing waits any more. Each record has its length and a checksum
before it; a report's record is followed, sooner or later, by one that says it was taken. What a
death or a power cut left half written at the end is cut off, never guessed.

A disk that takes nothing is a state with a sentence, not an error: reports then wait in memory
alone, and the whole journal is written anew as soon as the disk takes it.
"""

import asyncio
import json
import os
import struct
import zlib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from google.protobuf import descriptor_pool, message_factory
from google.protobuf.message import DecodeError, Message

from pipecd_model.errors import StateError
from piped.oplog import logger

log = logger(__name__)

HEAD: Final = struct.Struct(">II")
"""Length and checksum of the record behind it."""

START_OVER: Final = 256 * 1024
"""Bytes after which a journal in which nothing waits is emptied."""

REWRITE: Final = 16 * 1024 * 1024
"""Bytes after which one in which little waits is written anew."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """A report as it was found."""

    number: int
    lane: str
    method: str
    request: Message


class Journal:
    """Keeps reports on disk. One process has the folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.fault = ""
        """Why the disk takes nothing, empty when it does."""
        self._file = folder / "journal"
        self._descriptor = -1
        self._size = 0
        self._number = 0
        self._records: dict[int, bytes] = {}
        self._written = self._synced = 0
        self._syncing = asyncio.Lock()

    def open(self) -> list[Kept]:
        """What an earlier piped has not been able to tell, the oldest first."""
        try:
            data = self._file.read_bytes() if self._file.exists() else b""
        except OSError as error:
            raise StateError(
                f"cannot read {str(self._file)!r}: {error.strerror}",
                hint="it holds what the control plane was not told yet; repair the disk",
            ) from error
        whole = 0
        for end, record in _records(data):
            self._take(record)
            whole = end
        if whole < len(data):
            log.warning("outbox.tail_cut", file=str(self._file), bytes=len(data) - whole)
        kept = [each for record in self._records.values() if (each := _kept(record)) is not None]
        self._rewrite()
        return kept

    def close(self) -> None:
        """Let go of the file."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def put(self, lane: str, method: str, request: Message) -> int:
        """Keep a report; the value is its number. It survives the end of this process at once."""
        self._number += 1
        about = {
            "number": self._number,
            "lane": lane,
            "method": method,
            "type": request.DESCRIPTOR.full_name,
        }
        record = json.dumps(about).encode() + b"\n" + request.SerializeToString()
        self._records[self._number] = record
        self._append(record)
        return self._number

    def taken(self, number: int) -> None:
        """A report need not be kept any more."""
        del self._records[number]
        self._append(json.dumps({"taken": number}).encode() + b"\n")

    async def sync(self) -> None:
        """Return when all that was put so far survives the end of the machine, or `fault` is set.

        Those who wait at the same time share one sync.
        """
        wanted = self._written
        async with self._syncing:
            if self._synced >= wanted or self.fault:
                return
            reached = self._written
            try:
                # Its own descriptor: the file may be replaced meanwhile.
                await asyncio.to_thread(_sync, os.dup(self._descriptor))
            except OSError as error:
                self._fail(error)
            else:
                self._synced = max(self._synced, reached)

    def recover(self) -> None:
        """Try the disk again after a fault."""
        if self.fault:
            self._rewrite()

    def _append(self, record: bytes) -> None:
        self._written += 1
        if self.fault:
            return
        try:
            if not self._records and self._size > START_OVER:
                os.ftruncate(self._descriptor, 0)
                self._size = 0
            elif self._size > REWRITE and self._size > 4 * sum(map(len, self._records.values())):
                self._rewrite()
            else:
                framed = _framed(record)
                _write(self._descriptor, framed)
                self._size += len(framed)
        except OSError as error:
            # Half a record behind good ones would hide all that comes after it.
            with suppress(OSError):
                os.ftruncate(self._descriptor, self._size)
            self._fail(error)

    def _rewrite(self) -> None:
        """Write all that waits into a new file and put it in the old one's place."""
        new = self.folder / "journal.new"
        descriptor = -1
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC
            descriptor = os.open(new, flags, 0o600)
            content = b"".join(map(_framed, self._records.values()))
            _write(descriptor, content)
            os.fsync(descriptor)
            new.replace(self._file)
            _sync(os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY))
        except OSError as error:
            if descriptor >= 0:
                os.close(descriptor)
            with suppress(OSError):
                new.unlink()
            self._fail(error)
            return
        self.close()
        self._descriptor, self._size = descriptor, len(content)
        self._synced = self._written
        if self.fault:
            self.fault = ""
            log.info("outbox.disk_back", folder=str(self.folder))

    def _fail(self, error: OSError) -> None:
        if not self.fault:
            self.fault = f"reports cannot be kept in {str(self.folder)!r}: {error.strerror}"
            log.error(
                "outbox.disk_fault",
                folder=str(self.folder),
                reason=error.strerror,
                hint="free or repair the disk; until then no stage starts before its"
                " reports have been taken",
            )

    def _take(self, record: bytes) -> None:
        about = _about(record)
        if "taken" in about:
            self._records.pop(about["taken"], None)
        else:
            self._records[about["number"]] = record
            self._number = max(self._number, about["number"])


def _framed(record: bytes) -> bytes:
    return HEAD.pack(len(record), zlib.crc32(record)) + record


def _records(data: bytes) -> Iterator[tuple[int, bytes]]:
    """The whole records from the start on, each with the place where it ends."""
    at = 0
    while at + HEAD.size <= len(data):
        length, checksum = HEAD.unpack_from(data, at)
        end = at + HEAD.size + length
        record = data[at + HEAD.size : end]
        # No record is empty: a file that the system has filled with nulls ends here.
        if not length or end > len(data) or zlib.crc32(record) != checksum:
            return
        yield end, record
        at = end


def _about(record: bytes) -> dict[str, Any]:
    about: dict[str, Any] = json.loads(record.partition(b"\n")[0])
    return about


def _kept(record: bytes) -> Kept | None:
    about = _about(record)
    try:
        kind = descriptor_pool.Default().FindMessageTypeByName(about["type"])
        request = message_factory.GetMessageClass(kind)()
        request.ParseFromString(record.partition(b"\n")[2])
    except (KeyError, DecodeError) as error:
        # Written by a newer piped: this one cannot tell it.
        log.error("outbox.unknown_report", method=about["method"], reason=str(error))  # noqa: TRY400
        return None
    return Kept(number=about["number"], lane=about["lane"], method=about["method"], request=request)


def _write(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]


def _sync(descriptor: int) -> None:
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
