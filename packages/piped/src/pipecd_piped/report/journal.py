# SPDX-License-Identifier: Apache-2.0
"""The journal of the outbox: reports that are not delivered yet, durable on disk.

One file to which records are only appended until nothing is queued any more. Each record has its
length and a checksum before it; a report's record is followed later by one that marks it as
delivered. An incomplete record at the end, left by a crash or a power cut, is dropped.

Memory holds only the position of each report, so that many can be queued for a day. A disk that
fails or is full is a state (`fault`), not an error: reports are then queued in memory alone, and
the whole journal is rewritten as soon as the disk works again.
"""

import asyncio
import json
import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from google.protobuf import descriptor_pool, message_factory
from google.protobuf.message import DecodeError, Message

from pipecd_model.errors import StateError
from pipecd_piped.report import frames
from pipecd_runtime.logs import logger

log = logger(__name__)

START_OVER: Final = 256 * 1024
"""Bytes after which a journal with no queued reports is truncated."""

REWRITE: Final = 16 * 1024 * 1024
"""Bytes after which a journal with few queued reports is rewritten."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundReport:
    """A report that an earlier piped has not delivered."""

    number: int
    lane: str


@dataclass(frozen=True, slots=True)
class RecordPosition:
    """The position of a report's record in the file."""

    start: int
    length: int


class Journal:
    """Keeps reports on disk. Only one process may use the folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.fault = ""
        """Why the disk cannot be written, empty when it can."""
        self._file = folder / "journal"
        self._descriptor = -1
        self._size = 0
        self._number = 0
        self._records: dict[int, RecordPosition | bytes] = {}
        self._waiting = 0
        self._written = self._synced = 0
        self._syncing = asyncio.Lock()

    def open(self) -> list[FoundReport]:
        """Open the file; returns the backlog of an earlier piped, the oldest report first."""
        lanes: dict[int, str] = {}
        try:
            if self._file.exists():
                self._descriptor = os.open(self._file, os.O_RDONLY | os.O_CLOEXEC)
                self._size = os.fstat(self._descriptor).st_size
            whole = 0
            for end, record in frames.records(self._descriptor, 0, self._size):
                self._find(record, end, lanes)
                whole = end
        except OSError as error:
            raise StateError(
                f"cannot read {str(self._file)!r}: {error.strerror}",
                hint="it holds what the control plane was not told yet; repair the disk",
            ) from error
        if whole < self._size:
            log.warning("outbox.tail_cut", file=str(self._file), bytes=self._size - whole)
        self._rewrite()
        return [FoundReport(number=number, lane=lanes[number]) for number in self._records]

    def close(self) -> None:
        """Close the file; what is queued stays in it."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def put(self, lane: str, method: str, request: Message) -> int:
        """Append a report and return its number. It survives a crash of this process at once."""
        self._number += 1
        about = {
            "number": self._number,
            "lane": lane,
            "method": method,
            "type": request.DESCRIPTOR.full_name,
        }
        record = json.dumps(about).encode() + b"\n" + request.SerializeToString()
        self._records[self._number] = record
        self._waiting += len(record)
        self._append(record, self._number)
        return self._number

    def read(self, number: int) -> tuple[str, Message] | None:
        """Returns the method and request of a report; None when this piped does not know its type.

        Raises OSError.
        """
        record = self._record(self._records[number])
        about = _about(record)
        try:
            kind = descriptor_pool.Default().FindMessageTypeByName(about["type"])
            request = message_factory.GetMessageClass(kind)()
            request.ParseFromString(record.partition(b"\n")[2])
        except (KeyError, DecodeError) as error:
            # Written by a newer piped: this one cannot send it.
            log.error("outbox.unknown_report", method=about["method"], reason=str(error))  # noqa: TRY400
            return None
        return about["method"], request

    def mark_delivered(self, number: int) -> None:
        """Drop a report that is delivered, or refused for good."""
        self._waiting -= _length(self._records.pop(number))
        self._append(json.dumps({"taken": number}).encode() + b"\n")

    async def sync(self) -> None:
        """Wait until all that was put so far survives a power cut, or `fault` is set.

        Concurrent callers share one sync.
        """
        wanted = self._written
        async with self._syncing:
            if self._synced >= wanted or self.fault:
                return
            reached = self._written
            try:
                # Its own descriptor: the file may be replaced meanwhile.
                await asyncio.to_thread(frames.sync, os.dup(self._descriptor))
            except OSError as error:
                self._fail(error)
            else:
                self._synced = max(self._synced, reached)

    def recover(self) -> None:
        """Rewrite the journal after a fault, to see whether the disk works again."""
        if self.fault:
            self._rewrite()

    def _append(self, record: bytes, number: int = 0) -> None:
        self._written += 1
        if self.fault:
            return
        try:
            if not self._records and self._size > START_OVER:
                os.ftruncate(self._descriptor, 0)
                self._size = 0
            elif self._size > REWRITE and self._size > 4 * self._waiting:
                self._rewrite()
            else:
                frames.write(self._descriptor, frames.make_frame(record))
                if number:
                    self._records[number] = RecordPosition(
                        self._size + frames.HEAD.size, len(record)
                    )
                self._size += frames.HEAD.size + len(record)
        except OSError as error:
            # Half a record behind good ones would hide all that comes after it.
            with suppress(OSError):
                os.ftruncate(self._descriptor, self._size)
            self._fail(error)

    def _rewrite(self) -> None:
        """Write all queued reports to a new file, and replace the old one with it."""
        new = self.folder / "journal.new"
        descriptor = -1
        places: dict[int, RecordPosition | bytes] = {}
        size = 0
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC
            descriptor = os.open(new, flags, 0o600)
            for number, held in self._records.items():
                record = self._record(held)
                frames.write(descriptor, frames.make_frame(record))
                places[number] = RecordPosition(size + frames.HEAD.size, len(record))
                size += frames.HEAD.size + len(record)
            os.fsync(descriptor)
            new.replace(self._file)
            frames.sync_folder(self.folder)
        except OSError as error:
            if descriptor >= 0:
                os.close(descriptor)
            with suppress(OSError):
                new.unlink()
            self._fail(error)
            return
        self.close()
        self._descriptor, self._size, self._records = descriptor, size, places
        self._synced = self._written
        if self.fault:
            self.fault = ""
            log.info("outbox.disk_back", folder=str(self.folder))

    def _record(self, held: RecordPosition | bytes) -> bytes:
        if isinstance(held, bytes):
            return held
        return os.pread(self._descriptor, held.length, held.start)

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

    def _find(self, record: bytes, end: int, lanes: dict[int, str]) -> None:
        about = _about(record)
        if "taken" in about:
            if (place := self._records.pop(about["taken"], None)) is not None:
                self._waiting -= _length(place)
                del lanes[about["taken"]]
        else:
            number = about["number"]
            self._records[number] = RecordPosition(end - len(record), len(record))
            self._waiting += len(record)
            self._number = max(self._number, number)
            lanes[number] = about["lane"]


def _about(record: bytes) -> dict[str, Any]:
    about: dict[str, Any] = json.loads(record.partition(b"\n")[0])
    return about


def _length(held: RecordPosition | bytes) -> int:
    return len(held) if isinstance(held, bytes) else held.length
