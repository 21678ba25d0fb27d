# SPDX-License-Identifier: Apache-2.0
"""Backup of a data folder while a server uses it, and restore.

SQLite copies the database as of one moment, without blocking a running server. The backup is one
archive that also holds the keys of the folder, so that what is encrypted with them can be decrypted
again: keep it as safe as the folder itself. Objects of the blob store that the copied rows refer to
follow, see `backup_objects`.
"""

import contextlib
import hashlib
import io
import os
import sqlite3
import tarfile
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

import msgspec

from pipecd_controlplane.store.backup import Backup
from pipecd_controlplane.store.blobs.config import FOLDER_NAME
from pipecd_controlplane.store.data_folder import owned
from pipecd_controlplane.store.schema import SCHEMA_VERSION
from pipecd_controlplane.store.sqlite.backup_objects import (
    add_member,
    extract_member,
    leave_objects_to_others,
    open_member,
    pack_objects,
    unpack_objects,
)
from pipecd_controlplane.store.sqlite.file import (
    APPLICATION_ID,
    COMPANIONS,
    DATABASE_FILE,
    connect,
)
from pipecd_controlplane.store.sqlite.schema_check import refuse_acting_schema
from pipecd_model.errors import ConfigError, ConflictError, NotFoundError, StateError
from pipecd_runtime.files import sync_folder

MANIFEST: Final = "manifest.json"
FORMAT: Final = 1
KEYS: Final = ("admin.key", "admin.password", "encryption.key")
"""Small files of the folder that belong to the data."""

LARGEST_KEY: Final = 64 * 1024


class BackupManifest(msgspec.Struct, frozen=True, kw_only=True):
    """The description of an archive that is stored in it."""

    format: int
    created_at: int = 0
    schema: int = 0
    size: int = 0
    sha256: dict[str, str] = {}


def backup(folder: Path, target: Path, *, now: int, blobs: Path | None = None) -> Backup:
    """Copies the folder into an archive, also while a server runs in it.

    `blobs` is the folder of its objects; None leaves them to a store that has its own backups.
    Raises ConflictError when the target exists, NotFoundError when there is no database.
    """
    source_path = folder / DATABASE_FILE
    if not source_path.exists():
        raise NotFoundError(
            f"there is no database in {str(folder)!r}",
            hint="name the folder of the server; rows in PostgreSQL are copied by pg_dump",
        )
    if target.exists():
        raise ConflictError(f"the file {str(target)!r} exists already", hint="choose another name")
    try:
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=".pipecd-backup-") as scratch:
            copy = Path(scratch) / DATABASE_FILE
            _copy_database(source_path, copy)
            schema = _check(copy)
            archive = Path(scratch) / "archive"
            made = Backup(created_at=now, schema=schema, size=copy.stat().st_size)
            made = _pack(folder, copy, blobs, archive, made)
            archive.replace(target)
            sync_folder(target.parent)
    except sqlite3.Error as error:
        raise StateError(f"cannot copy the database {str(source_path)!r}: {error}") from error
    except OSError as error:
        raise StateError(
            f"cannot write {str(target)!r}: {error.strerror}",
            hint="see that its disk has free space and that this user may write there",
        ) from error
    return made


def restore(archive: Path, folder: Path) -> Backup:
    """Restores an archive into a data folder.

    Raises ConflictError when the folder holds a database, StateError when it is in use.
    """
    with owned(folder):
        if (folder / DATABASE_FILE).exists():
            raise ConflictError(
                f"the folder {str(folder)!r} holds a database already",
                hint="name an empty folder, or move the old one away",
            )
        if left := [name for name in COMPANIONS if (folder / name).exists()]:
            raise ConflictError(
                f"the folder {str(folder)!r} holds {left[0]!r} of a database that is not there",
                hint="move it to the database that it belongs to, or name an empty folder",
            )
        if (folder / FOLDER_NAME).exists() and any((folder / FOLDER_NAME).iterdir()):
            raise ConflictError(
                f"the folder {str(folder)!r} holds objects of another database",
                hint=f"move {FOLDER_NAME!r} away, or name an empty folder",
            )
        try:
            with (
                tempfile.TemporaryDirectory(dir=folder, prefix=".restore-") as scratch,
                _opened(archive) as packed,
            ):
                made = _unpack(archive, packed, Path(scratch))
                schema = _check(Path(scratch) / DATABASE_FILE)
                if schema > SCHEMA_VERSION:
                    raise StateError(
                        f"the backup has schema {schema}, this pipecd knows {SCHEMA_VERSION}",
                        hint="use the pipecd that made it, or a newer one",
                    )
                unpacked = unpack_objects(packed, Path(scratch))
                made = replace(
                    made,
                    objects=unpacked.found,
                    lost=unpacked.lost,
                    keeps_objects=leave_objects_to_others(Path(scratch), unpacked),
                )
                # The database last: a folder without it is an empty one.
                for name in (*KEYS, FOLDER_NAME, DATABASE_FILE):
                    part = Path(scratch) / name
                    if part.exists():
                        part.replace(folder / name)
                sync_folder(folder)
        except (OSError, tarfile.TarError, sqlite3.Error, ValueError, KeyError) as error:
            raise StateError(f"cannot restore {str(archive)!r}: {error}") from error
    return made


