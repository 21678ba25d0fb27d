# SPDX-License-Identifier: Apache-2.0
"""The schema for every driver: an entity is its message, the columns to find it by, a version."""

from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    Column,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    text,
)
from sqlalchemy.dialects import postgresql

SCHEMA_VERSION: Final = 11
"""Grows when the schema changes; a file of an older version is migrated when it is opened."""

metadata: Final = MetaData()

TEXT: Final = String().with_variant(postgresql.VARCHAR(collation="C"), "postgresql")
"""Texts are compared byte by byte everywhere: cursors of pages depend on it."""


def _entity(name: str, *columns: "Column[Any]") -> Table:
    """A table of messages, each with the columns that it is found by."""
    return Table(
        name,
        metadata,
        Column("id", TEXT, primary_key=True),
        Column("project_id", TEXT, nullable=False),
        *columns,
        _version(),
        Column("data", LargeBinary, nullable=False),
    )


def _text(name: str) -> "Column[Any]":
    return Column(name, TEXT, nullable=False)


def _number(name: str) -> "Column[Any]":
    return Column(name, BigInteger, nullable=False)


def _version() -> "Column[Any]":
    """A column that grows with each write, for compare-and-set."""
    return Column("version", Integer, nullable=False)


def _labels(name: str) -> Table:
    """A table of the labels of entities; its index finds them by label in the order of lists."""
    table = Table(
        name,
        metadata,
        Column("entity_id", TEXT, primary_key=True),
        Column("key", TEXT, primary_key=True),
        _text("project_id"),
        _text("value"),
        _number("created_at"),
        sqlite_with_rowid=False,
    )
    c = table.c
    Index(f"{name}_of_project", c.project_id, c.key, c.value, c.created_at, c.entity_id)
    return table


def _index_updates(table: Table) -> None:
    """Adds the index of what was updated since a time, with the place of each row in lists."""
    c = table.c
    Index(f"{table.name}_by_update", c.project_id, c.updated_at, c.created_at, c.id)


project: Final = Table(
    "project",
    metadata,
    Column("id", TEXT, primary_key=True),
    Column("data", LargeBinary, nullable=False),
    _version(),
)

piped: Final = _entity("piped", _number("created_at"))
Index("piped_of_project", piped.c.project_id, piped.c.created_at, piped.c.id)

api_key: Final = _entity("api_key")

# What upstream's message of a key has no field for, or what changes with each call.
api_key_fact: Final = Table(
    "api_key_fact",
    metadata,
    Column("key_id", TEXT, primary_key=True),
    _text("project_id"),
    _number("expires_at"),
    _number("last_used_at"),
)
Index("api_key_fact_of_project", api_key_fact.c.project_id)

# People who have signed in. The secret of their cookie is kept as a hash.
session: Final = Table(
    "session",
    metadata,
    Column("id", TEXT, primary_key=True),
    _text("project_id"),
    _text("secret_hash"),
    _text("subject"),
    _number("via"),
    _number("created_at"),
    _number("expires_at"),
    Column("data", LargeBinary, nullable=False),
    _version(),
)
Index("session_of_project", session.c.project_id, session.c.created_at)
Index("session_expiry", session.c.expires_at)

application: Final = _entity(
    "application",
    _text("piped_id"),
    _text("name"),
    _number("kind"),
    _number("disabled"),
    _number("deleted"),
    _number("plugin_based"),
    _number("sync_status"),
    _number("created_at"),
    _number("updated_at"),
)
Index("application_of_piped", application.c.piped_id, application.c.disabled)
Index(
    "application_of_project", application.c.project_id, application.c.created_at, application.c.id
)
Index(
    "application_by_name",
    application.c.project_id,
    application.c.name,
    application.c.created_at,
    application.c.id,
)
application_label: Final = _labels("application_label")

