# SPDX-License-Identifier: Apache-2.0
"""Where a database of PostgreSQL is, and how it is used."""

from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresServer:
    """A server that control planes share."""

    url: str = field(repr=False)
    """As libpq writes it; it may hold a password."""
    password_file: Path | None = None
    connections: int = 8
    """How many at most, beside one that listens and one for timed jobs."""
    wait_seconds: float = 60.0
    """How long a start waits for a server that does not answer yet."""
    takeover_seconds: float = 20.0
    """How long a start waits for the session of one that was killed to end."""
    acquire_seconds: float = 30.0
    """How long a unit waits for a connection that is free."""
    lock_seconds: float = 20.0
    """How long a statement waits for what another session has locked."""
    statement_seconds: float = 120.0
    """How long a statement may take."""

    @property
    def key_connections(self) -> int:
        """Returns how many of the connections are for reads by a primary key."""
        return max(1, self.connections // 4)

    def split_unit_connections(self) -> list[int]:
        """Returns how many of the connections each thread for units of work has."""
        units = max(1, self.connections - self.key_connections)
        return [units] if units < 4 else [units - units // 2, units // 2]
