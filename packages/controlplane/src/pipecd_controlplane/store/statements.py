# SPDX-License-Identifier: Apache-2.0
"""Statements become text once; after that the driver is used directly.

SQLAlchemy is the compiler and nothing else: executing through it costs ten times the statement.
"""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Executable
from sqlalchemy.engine import Dialect

from pipecd_controlplane.store.database import Value


class Compiled:
    """A statement's text, and its parameters in the order the driver wants them."""

    __slots__ = ("_fixed", "_names", "text")

    def __init__(self, statement: Executable, dialect: Dialect) -> None:
        compiled: Any = statement.compile(dialect=dialect)  # type: ignore[attr-defined] # every statement of ours is a ClauseElement
        self.text: str = str(compiled)
        self._names: tuple[str, ...] = tuple(compiled.positiontup or ())
        # Constants of the statement (`completed = 0`) are parameters to the driver as well.
        self._fixed = {name: value for name, value in compiled.params.items() if value is not None}

    def arguments(self, parameters: Mapping[str, Value]) -> tuple[Value, ...]:
        return tuple(
            parameters[name] if name in parameters else self._fixed[name] for name in self._names
        )


class Statements:
    """Every statement that was used so far, compiled for one dialect."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        # The statement is kept beside its text: while it lives, nobody else has its id.
        self._compiled: dict[int, tuple[Executable, Compiled]] = {}

    def __getitem__(self, statement: Executable) -> Compiled:
        found = self._compiled.get(id(statement))
        if found is None:
            found = (statement, Compiled(statement, self._dialect))
            self._compiled[id(statement)] = found
        return found[1]
