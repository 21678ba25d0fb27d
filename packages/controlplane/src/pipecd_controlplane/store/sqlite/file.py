# SPDX-License-Identifier: Apache-2.0
"""The SQLite file: created at the first start; refused when it is another program's or damaged."""

import os
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Final

from google.protobuf.message import DecodeError
from sqlalchemy.engine import Dialect

from pipecd_controlplane.store import schema
from pipecd_controlplane.store.move_record import (
    MOVE_COLUMNS,
    MOVE_TABLE,
    READ_MOVE,
    MoveRecord,
    hint_migration,
    refuse_moved,
)
from pipecd_controlplane.store.sqlite.migrations import migrate
from pipecd_controlplane.store.sqlite.schema_check import refuse_acting_schema
from pipecd_model.errors import StateError

DATABASE_FILE: Final = "pipecd.db"
COMPANIONS: Final = tuple(f"{DATABASE_FILE}-{kind}" for kind in ("wal", "shm", "journal"))
"""Files of SQLite beside a database that was not closed: it would apply them to any other."""

# In the file's header; distinguishes our files from those of other programs. Reads "PiCD".
APPLICATION_ID: Final = 0x50694344

MAGIC: Final = b"SQLite format 3\x00"
HEADER_BYTES: Final = 100

CHECKED_SIZE: Final = 256 * 1024 * 1024
"""A file up to this size is checked as a whole at start (about a second); truncation is noticed at
any size."""

DISK_TROUBLE: Final = frozenset(
    {
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_PERM,
    }
)

BUSY_SECONDS: Final = 2.0


def connect(path: Path, *, read_only: bool = False) -> sqlite3.Connection:
    """Returns a connection in autocommit mode; any thread may use it, one at a time."""
    mode = "ro" if read_only else "rwc"
    connection = sqlite3.connect(
        f"{path.absolute().as_uri()}?mode={mode}",
        uri=True,
        isolation_level=None,
        check_same_thread=False,
        timeout=BUSY_SECONDS,
        cached_statements=256,
    )
    connection.execute("PRAGMA trusted_schema = OFF")
    if read_only:
        connection.execute("PRAGMA query_only = ON")
    else:
        # FULL: what was acknowledged survives a power cut. Group commit pays for it.
        connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA cache_size = -2048")
    return connection


def open_file(path: Path, dialect: Dialect, *, for_move: bool = False) -> sqlite3.Connection:
    """Opens the file to write; an absent or empty one gets the schema, an older one is migrated.

    Raises StateError when it cannot be used; only a move may use one that a move has begun.
    """

    def prepare(connection: sqlite3.Connection) -> None:
        _prepare(connection, path, dialect, for_move=for_move)

    return _open(path, prepare)


def open_current_file(path: Path, *, allows_older: bool = False) -> sqlite3.Connection:
    """Opens a file of the current schema, and changes nothing in it.

    Raises StateError when it cannot be used, or is not there.
    """
    refuse_missing_file(path)

    def check(connection: sqlite3.Connection) -> None:
        version = _check_ours(connection, path)
        if version < schema.SCHEMA_VERSION and not allows_older:
            raise StateError(
                f"the database {str(path)!r} has schema {version}, this pipecd"
                f" {schema.SCHEMA_VERSION}",
                hint=hint_migration(read_move_record(connection)),
            )

    return _open(path, check)


def refuse_missing_file(path: Path) -> None:
    """Raises StateError when the file is not there."""
    if not path.exists():
        raise StateError(
            f"there is no database {str(path)!r}", hint="name the data folder of the server"
        )


def read_move_record(connection: sqlite3.Connection) -> MoveRecord | None:
    """Returns what the database knows of its last move; None when it never was in one."""
    found = connection.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (MOVE_TABLE,))
    if found.fetchone() is None:
        return None
    row = connection.execute(READ_MOVE).fetchone()
    return None if row is None else MoveRecord(**dict(zip(MOVE_COLUMNS, row, strict=True)))


def _open(path: Path, prepare: Callable[[sqlite3.Connection], None]) -> sqlite3.Connection:
    _check_whole(path)
    try:
        # SQLite would make it readable for everybody, and its companions take its mode; and it
        # would open one that may not be written, so that every later write fails.
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        connection = connect(path)
    except (sqlite3.Error, OSError) as error:
        raise explain_file(path, error) from error
    try:
        prepare(connection)
    except sqlite3.Error as error:
        connection.close()
        raise explain_file(path, error) from error
    except StateError:
        connection.close()
        raise
    return connection


