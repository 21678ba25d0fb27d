# SPDX-License-Identifier: Apache-2.0
"""The one schema: an entity is its message, the columns it is found by, and a version."""

from typing import Any, Final

from sqlalchemy import BigInteger, Column, Index, Integer, LargeBinary, MetaData, String, Table

SCHEMA_VERSION: Final = 2
"""Grows when a table is added; a file of an older version gets what it lacks when it is opened."""

metadata: Final = MetaData()


def _entity(name: str, *columns: "Column[Any]") -> Table:
    """A table of messages. `version` grows with each write: the hold for compare-and-set."""
    return Table(
        name,
        metadata,
        Column("id", String, primary_key=True),
        Column("project_id", String, nullable=False),
        *columns,
        Column("version", Integer, nullable=False),
        Column("data", LargeBinary, nullable=False),
    )


def _text(name: str) -> "Column[Any]":
    return Column(name, String, nullable=False)


def _number(name: str) -> "Column[Any]":
    return Column(name, BigInteger, nullable=False)


project: Final = Table(
    "project",
    metadata,
    Column("id", String, primary_key=True),
    Column("data", LargeBinary, nullable=False),
)

piped: Final = _entity("piped", _number("created_at"))
Index("piped_of_project", piped.c.project_id, piped.c.created_at, piped.c.id)

api_key: Final = _entity("api_key")

application: Final = _entity(
    "application",
    _text("piped_id"),
    _text("name"),
    _number("kind"),
    _number("disabled"),
    _number("created_at"),
)
Index("application_of_piped", application.c.piped_id, application.c.disabled)
Index(
    "application_of_project", application.c.project_id, application.c.created_at, application.c.id
)

deployment: Final = _entity(
    "deployment",
    _text("piped_id"),
    _text("application_id"),
    _text("application_name"),
    _number("kind"),
    _number("status"),
    _number("completed"),
    _number("created_at"),
)
Index("deployment_of_piped", deployment.c.piped_id, deployment.c.completed)
Index("deployment_of_project", deployment.c.project_id, deployment.c.created_at, deployment.c.id)
Index("deployment_of_application", deployment.c.application_id, deployment.c.created_at)

command: Final = _entity("command", _text("piped_id"), _number("status"), _number("created_at"))
Index("command_of_piped", command.c.piped_id, command.c.status)

command_output: Final = Table(
    "command_output",
    metadata,
    Column("command_id", String, primary_key=True),
    _text("project_id"),
    Column("data", LargeBinary, nullable=False),
)

own_command: Final = Table(
    "own_command",
    metadata,
    Column("id", String, primary_key=True),
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
    Column("deployment_id", String, primary_key=True),
    Column("stage_id", String, primary_key=True),
    Column("retried_count", Integer, primary_key=True),
    _text("project_id"),
    _number("chunks"),
    _number("last_index"),
    _number("completed"),
)
stage_log_chunk: Final = Table(
    "stage_log_chunk",
    metadata,
    Column("deployment_id", String, primary_key=True),
    Column("stage_id", String, primary_key=True),
    Column("retried_count", Integer, primary_key=True),
    Column("number", BigInteger, primary_key=True),
    _number("last_index"),
    Column("data", LargeBinary, nullable=False),
)


def _of_piped(name: str) -> Table:
    """What a piped says of itself, replaced by each report."""
    return Table(
        name,
        metadata,
        Column("piped_id", String, primary_key=True),
        _text("project_id"),
        _number("updated_at"),
        Column("data", LargeBinary, nullable=False),
    )


plugin_state: Final = _of_piped("plugin_state")
piped_stat: Final = _of_piped("piped_stat")
unregistered_application: Final = _of_piped("unregistered_application")

# Which instance of a piped may work. `renewals` tells whether its holder lives; `contested`, that
# the holder before fell silent without a goodbye.
lease: Final = Table(
    "lease",
    metadata,
    Column("piped_id", String, primary_key=True),
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
    Column("piped_id", String, primary_key=True),
    Column("name", String, primary_key=True),
    _text("project_id"),
    _text("sentence"),
    _number("raised_at"),
    _number("seen_at"),
)

shared_object: Final = Table(
    "shared_object",
    metadata,
    Column("application_id", String, primary_key=True),
    Column("plugin_name", String, primary_key=True),
    Column("key", String, primary_key=True),
    _text("project_id"),
    Column("data", LargeBinary, nullable=False),
)
