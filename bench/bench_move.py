# SPDX-License-Identifier: Apache-2.0
"""`pipecd move` from SQLite to PostgreSQL: rows and bytes per second, and memory.

Beside it, in the same run: a bare loop of sqlite3 and asyncpg's COPY over the same rows, into the
same tables without indexes, which promises nothing.

    python bench/bench_move.py [--deployments N]
"""

import argparse
import asyncio
import contextlib
import os
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

import asyncpg
from bare_drivers import BareSqlite
from bench_store import fill_deployments
from report import Bar, info, report
from sqlalchemy.dialects.postgresql.asyncpg import PGDialect_asyncpg

from pipecd_controlplane.store.log_chunks import LogKey
from pipecd_controlplane.store.move.open import open_source, open_target
from pipecd_controlplane.store.move.rows import RowMove
from pipecd_controlplane.store.move.tables import TableSize, list_tables
from pipecd_controlplane.store.open import SqliteFolder, open_database
from pipecd_controlplane.store.postgres.config import PostgresServer
from pipecd_controlplane.store.postgres.prepare import prepare_database
from pipecd_controlplane.store.sqlite.file import DATABASE_FILE
from pipecd_controlplane.store.stores import Stores, stores
from pipecd_test_support.postgres import PostgresForTests, running_postgres
from pipecd_wire.model import logblock_pb2

NOW = 1_760_000_000
BATCH = 5000
MEBIBYTE = 1024 * 1024
LOGS = 40
LOG_CHUNKS = 10
CHUNK_BYTES = 100_000


class TimedProgress:
    """Keeps how long each step took, and how much there was."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.rows = self.bytes = 0
        self._step = ""
        self._began_at = 0.0

    def begin(self, step: str, sizes: Mapping[str, TableSize]) -> None:
        self._step, self._began_at = step, time.perf_counter()
        self.rows = sum(each.rows for each in sizes.values())
        self.bytes = sum(each.bytes for each in sizes.values())

    def advance(self, table: str, rows: int) -> None:
        pass

    def end(self) -> None:
        self.seconds[self._step] = time.perf_counter() - self._began_at

    def say(self, line: str) -> None:
        pass


async def fill_logs(kept: Stores) -> None:
    for log in range(LOGS):
        key = LogKey(deployment_id=f"dep-{log}", stage_id="s1", retried_count=0)
        for number in range(LOG_CHUNKS):
            block = logblock_pb2.LogBlock(index=number, log="x" * CHUNK_BYTES, created_at=NOW)
            await kept.stage_logs.append("bench", key, [block], completed=False)


async def copy_bare(folder: Path, url: str) -> float:
    """Returns the seconds of a loop that reads and copies, and does nothing else."""
    connection = await asyncpg.connect(url)
    dialect = PGDialect_asyncpg(paramstyle="numeric_dollar")  # type: ignore[no-untyped-call] # SQLAlchemy's
    await prepare_database(connection, dialect, for_move=True)
    try:
        with contextlib.closing(sqlite3.connect(folder / DATABASE_FILE)) as source:
            began_at = time.perf_counter()
            for table in list_tables():
                cursor = source.execute(f"SELECT {table.all_columns} FROM {table.quoted}")  # noqa: S608 - ours
                size = 40 if table.name == "stage_log_chunk" else BATCH
                while rows := cursor.fetchmany(size):
                    await connection.copy_records_to_table(
                        table.name, records=rows, columns=table.names
                    )
            return time.perf_counter() - began_at
    finally:
        await connection.close()


async def move_here(folder: Path, url: str) -> TimedProgress:
    progress = TimedProgress()
    async with (
        open_source(SqliteFolder(folder=folder)) as source,
        open_target(PostgresServer(url=url), may_write=True) as target,
    ):
        await RowMove(source=source, target=target, progress=progress, now=lambda: NOW).run()
    return progress


async def move_back(folder: Path, url: str) -> TimedProgress:
    progress = TimedProgress()
    async with (
        open_source(PostgresServer(url=url)) as source,
        open_target(SqliteFolder(folder=folder), may_write=True) as target,
    ):
        await RowMove(source=source, target=target, progress=progress, now=lambda: NOW).run()
    return progress


async def run_command(folder: Path, url: str) -> tuple[float, float]:
    """Returns the seconds and the MiB of the command, from its start to its end."""
    config = folder.parent / "postgresql.yaml"
    config.write_text(
        "apiVersion: pipecd.dev/v1beta1\nkind: ControlPlane\nspec:\n"
        f"  datastore: {{type: POSTGRESQL, config: {{url: '{url}'}}}}\n"
    )
    began_at = time.perf_counter()
    command = [sys.executable, "-c", "from pipecd_controlplane.cli import main; main()", "move"]
    process = subprocess.Popen(
        [*command, "--data-dir", folder, "--to-config", config],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    # Not with asyncio's own way, which takes the figures of the process with it.
    _, status, usage = await asyncio.to_thread(os.wait4, process.pid, 0)
    process.returncode = status
    if status:
        raise RuntimeError("the move failed")
    return time.perf_counter() - began_at, usage.ru_maxrss / 1024


def tell(name: str, taken: TimedProgress, seconds: float) -> None:
    info(f"move.{name}", taken.rows / seconds, "rows/s")
    info(f"move.{name}, texts and messages", taken.bytes / MEBIBYTE / seconds, "MiB/s")


async def measure(folder: Path, server: PostgresForTests) -> None:
    names = [server.create_database(is_empty=True) for _ in range(3)]
    bare = await copy_bare(folder, server.url(names[0]))
    seconds, mebibytes = await run_command(folder, server.url(names[1]))
    with contextlib.closing(sqlite3.connect(folder / DATABASE_FILE)) as connection:
        connection.execute("DELETE FROM pipecd_move")
        connection.commit()
    moved = await move_here(folder, server.url(names[2]))
    back = await move_back(folder.parent / "back", server.url(names[2]))
    info("move.rows", moved.rows, "rows")
    info("move.texts and messages", moved.bytes / MEBIBYTE, "MiB")
    tell("copying", moved, moved.seconds["copying"])
    tell("verifying", moved, moved.seconds["verifying"])
    tell("bare sqlite3 and COPY", moved, bare)
    tell("copying back to SQLite", back, back.seconds["copying"])
    ratio = bare / moved.seconds["copying"]
    report("move.copying to bare sqlite3 and COPY", ratio, "x", Bar(">=", 0.6))
    info("move.whole command, with indexes and verification", seconds, "s")
    report("move.memory of the command", mebibytes, "MiB", Bar("<=", 200.0))


async def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--deployments", type=int, default=50_000)
    chosen = arguments.parse_args()
    with tempfile.TemporaryDirectory() as scratch, running_postgres() as server:
        folder = Path(scratch) / "data"
        async with open_database(
            SqliteFolder(folder=folder), on_commit=lambda _changes: None
        ) as database:
            kept = stores(database, lambda: NOW)
            bare = BareSqlite(folder / DATABASE_FILE)
            await fill_deployments(kept, bare, chosen.deployments)
            await bare.finish()
            await fill_logs(kept)
        await measure(folder, server)


if __name__ == "__main__":
    asyncio.run(main())
