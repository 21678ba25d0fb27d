# SPDX-License-Identifier: Apache-2.0
"""How records stand in a file: length, checksum, bytes. What was cut off is seen, never guessed."""

import os
import struct
import zlib
from collections.abc import Iterator
from typing import Final

HEAD: Final = struct.Struct(">II")
"""Length and checksum of the record behind it."""

READ_AT_ONCE: Final = 1024 * 1024


def make_frame(record: bytes) -> bytes:
    """Returns a record as it stands in a file: with its length and checksum before it."""
    return HEAD.pack(len(record), zlib.crc32(record)) + record


def records(descriptor: int, start: int, end: int) -> Iterator[tuple[int, bytes]]:
    """The whole records from a place on, each with the place where it ends.

    They end before the first that is not whole. A large file is read piece by piece.
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
        # No record is empty: a file that the system has filled with nulls ends here.
        if not length or zlib.crc32(record) != checksum:
            return
        at += wanted
        yield at, record


def write(descriptor: int, data: bytes) -> None:
    """Write everything."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def sync(descriptor: int) -> None:
    """See to it that a file survives the end of the machine, and close the descriptor."""
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_folder(folder: str | os.PathLike[str]) -> None:
    """The same for the names in a folder."""
    sync(os.open(folder, os.O_RDONLY | os.O_DIRECTORY))