def _copy_database(source_path: Path, copy: Path) -> None:
    with (
        contextlib.closing(connect(source_path, read_only=True)) as source,
        contextlib.closing(connect(copy)) as target,
    ):
        copy.chmod(0o600)
        source.backup(target)
        # One file, without the companions of a running server.
        target.execute("PRAGMA journal_mode = DELETE")


def _check(path: Path) -> int:
    """Returns the schema version of a database. Raises StateError when it is damaged or foreign."""
    with contextlib.closing(connect(path, read_only=True)) as connection:
        refuse_acting_schema(connection)
        found = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
        if found != "ok":
            raise StateError(f"the copy is damaged: {found}")
        if connection.execute("PRAGMA application_id").fetchone()[0] != APPLICATION_ID:
            raise StateError("the copy is of a database that another program made")
        return int(connection.execute("PRAGMA user_version").fetchone()[0])


def _pack(folder: Path, copy: Path, blobs: Path | None, archive: Path, made: Backup) -> Backup:
    parts = {name: folder / name for name in KEYS if (folder / name).is_file()}
    sums = {name: _sum(path) for name, path in {**parts, DATABASE_FILE: copy}.items()}
    manifest = BackupManifest(
        format=FORMAT,
        created_at=made.created_at,
        schema=made.schema,
        size=made.size,
        sha256=sums,
    )
    descriptor = os.open(archive, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        with tarfile.open(fileobj=file, mode="w|") as packed:
            text = msgspec.json.format(msgspec.json.encode(manifest), indent=1)
            add_member(packed, MANIFEST, io.BytesIO(text), len(text))
            for name, path in {**parts, DATABASE_FILE: copy}.items():
                with path.open("rb") as part:
                    add_member(packed, name, part, path.stat().st_size)
            if blobs is not None:
                # After the rows: they never change, and what is new since then is not referred to.
                packing = pack_objects(packed, copy, blobs)
                made = replace(
                    made,
                    objects=packing.found,
                    lost=packing.lost,
                    keeps_objects=packing.has_other_store,
                )
        file.flush()
        os.fsync(file.fileno())
    return made


@contextlib.contextmanager
def _opened(archive: Path) -> Iterator[tarfile.TarFile]:
    if not archive.is_file():
        raise NotFoundError(f"there is no file {str(archive)!r}")
    try:
        packed = tarfile.open(archive, mode="r:")  # noqa: SIM115 - closed below
    except tarfile.TarError as error:
        raise ConfigError(f"the file {str(archive)!r} is no backup of ours: {error}") from error
    with packed:
        yield packed


def _unpack(archive: Path, packed: tarfile.TarFile, scratch: Path) -> Backup:
    """Extracts the known files of an archive and checks their sums; returns what it holds.

    Other names in the archive are ignored: they are not to be trusted.
    """
    # A file of one piece is no larger than the archive; a sparse one could fill any disk.
    held = {member.name: member for member in packed if member.isreg() and not member.issparse()}
    if MANIFEST not in held or DATABASE_FILE not in held:
        raise _foreign(archive)
    try:
        content = open_member(packed, held[MANIFEST]).read(LARGEST_KEY)
        manifest = msgspec.json.decode(content, type=BackupManifest)
    except (msgspec.DecodeError, RecursionError):
        raise _foreign(archive) from None
    if manifest.format != FORMAT:
        raise ConfigError(f"the file {str(archive)!r} has a format that this pipecd does not know")
    for name in (*KEYS, DATABASE_FILE):
        if name not in held:
            continue
        if name in KEYS and held[name].size > LARGEST_KEY:
            raise _foreign(archive)
        target = scratch / name
        extract_member(packed, held[name], target)
        if _sum(target) != manifest.sha256.get(name):
            raise StateError(
                f"the file {str(archive)!r} is damaged: {name} is not as it was packed",
                hint="use another copy of it",
            )
    return Backup(created_at=manifest.created_at, schema=manifest.schema, size=manifest.size)


def _foreign(archive: Path) -> ConfigError:
    return ConfigError(f"the file {str(archive)!r} is no backup of ours")


def _sum(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