deployment: Final = _entity(
    "deployment",
    _text("piped_id"),
    _text("application_id"),
    _text("application_name"),
    _number("kind"),
    _number("status"),
    _number("completed"),
    _number("created_at"),
    _number("updated_at"),
    _number("completed_at"),
    _text("chain_id"),
    _text("trace_commit_hash"),
)
Index("deployment_of_piped", deployment.c.piped_id, deployment.c.completed)
Index("deployment_by_time", deployment.c.project_id, deployment.c.created_at, deployment.c.id)
for _column in ("application_id", "application_name", "status", "kind"):
    Index(
        f"deployment_by_{_column}",
        deployment.c.project_id,
        deployment.c[_column],
        deployment.c.created_at,
        deployment.c.id,
    )
Index("deployment_by_end", deployment.c.completed_at)
for _column in ("chain_id", "trace_commit_hash"):
    Index(
        f"deployment_by_{_column}",
        deployment.c.project_id,
        deployment.c[_column],
        sqlite_where=deployment.c[_column] != "",
        postgresql_where=deployment.c[_column] != "",
    )
_index_updates(deployment)
deployment_label: Final = _labels("deployment_label")

# How each deployment ended: what figures are made of. It stays when the deployment itself goes.
deployment_outcome: Final = Table(
    "deployment_outcome",
    metadata,
    Column("deployment_id", TEXT, primary_key=True),
    _text("project_id"),
    _text("application_id"),
    _number("status"),
    _number("committed_at"),
    _number("created_at"),
    _number("completed_at"),
)
Index(
    "deployment_outcome_of_project",
    deployment_outcome.c.project_id,
    deployment_outcome.c.completed_at,
    # All that figures need, so that they are made from the index alone.
    deployment_outcome.c.status,
    deployment_outcome.c.committed_at,
    deployment_outcome.c.application_id,
    deployment_outcome.c.deployment_id,
)

deployment_chain: Final = _entity(
    "deployment_chain", _number("completed"), _number("created_at"), _number("updated_at")
)
Index(
    "deployment_chain_of_project",
    deployment_chain.c.project_id,
    deployment_chain.c.created_at,
    deployment_chain.c.id,
)
_index_updates(deployment_chain)
Index("deployment_chain_by_state", deployment_chain.c.completed, deployment_chain.c.updated_at)

deployment_trace: Final = _entity(
    "deployment_trace", _text("commit_hash"), _number("created_at"), _number("updated_at")
)
Index(
    "deployment_trace_of_project",
    deployment_trace.c.project_id,
    deployment_trace.c.created_at,
    deployment_trace.c.id,
)
Index(
    "deployment_trace_by_commit_hash",
    deployment_trace.c.project_id,
    deployment_trace.c.commit_hash,
    deployment_trace.c.created_at,
    deployment_trace.c.id,
)
_index_updates(deployment_trace)

event: Final = _entity(
    "event",
    _text("name"),
    _text("event_key"),
    _number("status"),
    _number("created_at"),
    _number("updated_at"),
)
Index("event_of_project", event.c.project_id, event.c.created_at, event.c.id)
for _column in ("name", "event_key", "status"):
    Index(
        f"event_by_{_column}", event.c.project_id, event.c[_column], event.c.created_at, event.c.id
    )
Index("event_by_age", event.c.updated_at)
_index_updates(event)
event_label: Final = _labels("event_label")

command: Final = _entity("command", _text("piped_id"), _number("status"), _number("created_at"))
Index("command_of_piped", command.c.piped_id, command.c.status)
Index("command_by_state", command.c.status, command.c.created_at)

command_output: Final = Table(
    "command_output",
    metadata,
    Column("command_id", TEXT, primary_key=True),
    _text("project_id"),
    Column("data", LargeBinary, nullable=False),
)

own_command: Final = Table(
    "own_command",
    metadata,
    Column("id", TEXT, primary_key=True),
    _text("project_id"),
    _text("piped_id"),
    _number("handled"),
    _number("succeeded"),
    _text("reason"),
    Column("data", LargeBinary, nullable=False),
)
Index("own_command_of_piped", own_command.c.piped_id, own_command.c.handled)

