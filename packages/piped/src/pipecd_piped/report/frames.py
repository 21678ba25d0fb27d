# SPDX-License-Identifier: Apache-2.0
"""The file format of records: length, checksum, bytes. A truncated record is detected."""

import os
import struct
import zlib
from collections.abc import Iterator
from typing import Final

HEAD: Final = struct.Struct(">II")
"""The header of a record: its length and checksum."""

READ_AT_ONCE: Final = 1024 * 1024


def make_frame(record: bytes) -> bytes:
    """Returns a record with its header, as it is written to a file."""
    return HEAD.pack(len(record), zlib.crc32(record)) + record


def records(descriptor: int, start: int, end: int) -> Iterator[tuple[int, bytes]]:
    """Yields the complete records from offset `start` on, each with the offset where it ends.

    Stops before the first record that is incomplete or damaged. A large file is read in pieces.
    """
    data, base, at = b"", start, start
    while at + HEAD.size <= end:
        inside = at - base
        wanted = HEAD.size
        if len(data) >= inside + wanted:
            wanted += HEAD.unpack_from(data, inside)[0]
        if at + wanted > end:
            return
        if len(data) < inside + wanted:
            data, base = os.pread(descriptor, max(wanted, READ_AT_ONCE), at), at
            if len(data) < wanted:
                return
            continue
        length, checksum = HEAD.unpack_from(data, inside)
        record = data[inside + HEAD.size : inside + wanted]
        # No record is empty: the null bytes that a power cut may leave end here.
        if not length or zlib.crc32(record) != checksum:
            return
        at += wanted
        yield at, record


def write(descriptor: int, data: bytes) -> None:
    """Write all of the data, repeating partial writes. Raises OSError."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def sync(descriptor: int) -> None:
    """Sync a file to disk, so that it survives a power cut, and close the descriptor."""
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_folder(folder: str | os.PathLike[str]) -> None:
    """Sync the names in a folder to disk, so that new files survive a power cut."""
    sync(os.open(folder, os.O_RDONLY | os.O_DIRECTORY))
