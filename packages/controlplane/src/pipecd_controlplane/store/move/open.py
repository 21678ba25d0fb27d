# SPDX-License-Identifier: Apache-2.0
"""Opens the sides of a move, by their configuration: no server can use them meanwhile."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from pipecd_controlplane.store.move.sides import MovableDatabase, MoveTarget
from pipecd_controlplane.store.move.sqlite_side import open_sqlite_source, open_sqlite_target
from pipecd_controlplane.store.open import DatabaseConfig
from pipecd_controlplane.store.postgres.config import PostgresServer


@asynccontextmanager
async def open_source(
    config: DatabaseConfig, *, allows_older: bool = False
) -> AsyncIterator[MovableDatabase]:
    """Yields the database. Raises StateError when it is used, or has not the current schema.

    With `allows_older` it may have an older one: its record can be read and written, no rows.
    """
    if isinstance(config, PostgresServer):
        # Loaded only where it is wanted, as in `store.open`.
        from pipecd_controlplane.store.move.postgres_side import (  # noqa: PLC0415
            open_postgres_side,
        )

        async with open_postgres_side(config) as opened:
            await opened.check_source(allows_older=allows_older)
            yield opened
        return
    with open_sqlite_source(config.folder, allows_older=allows_older) as source:
        yield source


@asynccontextmanager
async def open_target(config: DatabaseConfig, *, may_write: bool) -> AsyncIterator[MoveTarget]:
    """Yields the database. Raises StateError when it is used."""
    if isinstance(config, PostgresServer):
        from pipecd_controlplane.store.move.postgres_side import (  # noqa: PLC0415
            open_postgres_side,
        )

        async with open_postgres_side(config) as opened:
            yield opened
        return
    with open_sqlite_target(config.folder, may_write=may_write) as target:
        yield target
