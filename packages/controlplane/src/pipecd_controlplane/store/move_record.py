# SPDX-License-Identifier: Apache-2.0
"""The record of a move in a database: written by `pipecd move`, read by whoever opens the database.

It is one row of a table that only moved databases have. It keeps servers from a target that has
not got everything yet, and from a source whose rows are elsewhere by now.
"""

import time
from dataclasses import dataclass
from typing import Final, Literal

from pipecd_model.errors import StateError

MOVE_TABLE: Final = "pipecd_move"

CREATE_MOVE_TABLE: Final = (
    f"CREATE TABLE IF NOT EXISTS {MOVE_TABLE} (role VARCHAR NOT NULL, state VARCHAR NOT NULL,"
    " move_id VARCHAR NOT NULL, other_side VARCHAR NOT NULL, began_at BIGINT NOT NULL)"
)
MOVE_COLUMNS: Final = ("role", "state", "move_id", "other_side", "began_at")
READ_MOVE: Final = f"SELECT {', '.join(MOVE_COLUMNS)} FROM {MOVE_TABLE}"  # noqa: S608 - ours
CLEAR_MOVE: Final = f"DELETE FROM {MOVE_TABLE}"  # noqa: S608 - ours


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveRecord:
    """What a database knows of the last move that it was a side of."""

    role: Literal["source", "target"]
    state: Literal["begun", "complete"]
    move_id: str
    """The same on both sides: it shows that a target was begun by this very move."""
    other_side: str
    """What the other database is called, without any secret."""
    began_at: int

    @property
    def is_open_target(self) -> bool:
        """Returns whether this database has not got everything yet."""
        return self.role == "target" and self.state == "begun"


def refuse_moved(record: MoveRecord | None) -> None:
    """Raises StateError when a move keeps servers from the database that has this record."""
    if record is None or (record.role == "target" and record.state == "complete"):
        return
    began = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(record.began_at))
    if record.role == "target":
        raise StateError(
            f"this database has not got everything yet: the move from {record.other_side} that"
            f" began on {began} is not complete",
            hint="run the same `pipecd move` again, it goes on where it stopped",
        )
    if record.state == "begun":
        raise StateError(
            f"the move of this database to {record.other_side} that began on {began} is not"
            " complete",
            hint="run the same `pipecd move` again, it goes on where it stopped; or give it up"
            " with `pipecd move --undo`",
        )
    raise StateError(
        f"what was in this database is in {record.other_side} since {began}",
        hint="start the server with the configuration that was given as --to-config; to use this"
        " database again, as it was then, run `pipecd move --undo`",
    )


def hint_migration(record: MoveRecord | None) -> str:
    """Returns what to do about a source of an older schema, which a move does not migrate."""
    start = "start the server of this version once, it migrates the database"
    if record is None or record.role == "target":
        return start
    return f"give that move up with `pipecd move --undo`, {start}; then begin with --start-over"
