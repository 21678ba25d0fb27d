# SPDX-License-Identifier: Apache-2.0
"""Steps from one version of the schema to the next, for files that older pipecds wrote.

A table that is new needs no step: what is missing is made when the steps are done. A step is never
changed once a release had it, so it names columns itself and does not ask `schema`.
"""

import sqlite3
from collections.abc import Callable, Iterable
from typing import Final, TypeAlias

from sqlalchemy.engine import Dialect
from sqlalchemy.schema import CreateIndex, CreateTable

from pipecd_controlplane.store import schema
from pipecd_wire.model import application_pb2
from pipecd_wire.model import deployment_pb2 as pb

Step: TypeAlias = Callable[[sqlite3.Connection], None]


def migrate(connection: sqlite3.Connection, dialect: Dialect, *, version: int) -> None:
    """Bring a file of `version` (0 is an empty one) to today's, in the caller's transaction."""
    existing = bool(_names(connection))
    if existing:
        for number, change in sorted(CHANGES.items()):
            if version < number:
                change(connection)
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


def _add(connection: sqlite3.Connection, table: str, columns: Iterable[str]) -> None:
    """Add columns such as `name TYPE` or `name TYPE DEFAULT value`."""
    there = {row[1] for row in connection.execute(f"PRAGMA table_info({table})")}
    for column in columns:
        if column.partition(" ")[0] in there:
            continue
        if " DEFAULT " not in column:
            column += " DEFAULT ''" if column.endswith(" VARCHAR") else " DEFAULT 0"  # noqa: PLW2901 - the same column, said in full
        connection.execute(f"ALTER TABLE {table} ADD COLUMN {column} NOT NULL")


def _columns_to_3(connection: sqlite3.Connection) -> None:
    """Lists are found by more: labels, time of change, chain, trace."""
    _add(
        connection,
        "application",
        ("deleted BIGINT", "plugin_based BIGINT", "sync_status BIGINT", "updated_at BIGINT"),
    )
    _add(
        connection,
        "deployment",
        (
            "updated_at BIGINT",
            "completed_at BIGINT",
            "chain_id VARCHAR",
            "trace_commit_hash VARCHAR",
        ),
    )
    for index in ("deployment_of_application", "deployment_of_project"):
        connection.execute(f"DROP INDEX IF EXISTS {index}")


def _rows_to_3(connection: sqlite3.Connection) -> None:
    """What the new columns and tables hold of the messages that are there."""
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


def _columns_to_4(connection: sqlite3.Connection) -> None:
    """Chunks of stage logs are found by both ends. Those that are there may hold any index."""
    _add(
        connection,
        "stage_log_chunk",
        (f"first_index BIGINT DEFAULT {-(2**63)}", "late BIGINT DEFAULT 1"),
    )


def _columns_to_6(connection: sqlite3.Connection) -> None:
    """Stage logs have a limit; what they held before does not count."""
    _add(connection, "stage_log", ("bytes BIGINT",))


CHANGES: Final[dict[int, Step]] = {3: _columns_to_3, 4: _columns_to_4, 6: _columns_to_6}
"""By the version they lead to: what is done to the tables that are there."""

FILLS: Final[dict[int, Step]] = {3: _rows_to_3}
"""By the version they lead to: what is done to the rows once all tables are there."""
