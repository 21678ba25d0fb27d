# SPDX-License-Identifier: Apache-2.0
"""Refuses database files whose schema contains executable SQL, before any row is read.

A database that others could write to (a backup from another host) may hold triggers, views, virtual
tables, generated columns, checks and indexes of expressions; SQLite would run them in this process,
with its rights, at the next write. No pipecd has ever made one.
"""

import re
import sqlite3
from typing import Final

from pipecd_controlplane.store import schema
from pipecd_model.errors import StateError

_PLAIN_TABLE: Final = re.compile(r"CREATE TABLE\s", re.IGNORECASE)
_ACTING: Final = re.compile(r"\b(CHECK|GENERATED|AS|REFERENCES|COLLATE|ON)\b", re.IGNORECASE)
_PLAIN_DEFAULT: Final = re.compile(r"-?\d+|''")
_KNOWN_CONDITIONS: Final = {
    *(str(each) for each in (schema.LOGS_TO_SEAL, schema.LARGE_VALUES, schema.SEALED_VALUES)),
    *(f"{column} != ''" for column in schema.deployment.columns.keys()),  # noqa: SIM118 - no dict
}


def refuse_acting_schema(connection: sqlite3.Connection) -> None:
    """Raises StateError when the schema holds more than tables of columns and indexes of them."""
    found = connection.execute("SELECT type, name, sql FROM sqlite_master").fetchall()
    for kind, name, sql in found:
        if kind == "table":
            _check_table(connection, name, sql or "")
        elif kind == "index":
            _check_index(connection, name, sql or "")
        else:
            raise _refusal(f"the {kind} {name!r}")


def _check_table(connection: sqlite3.Connection, name: str, sql: str) -> None:
    if not _PLAIN_TABLE.match(sql) or _ACTING.search(sql):
        raise _refusal(f"the table {name!r}, which is more than columns")
    columns = connection.execute(
        "SELECT name, dflt_value, hidden FROM pragma_table_xinfo(?)", (name,)
    )
    for column, default, hidden in columns.fetchall():
        if hidden or (default is not None and not _PLAIN_DEFAULT.fullmatch(default)):
            raise _refusal(f"the column {column!r} of {name!r}, which computes its value")


def _check_index(connection: sqlite3.Connection, name: str, sql: str) -> None:
    columns = connection.execute("SELECT cid, coll FROM pragma_index_xinfo(?)", (name,)).fetchall()
    condition = re.split(r"\bWHERE\b", sql, maxsplit=1, flags=re.IGNORECASE)[1:]
    if any(cid == -2 or order not in {None, "BINARY"} for cid, order in columns) or any(
        each.strip() not in _KNOWN_CONDITIONS for each in condition
    ):
        raise _refusal(f"the index {name!r} of an expression")


def _refusal(what: str) -> StateError:
    return StateError(
        f"the database holds {what}: pipecd makes nothing of that kind",
        hint="somebody else wrote to it; use a backup that you trust",
    )
