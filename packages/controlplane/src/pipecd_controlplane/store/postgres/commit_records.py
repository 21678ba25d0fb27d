# SPDX-License-Identifier: Apache-2.0
"""Tells what became of a transaction when the answer to its COMMIT was lost.

Each connection numbers its transactions, and writes the number of the last one with it, into a row
of its own: the row has the number if and only if that transaction was committed.
The id that PostgreSQL gives to a transaction does not tell that. A server that crashes may give the
id of a transaction that it has lost to the next one.
"""

from typing import TYPE_CHECKING, Any, Final

import asyncpg

from pipecd_model.ids import new_id

if TYPE_CHECKING:
    _Connection = asyncpg.Connection[asyncpg.Record]
else:
    _Connection = asyncpg.Connection

TABLE: Final = """CREATE TABLE IF NOT EXISTS pipecd_commit (
    connection_id text PRIMARY KEY, number bigint NOT NULL, written_at timestamptz NOT NULL)
    WITH (fillfactor = 20)"""
"""A few rows, each changed by every commit of its connection: the free room keeps them in place."""

WRITE: Final = """INSERT INTO pipecd_commit (connection_id, number, written_at)
    SELECT $1, $2, now() WHERE pg_current_xact_id_if_assigned() IS NOT NULL
    ON CONFLICT (connection_id)
    DO UPDATE SET number = excluded.number, written_at = excluded.written_at"""
"""Writes the number of a transaction that has written something. Its last statement but NOTIFY."""

READ: Final = "SELECT number FROM pipecd_commit WHERE connection_id = $1"

FORGET: Final = "DELETE FROM pipecd_commit WHERE written_at < now() - interval '1 day'"
"""Rows of connections that are long closed; one that is still open writes its row again."""


class NumberedConnection(_Connection):
    """A connection that numbers its transactions."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.connection_id = new_id()
        self._number = 0

    def take_number(self) -> int:
        """Returns the number of the transaction that is about to be committed."""
        self._number += 1
        return self._number