# A log is its head and its chunks. Chunks are appended, never rewritten.
stage_log: Final = Table(
    "stage_log",
    metadata,
    Column("deployment_id", TEXT, primary_key=True),
    Column("stage_id", TEXT, primary_key=True),
    Column("retried_count", Integer, primary_key=True),
    _text("project_id"),
    _number("chunks"),
    _number("last_index"),
    _number("completed"),
    _number("bytes"),
    _number("lines"),
    # How many of its chunks are in objects of the blob store, and how many of its bytes.
    _number("sealed"),
    _number("sealed_bytes"),
)
LOGS_TO_SEAL: Final = text("completed = 1 AND bytes - sealed_bytes >= 65536")
"""Which logs are worth an object. As text: an index is used only for a condition that is alike."""
Index(
    "stage_log_to_seal",
    stage_log.c.deployment_id,
    stage_log.c.stage_id,
    stage_log.c.retried_count,
    sqlite_where=LOGS_TO_SEAL,
    postgresql_where=LOGS_TO_SEAL,
)
# The chunks of a log from one number to another, in an object of the blob store. The rows of the
# chunks are gone then.
stage_log_object: Final = Table(
    "stage_log_object",
    metadata,
    Column("deployment_id", TEXT, primary_key=True),
    Column("stage_id", TEXT, primary_key=True),
    Column("retried_count", Integer, primary_key=True),
    Column("first_number", BigInteger, primary_key=True),
    _text("project_id"),
    _number("last_number"),
    _number("first_line"),
    _number("last_line"),
    _number("lowest_index"),
    _number("highest_index"),
    _text("object_key"),
    _number("size"),
    _text("sha256"),
    # Where its segments are, see `sealed_segments`.
    Column("directory", LargeBinary, nullable=False),
)
Index("stage_log_object_by_key", stage_log_object.c.object_key, unique=True)

# Values of a row that are objects of the blob store when they are large: see `sealed_values`.
LARGE_VALUES: Final = text("object_key = '' AND length(data) >= 262144")
"""Which values are worth an object. As text, as that of logs."""
SEALED_VALUES: Final = text("object_key != ''")


def _reference() -> "tuple[Column[Any], ...]":
    """Columns for the object that a row refers to: empty, and 0, when it holds its value itself."""
    return _text("object_key"), _number("size"), _text("sha256")


def _index_values(table: Table) -> None:
    """Finds the rows whose value is to be sealed, and the one that refers to an object."""
    for name, columns, condition in (
        ("to_seal", table.primary_key.columns, LARGE_VALUES),
        ("by_object", [table.c.object_key], SEALED_VALUES),
    ):
        Index(
            f"{table.name}_{name}",
            *columns,
            sqlite_where=condition,
            postgresql_where=condition,
        )


# What is true of all servers that share this database.
installation: Final = Table(
    "installation", metadata, Column("name", TEXT, primary_key=True), _text("value")
)
stage_log_chunk: Final = Table(
    "stage_log_chunk",
    metadata,
    Column("deployment_id", TEXT, primary_key=True),
    Column("stage_id", TEXT, primary_key=True),
    Column("retried_count", Integer, primary_key=True),
    Column("number", BigInteger, primary_key=True),
    _number("last_index"),
    Column("data", LargeBinary, nullable=False),
    _number("first_index"),
    # Does it hold an index that is not above all before it? The others are in order and disjoint.
    _number("late"),
    # The number of its first line, in the order of arrival, from 1 on.
    _number("first_line"),
)
Index(
    "stage_log_chunk_by_line",
    stage_log_chunk.c.deployment_id,
    stage_log_chunk.c.stage_id,
    stage_log_chunk.c.retried_count,
    stage_log_chunk.c.first_line,
)
Index(
    "stage_log_chunk_by_index",
    stage_log_chunk.c.deployment_id,
    stage_log_chunk.c.stage_id,
    stage_log_chunk.c.retried_count,
    stage_log_chunk.c.late,
    stage_log_chunk.c.last_index,
)


