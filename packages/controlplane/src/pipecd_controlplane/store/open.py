# SPDX-License-Identifier: Apache-2.0
"""Opens the database that a configuration names: the one place that knows which drivers exist."""

from collections.abc import AsyncIterator
from contextlib import AbstractContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

from pipecd_controlplane.store.backup import Backup
from pipecd_controlplane.store.blobs.config import BlobConfig, S3Bucket
from pipecd_controlplane.store.changes import OnCommit
from pipecd_controlplane.store.data_folder import owned
from pipecd_controlplane.store.database import Database
from pipecd_controlplane.store.postgres.config import PostgresServer
from pipecd_controlplane.store.sqlite import backup as sqlite_backup
from pipecd_controlplane.store.sqlite.database import open_sqlite
from pipecd_controlplane.store.sqlite.file import DATABASE_FILE, refuse_missing_file
from pipecd_model.errors import StateError


@dataclass(frozen=True, slots=True, kw_only=True)
class SqliteFolder:
    """The embedded database, in a data folder that one process owns."""

    folder: Path
    repeat_units: bool = False
    """For tests: run each unit of work twice and compare, see `sqlite.repeating`."""


DatabaseConfig: TypeAlias = SqliteFolder | PostgresServer
"""Which database: a union of one type for each driver."""


@asynccontextmanager
async def open_database(config: DatabaseConfig, on_commit: OnCommit) -> AsyncIterator[Database]:
    """Yields the open database. Raises StateError when it cannot be used."""
    if isinstance(config, PostgresServer):
        # Loaded only where it is wanted: the driver and its dialect take a tenth of a second.
        from pipecd_controlplane.store.postgres.database import open_postgres  # noqa: PLC0415

        async with open_postgres(config, on_commit) as opened:
            yield opened
        return
    async with open_sqlite(
        config.folder, on_commit=on_commit, repeat_units=config.repeat_units
    ) as database:
        yield database


def refuse_missing(config: DatabaseConfig) -> None:
    """Raises StateError when there is no file, which opening it would make."""
    if isinstance(config, SqliteFolder):
        refuse_missing_file(config.folder / DATABASE_FILE)


def backup_database(config: DatabaseConfig, blobs: BlobConfig, target: Path, *, now: int) -> Backup:
    """Copies the database into an archive, with the objects of a folder, also while a server runs.

    Raises ConflictError when the file exists, StateError for a database that others keep.
    """
    if isinstance(config, PostgresServer):
        raise StateError(
            "the rows of this server are in PostgreSQL, which has backups of its own",
            hint="pg_dump for the rows; beside them keep the data folder, which has the keys,"
            " and the folder or bucket of the objects, copied after the rows",
        )
    if isinstance(blobs, S3Bucket):
        made = sqlite_backup.backup(config.folder, target, now=now)
        return replace(made, elsewhere=f"the bucket {blobs.bucket!r}")
    return sqlite_backup.backup(config.folder, target, now=now, blobs=blobs.folder)


def restore_database(archive: Path, config: SqliteFolder) -> Backup:
    """Restores a database from an archive.

    Raises ConflictError when one exists, StateError when its folder is in use.
    """
    return sqlite_backup.restore(archive, config.folder)


def exclusive_database(config: SqliteFolder) -> AbstractContextManager[None]:
    """Locks the database while the block runs. Raises StateError when a server uses it."""
    return owned(config.folder)