def _check_whole(path: Path) -> None:
    """Raises StateError for a truncated file, which SQLite would accept.

    SQLite takes a file shorter than its header for a new database, and reads what is missing at the
    end as zeros.
    """
    companion = path.with_name(f"{path.name}-wal")
    try:
        has_log = companion.exists() and companion.stat().st_size > 0
        if not path.exists():
            start, size = b"", 0
        else:
            with path.open("rb") as file:
                start = file.read(HEADER_BYTES)
            size = path.stat().st_size
    except OSError as error:
        raise explain_file(path, error) from error
    if not start and has_log:
        raise StateError(
            f"the last writes of a database are in {str(companion)!r}, but {str(path)!r} is"
            f" {'empty' if path.exists() else 'not there'}",
            hint="bring the database back, or move both away to start with an empty one",
        )
    if not start:
        return
    if not start.startswith(MAGIC):
        raise _refusal(path, "it is not an SQLite file")
    page = int.from_bytes(start[16:18], "big")
    wanted = int.from_bytes(start[28:32], "big") * (65536 if page == 1 else page)
    # With a log beside it, what is missing in the file is in there.
    if not has_log and size < wanted:
        raise _refusal(path, f"it is cut short, {size} bytes of {wanted}")


def _prepare(
    connection: sqlite3.Connection, path: Path, dialect: Dialect, *, for_move: bool
) -> None:
    application_id = _pragma(connection, "application_id")
    is_new = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0
    if is_new and application_id in {0, APPLICATION_ID}:
        connection.execute("PRAGMA journal_mode = WAL")
        _update(connection, dialect, version=0)
        return
    version = _check_ours(connection, path)
    if not for_move:
        refuse_moved(read_move_record(connection))
    connection.execute("PRAGMA journal_mode = WAL")
    if version < schema.SCHEMA_VERSION:
        _update(connection, dialect, version=version)
    # Another program's write lock would otherwise show at the first write, long after the start.
    connection.execute("BEGIN IMMEDIATE")
    connection.execute("ROLLBACK")


def _check_ours(connection: sqlite3.Connection, path: Path) -> int:
    """Returns the version of the schema. Raises StateError for what no pipecd of ours wrote."""
    version = _pragma(connection, "user_version")
    if _pragma(connection, "application_id") != APPLICATION_ID:
        raise _refusal(path, "another program made it")
    if version > schema.SCHEMA_VERSION:
        raise StateError(
            f"the database {str(path)!r} has schema {version}, this pipecd knows"
            f" {schema.SCHEMA_VERSION}",
            hint="use the pipecd that wrote it, or a newer one",
        )
    refuse_acting_schema(connection)
    if path.stat().st_size <= CHECKED_SIZE:
        found = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
        if found != "ok":
            raise _refusal(path, f"it is damaged: {' '.join(found.split())}")
    return version


def _update(connection: sqlite3.Connection, dialect: Dialect, *, version: int) -> None:
    """Migrates the schema to the current version in one transaction, so that a crash is safe."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        migrate(connection, dialect, version=version)
    except DecodeError as error:
        connection.execute("ROLLBACK")
        raise StateError(
            f"the database of schema {version} cannot be brought to schema"
            f" {schema.SCHEMA_VERSION}: a row is no message",
            hint="it is as it was; restore a backup, or go on with the older pipecd",
        ) from error
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {schema.SCHEMA_VERSION}")
    connection.execute("COMMIT")


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    return int(connection.execute(f"PRAGMA {name}").fetchone()[0])


def explain_file(path: Path, error: sqlite3.Error | OSError) -> StateError:
    """Returns the StateError for an error of SQLite or the file system.

    An error of the disk, or a lock of another program, must not read as if the data were damaged:
    the operator might give up good data.
    """
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF  # the rest says where it happened
    if code in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}:
        return StateError(
            f"the database {str(path)!r} is locked by another program",
            hint="close whatever has it open, for example a sqlite3 shell",
        )
    if isinstance(error, OSError) or code in DISK_TROUBLE:
        return StateError(
            f"cannot use the database {str(path)!r}: {getattr(error, 'strerror', None) or error}",
            hint="see that its disk has free space and that this user may write there",
        )
    return _refusal(path, str(error))


def _refusal(path: Path, why: str) -> StateError:
    return StateError(
        f"cannot use the database {str(path)!r}: {why}",
        hint="restore it from a backup, or move it away to start with an empty one",
    )
