# SPDX-License-Identifier: Apache-2.0
"""The objects of a backup: those that its rows refer to, from a folder into the archive and back.

Rows are copied first. An object never changes, so it is the one that the row means whenever it is
copied; one that retention has deleted meanwhile is missing in the archive, and counted.
"""

import contextlib
import hashlib
import io
import os
import sqlite3
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from pipecd_controlplane.store.blobs.blob_store import BlobRef, check_key, is_key
from pipecd_controlplane.store.blobs.config import FOLDER_NAME
from pipecd_controlplane.store.blobs.mark import MARK, make_mark_key
from pipecd_controlplane.store.kept_objects import KEEPS_OBJECTS, YES
from pipecd_controlplane.store.spaces import SPACE
from pipecd_controlplane.store.sqlite.file import DATABASE_FILE, connect
from pipecd_model.errors import ConfigError, StateError
from pipecd_runtime.files import sync_folder

TABLES: Final = ("stage_log_object", "live_state", "shared_object")
VALUES: Final = "installation"
LARGEST_MARK: Final = 4096
BLOCK_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedObjects:
    """How many objects went into an archive, or came out of it."""

    found: int
    lost: int
    has_mark: bool = False
    """Whether the mark of the database is among them."""
    lacks_mark: bool = False
    """Whether the database has a mark, and it is not among them."""

    @property
    def has_other_store(self) -> bool:
        """Returns whether the database has its objects in another place than these are from.

        The mark decides: a move of objects leaves them where they were, and takes the mark away.
        """
        return self.lacks_mark or (self.lost > 0 and not self.found and not self.has_mark)


def pack_objects(packed: tarfile.TarFile, database: Path, blobs: Path) -> PackedObjects:
    """Adds the objects that a copy of the database refers to."""
    key = _read_mark_key(database)
    has_mark = _pack_mark(packed, key, blobs)
    found = lost = 0
    for ref in _list_refs(database):
        try:
            with (blobs / ref.key).open("rb") as file:
                if os.fstat(file.fileno()).st_size != ref.size:
                    lost += 1
                    continue
                content = _SummedFile(file)
                add_member(packed, _name(ref.key), content, ref.size)
        except FileNotFoundError:
            lost += 1
            continue
        if content.sha256 == ref.sha256:
            found += 1
        else:
            lost += 1  # a restore leaves it out
    return _count(found, lost, key, has_mark=has_mark)


def unpack_objects(packed: tarfile.TarFile, scratch: Path) -> PackedObjects:
    """Extracts the objects that the extracted database refers to, and checks their sums.

    Other ones in the archive are ignored: they are not to be trusted.
    """
    held = {member.name: member for member in packed if member.isreg() and not member.issparse()}
    found = lost = 0
    folders: set[Path] = set()
    for ref in _list_refs(scratch / DATABASE_FILE):
        member = held.get(_name(ref.key))
        if member is None or member.size != ref.size:
            lost += 1
            continue
        target = scratch / FOLDER_NAME / ref.key
        _make_folders(target.parent, scratch, folders)
        if extract_member(packed, member, target) == ref.sha256:
            found += 1
        else:
            target.unlink()
            lost += 1
    key = _read_mark_key(scratch / DATABASE_FILE)
    has_mark = _unpack_mark(key, held, packed, scratch, folders)
    for folder in folders:
        sync_folder(folder)
    return _count(found, lost, key, has_mark=has_mark)


def leave_objects_to_others(scratch: Path, unpacked: PackedObjects) -> bool:
    """Lets an extracted database delete no objects that are not in the archive with it.

    They are in a place that the server of before may still use; returns whether that is so. A
    database that has never had an object gets a space of its own in such a place instead.
    """
    keeps = unpacked.has_other_store
    if not keeps and (unpacked.found or unpacked.has_mark):
        return False
    with contextlib.closing(connect(scratch / DATABASE_FILE)) as connection:
        if not _has_column(connection, VALUES, "value"):
            return False
        if keeps:
            connection.execute(
                f"INSERT OR REPLACE INTO {VALUES} (name, value) VALUES (?, ?)",  # noqa: S608 - ours
                (KEEPS_OBJECTS, YES),
            )
        else:
            connection.execute(f"DELETE FROM {VALUES} WHERE name = ?", (SPACE,))  # noqa: S608 - ours
    return keeps


