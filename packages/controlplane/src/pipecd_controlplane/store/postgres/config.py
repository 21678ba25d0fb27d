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
    """How many at most, and how many units run at the same time."""
    wait_seconds: float = 60.0
    """How long a start waits for a server that does not answer yet."""
    takeover_seconds: float = 20.0
    """How long a start waits for the session of one that was killed to end."""
