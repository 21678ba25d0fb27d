# SPDX-License-Identifier: Apache-2.0
"""Migrates files of older pipecds to the current schema.

The steps are data for every driver, see `store.migrations`; here is how SQLite applies them, and
how rows are filled that only SQLite files can hold: no other driver is as old.
"""

import sqlite3
from collections.abc import Callable
from typing import Final, TypeAlias

from sqlalchemy.engine import Dialect
from sqlalchemy.schema import CreateIndex, CreateTable

from pipecd_controlplane.store import schema
from pipecd_controlplane.store.migrations import MIGRATIONS, Migration
from pipecd_wire.apiservice import service_pb2 as apiservice
from pipecd_wire.model import application_pb2
from pipecd_wire.model import deployment_pb2 as pb

Fill: TypeAlias = Callable[[sqlite3.Connection], None]


def migrate(connection: sqlite3.Connection, dialect: Dialect, *, version: int) -> None:
    """Migrates a file from `version` (0: empty) to the current one, in the caller's transaction."""
    existing = bool(_names(connection))
    if existing:
        for migration in MIGRATIONS:
            if version < migration.version:
                _change(connection, migration)
    _create_missing(connection, dialect)
    if existing:
        for number, fill in sorted(FILLS.items()):
            if version < number:
                fill(connection)


def _create_missing(connection: sqlite3.Connection, dialect: Dialect) -> None:
    there = _names(connection)
    for table in schema.metadata.sorted_tables:
        if table.name not in there:
            connection.execute(str(CreateTable(table).compile(dialect=dialect)))
        for index in sorted(table.indexes, key=lambda index: str(index.name)):
            if index.name not in there:
                connection.execute(str(CreateIndex(index).compile(dialect=dialect)))


def _names(connection: sqlite3.Connection) -> set[str]:
    return {row[0] for row in connection.execute("SELECT name FROM sqlite_master")}


def _change(connection: sqlite3.Connection, migration: Migration) -> None:
    for column in migration.columns:
        there = {row[1] for row in connection.execute(f"PRAGMA table_info({column.table})")}
        # A table that is missing altogether is made later, with all of its columns.
        if there and column.name not in there:
            connection.execute(
                f"ALTER TABLE {column.table} ADD COLUMN {column.name} {column.type}"
                f" DEFAULT {column.default!r} NOT NULL"
            )
    for index in migration.dropped_indexes:
        connection.execute(f"DROP INDEX IF EXISTS {index}")


def _rows_to_3(connection: sqlite3.Connection) -> None:
    """Fills the columns and tables that are new in version 3 from the stored messages."""
    for row in connection.execute("SELECT id, data FROM application").fetchall():
        application = application_pb2.Application.FromString(row[1])
        plugin_based = (
            bool(application.deploy_targets_by_plugin) or not application.platform_provider
        )
        connection.execute(
            "UPDATE application SET deleted = ?, plugin_based = ?, sync_status = ?, updated_at = ?"
            " WHERE id = ?",
            (
                int(application.deleted),
                int(plugin_based),
                application.sync_state.status,
                application.updated_at,
                application.id,
            ),
        )
        _label(connection, "application_label", application)
    ids = [row[0] for row in connection.execute("SELECT id FROM deployment")]
    for deployment_id in ids:
        found = connection.execute("SELECT data FROM deployment WHERE id = ?", (deployment_id,))
        _deployment_to_3(connection, pb.Deployment.FromString(found.fetchone()[0]))


def _deployment_to_3(connection: sqlite3.Connection, deployment: pb.Deployment) -> None:
    connection.execute(
        "UPDATE deployment SET updated_at = ?, completed_at = ?, chain_id = ?,"
        " trace_commit_hash = ? WHERE id = ?",
        (
            deployment.updated_at,
            deployment.completed_at,
            deployment.deployment_chain_id,
            deployment.deployment_trace_commit_hash,
            deployment.id,
        ),
    )
    _label(connection, "deployment_label", deployment)
    if deployment.status in (4, 5, 6):  # the final ones
        connection.execute(
            "INSERT OR REPLACE INTO deployment_outcome (deployment_id, project_id,"
            " application_id, status, committed_at, created_at, completed_at)"
            " VALUES (?, ?, ?, ?, ?, ?, ?)",
            (
                deployment.id,
                deployment.project_id,
                deployment.application_id,
                deployment.status,
                deployment.trigger.commit.created_at,
                deployment.created_at,
                deployment.completed_at,
            ),
        )


def _label(
    connection: sqlite3.Connection,
    table: str,
    entity: application_pb2.Application | pb.Deployment,
) -> None:
    connection.executemany(
        f"INSERT OR REPLACE INTO {table} (entity_id, key, project_id, value, created_at)"  # noqa: S608 - ours
        " VALUES (?, ?, ?, ?, ?)",
        [
            (entity.id, key, entity.project_id, value, entity.created_at)
            for key, value in entity.labels.items()
        ],
    )


def _rows_to_9(connection: sqlite3.Connection) -> None:
    """Numbers the lines of the stage logs that are there; one chunk at a time is in memory."""
    keys = "deployment_id = ? AND stage_id = ? AND retried_count = ?"
    logs = connection.execute("SELECT deployment_id, stage_id, retried_count FROM stage_log")
    for log in logs.fetchall():
        numbers = connection.execute(
            f"SELECT number FROM stage_log_chunk WHERE {keys} ORDER BY number",  # noqa: S608 - ours
            log,
        )
        lines = 0
        for (number,) in numbers.fetchall():
            chunk = f"stage_log_chunk WHERE {keys} AND number = ?"
            [data] = connection.execute(f"SELECT data FROM {chunk}", (*log, number)).fetchone()  # noqa: S608 - ours
            connection.execute(
                f"UPDATE stage_log_chunk SET first_line = ? WHERE {keys} AND number = ?",  # noqa: S608 - ours
                (lines + 1, *log, number),
            )
            lines += len(apiservice.StageLog.FromString(data).blocks)
        connection.execute(f"UPDATE stage_log SET lines = ? WHERE {keys}", (lines, *log))  # noqa: S608 - ours


FILLS: Final[dict[int, Fill]] = {3: _rows_to_3, 9: _rows_to_9}
"""By the version they lead to: what is done to the rows once all tables are there."""