def _count(found: int, lost: int, key: str, *, has_mark: bool) -> PackedObjects:
    return PackedObjects(
        found=found, lost=lost, has_mark=has_mark, lacks_mark=bool(key) and not has_mark
    )


def _pack_mark(packed: tarfile.TarFile, key: str, blobs: Path) -> bool:
    """Adds the mark by which the database knows this folder; returns whether it is there."""
    if not key:
        return False
    try:
        content = (blobs / key).read_bytes()
    except FileNotFoundError:
        return False
    add_member(packed, _name(key), io.BytesIO(content), len(content))
    return True


def _unpack_mark(
    key: str,
    held: dict[str, tarfile.TarInfo],
    packed: tarfile.TarFile,
    scratch: Path,
    folders: set[Path],
) -> bool:
    """Extracts the mark; returns whether it is in the archive."""
    member = held.get(_name(key))
    if not key or member is None or member.size > LARGEST_MARK:
        return False
    target = scratch / FOLDER_NAME / key
    _make_folders(target.parent, scratch, folders)
    extract_member(packed, member, target)
    return True


def add_member(
    packed: tarfile.TarFile, name: str, content: "IO[bytes] | _SummedFile", size: int
) -> None:
    info = tarfile.TarInfo(name)
    info.size, info.mode = size, 0o600
    packed.addfile(info, content)


def extract_member(packed: tarfile.TarFile, member: tarfile.TarInfo, target: Path) -> str:
    """Writes a file of the archive, which must not be there yet; returns its checksum."""
    total = hashlib.sha256()
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file, open_member(packed, member) as content:
        while block := content.read(BLOCK_BYTES):
            total.update(block)
            file.write(block)
        file.flush()
        os.fsync(file.fileno())
    return total.hexdigest()


def open_member(packed: tarfile.TarFile, member: tarfile.TarInfo) -> IO[bytes]:
    content = packed.extractfile(member)
    if content is None:
        raise ConfigError(f"{member.name} in the archive is not a file")
    return content


class _SummedFile:
    """A file that is read once, and sums what it reads."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._total = hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(size)
        self._total.update(data)
        return data

    @property
    def sha256(self) -> str:
        return self._total.hexdigest()


def _name(key: str) -> str:
    return f"{FOLDER_NAME}/{key}"


def _read_mark_key(database: Path) -> str:
    """Returns the key of the mark of a database; empty when it has none."""
    with contextlib.closing(connect(database, read_only=True)) as connection:
        if not _has_column(connection, VALUES, "value"):
            return ""
        query = f"SELECT value FROM {VALUES} WHERE name = ?"  # noqa: S608 - ours
        row = connection.execute(query, (MARK,)).fetchone()
    key = "" if row is None else make_mark_key(str(row[0]))
    return key if is_key(key) else ""


def _has_column(connection: sqlite3.Connection, table: str, name: str) -> bool:
    query = "SELECT 1 FROM pragma_table_info(?) WHERE name = ?"
    return connection.execute(query, (table, name)).fetchone() is not None


def _list_refs(database: Path) -> Iterator[BlobRef]:
    """Yields what the rows refer to; a database of an older pipecd has fewer tables that do."""
    with contextlib.closing(connect(database, read_only=True)) as connection:
        for table in TABLES:
            if _has_column(connection, table, "object_key"):
                yield from _list_refs_of(connection, table)


def _list_refs_of(connection: sqlite3.Connection, table: str) -> Iterator[BlobRef]:
    wanted = "object_key <> ''"
    if _has_column(connection, table, "data"):
        # A pipecd that knows of no objects replaces the value alone, see `sealed_values`.
        wanted += " AND lower(hex(data)) = sha256"
    rows = connection.execute(
        f"SELECT object_key, size, sha256 FROM {table} WHERE {wanted}"  # noqa: S608 - ours
    )
    for key, size, sha256 in rows:
        try:
            yield BlobRef(key=check_key(str(key)), size=int(size), sha256=str(sha256))
        except ValueError as error:
            raise StateError(
                f"the database refers to {error}", hint="use a backup that you trust"
            ) from error


def _make_folders(folder: Path, top: Path, made: set[Path]) -> None:
    """Makes a folder and those between it and the top, for this user alone."""
    if folder == top or folder in made:
        return
    _make_folders(folder.parent, top, made)
    folder.mkdir(mode=0o700, exist_ok=True)
    made.add(folder)