def _record(name: str, key: str, *columns: "Column[Any]") -> Table:
    """A table of a piped's reports about itself or an application: each replaces the previous."""
    return Table(
        name,
        metadata,
        Column(key, TEXT, primary_key=True),
        _text("project_id"),
        _number("updated_at"),
        Column("data", LargeBinary, nullable=False),
        *columns,
    )


plugin_state: Final = _record("plugin_state", "piped_id")
piped_stat: Final = _record("piped_stat", "piped_id")
unregistered_application: Final = _record("unregistered_application", "piped_id")

# Which instance of a piped may work. `renewals` shows whether its holder lives; `contested`, that
# the previous holder fell silent without releasing it.
lease: Final = Table(
    "lease",
    metadata,
    Column("piped_id", TEXT, primary_key=True),
    _text("project_id"),
    _number("epoch"),
    _text("instance_id"),
    _text("data_folder_id"),
    _number("renewals"),
    _number("contested"),
)

piped_alarm: Final = Table(
    "piped_alarm",
    metadata,
    Column("piped_id", TEXT, primary_key=True),
    Column("name", TEXT, primary_key=True),
    _text("project_id"),
    _text("sentence"),
    _number("raised_at"),
    _number("seen_at"),
)

shared_object: Final = Table(
    "shared_object",
    metadata,
    Column("application_id", TEXT, primary_key=True),
    Column("plugin_name", TEXT, primary_key=True),
    Column("key", TEXT, primary_key=True),
    _text("project_id"),
    Column("data", LargeBinary, nullable=False),
    *_reference(),
)
_index_values(shared_object)

live_state: Final = _record("live_state", "application_id", _version(), *_reference())
_index_values(live_state)
analysis_result: Final = _record("analysis_result", "application_id", _version())

# What people and rules decide, where upstream's entities have no field for it.
application_control: Final = _record("application_control", "application_id", _version())
deployment_record: Final = _record("deployment_record", "deployment_id", _version())
project_rules: Final = Table(
    "project_rules",
    metadata,
    Column("project_id", TEXT, primary_key=True),
    _number("updated_at"),
    Column("data", LargeBinary, nullable=False),
    _version(),
)

# What the deployments that a piped has queued wait for.
piped_queue: Final = _record("piped_queue", "piped_id")

# Who did what: one chain of records for each project, never changed. Only retention removes the
# oldest ones, and appends a record about that.
audit_record: Final = Table(
    "audit_record",
    metadata,
    Column("project_id", TEXT, primary_key=True),
    Column("sequence", BigInteger, primary_key=True),
    _number("at"),
    _text("actor"),
    _text("actor_id"),
    _text("action"),
    _text("subject"),
    _text("subject_name"),
    Column("data", LargeBinary, nullable=False),
)
Index("audit_record_by_time", audit_record.c.project_id, audit_record.c.at)
for _column in ("actor", "actor_id", "action", "subject", "subject_name"):
    Index(
        f"audit_record_by_{_column}",
        audit_record.c.project_id,
        audit_record.c[_column],
        audit_record.c.sequence,
        audit_record.c.at,  # so that what is of another time is passed over within the index
    )

# Where git hosts say that something was pushed. The secrets are encrypted.
hook: Final = Table(
    "hook",
    metadata,
    Column("id", TEXT, primary_key=True),
    _text("project_id"),
    _text("name"),
    _text("secret"),
    _text("older_secret"),
    _text("secret_id"),
    _number("last_accepted_at"),
    _number("last_refused_at"),
    _number("older_secret_used_at"),
    _version(),
    Column("data", LargeBinary, nullable=False),
)
Index("hook_by_name", hook.c.project_id, hook.c.name, unique=True)
