# SPDX-License-Identifier: Apache-2.0
"""Opens the database of a control plane together with the state that it shares."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from pipecd_controlplane.store.data_folder import owned
from pipecd_controlplane.store.database import Database
from pipecd_controlplane.store.open import DatabaseConfig, open_database
from pipecd_controlplane.store.postgres.config import PostgresServer
from pipecd_controlplane.usecases.in_process import InProcessState
from pipecd_controlplane.usecases.lost_key import refuse_lost_key
from pipecd_controlplane.usecases.shared_state import SharedState


@asynccontextmanager
async def open_state(
    config: DatabaseConfig, folder: Path, key_files: Sequence[Path]
) -> AsyncIterator[tuple[Database, SharedState]]:
    """Yields both. Raises StateError or ConfigError when they cannot be used.

    One process owns a SQLite file, so what it remembers is known to all. A database of PostgreSQL
    is shared, and so is everything else there; the data folder belongs to this process alone.
    """
    if isinstance(config, PostgresServer):
        # Loaded only where it is wanted: the driver and its dialect take a tenth of a second.
        from pipecd_controlplane.usecases.replicated.state import open_replicated  # noqa: PLC0415

        with owned(folder):
            async with open_replicated(config, folder, key_files) as replicated:
                yield replicated.database, replicated
        return
    in_process = InProcessState(folder)
    async with open_database(config, on_commit=in_process.bus.publish) as database:
        await refuse_lost_key(database, key_files, folder)
        yield database, in_process
