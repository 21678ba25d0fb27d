# SPDX-License-Identifier: Apache-2.0
"""Compiles each statement to text once; after that the driver is used directly.

SQLAlchemy is the compiler and nothing else: executing through it costs ten times the statement.
"""

from collections.abc import Mapping
from typing import Any, Final, Protocol

from sqlalchemy import Executable, Table, and_
from sqlalchemy.engine import Dialect

from pipecd_controlplane.store.database import Value


class InsertOf(Protocol):
    """The `insert` of a dialect that knows ON CONFLICT, as those of SQLite and PostgreSQL do."""

    def __call__(self, table: Table, /) -> Any: ...


class Compiled:
    """A statement's text, and its parameters in the order the driver wants them."""

    __slots__ = ("_fixed", "_names", "text")

    def __init__(self, statement: Executable, dialect: Dialect) -> None:
        compiled: Any = statement.compile(dialect=dialect)  # type: ignore[attr-defined] # every statement of ours is a ClauseElement
        self.text: str = str(compiled)
        self._names: tuple[str, ...] = tuple(compiled.positiontup or ())
        # Constants of the statement (`completed = 0`) are parameters to the driver as well.
        self._fixed = {
            name: compiled.params[name]
            for parameter, name in compiled.bind_names.items()
            if not parameter.required
        }

    def arguments(self, parameters: Mapping[str, Value]) -> tuple[Value, ...]:
        return tuple(
            parameters[name] if name in parameters else self._fixed[name] for name in self._names
        )


MOST_STATEMENTS: Final = 2000
"""How many statements are kept compiled before all are compiled anew: far more than the code has.

Each shape of a filtered list is a statement, and callers choose the shapes.
"""


class Statements:
    """The statements that were used so far, compiled for one dialect."""

    def __init__(self, dialect: Dialect, insert: InsertOf, *, most: int = MOST_STATEMENTS) -> None:
        self._dialect = dialect
        self._most = most
        self._insert = insert
        # The statement is stored beside its text: while it lives, no other object has its id.
        self._compiled: dict[int, tuple[Executable, Compiled]] = {}
        self._inserts: dict[tuple[str, tuple[str, ...]], Compiled] = {}

    def __getitem__(self, statement: Executable) -> Compiled:
        found = self._compiled.get(id(statement))
        if found is None:
            found = (statement, Compiled(statement, self._dialect))
            if len(self._compiled) >= self._most:
                self._compiled = {}  # a new one, because threads may be reading this one
            self._compiled[id(statement)] = found
        return found[1]

    def insert_if_absent(self, table: Table) -> Compiled:
        """Returns the statement that inserts a row, or does nothing when its key is taken."""
        key = (table.name, ())
        if key not in self._inserts:
            statement = self._insert(table).on_conflict_do_nothing()
            self._inserts[key] = Compiled(statement, self._dialect)
        return self._inserts[key]

    def upsert(self, table: Table, replaced: tuple[str, ...]) -> Compiled:
        """Returns the statement that inserts a row, or replaces columns of the existing one.

        A row of another project is not changed.
        """
        key = (table.name, replaced)
        if key not in self._inserts:
            statement = self._insert(table)
            new = statement.excluded
            statement = statement.on_conflict_do_update(
                index_elements=list(table.primary_key.columns),
                set_={name: new[name] for name in replaced},
                where=and_(table.c.project_id == new.project_id),
            )
            self._inserts[key] = Compiled(statement, self._dialect)
        return self._inserts[key]
