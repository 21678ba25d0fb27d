# SPDX-License-Identifier: Apache-2.0
"""What commands have in common that change the database of a server that is stopped."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Final, TypeVar

import click

from pipecd_controlplane.serve.config import read as read_config
from pipecd_controlplane.store.open import (
    DatabaseConfig,
    SqliteFolder,
    open_database,
    refuse_missing,
)
from pipecd_controlplane.store.stores import Stores, stores

T = TypeVar("T")

FOLDER: Final = click.Path(file_okay=False, exists=True, path_type=Path)
DATA_DIR: Final = click.option(
    "--data-dir", type=FOLDER, required=True, help="The server's data folder."
)
CONFIG_FILE: Final = click.option(
    "--config-file",
    type=click.Path(dir_okay=False, exists=True, path_type=Path),
    help="The server's configuration file, where it names a database.",
)
WAIT_SECONDS: Final = 5.0
"""How long a command waits for a database that does not answer."""


def run_with_stores(
    folder: Path,
    config_file: Path | None,
    work: Callable[[Stores], Awaitable[T]],
    *,
    makes_database: bool = False,
) -> T:
    """Returns what `work` returns. Raises StateError when the database cannot be used.

    Without `makes_database` it makes none in a folder that has none: that is a wrong one.
    """
    found = read_config(config_file).postgres
    config: DatabaseConfig = SqliteFolder(folder=folder.absolute())
    if found is not None:
        # A person waits for the answer.
        config = replace(found, wait_seconds=WAIT_SECONDS)

    if not makes_database:
        refuse_missing(config)

    async def run() -> T:
        async with open_database(config, on_commit=lambda _changes: None) as database:
            return await work(stores(database, lambda: int(time.time())))

    return asyncio.run(run())
