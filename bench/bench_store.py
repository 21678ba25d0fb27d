# SPDX-License-Identifier: Apache-2.0
"""Lists and reports of a control plane with 10,000 applications and 1,000,000 deployments.

On SQLite and on PostgreSQL. Each list is asked as a handler asks it (off the event loop, messages
read), beside the same statement in the bare driver on the same database. Reports to SQLite are
group-committed; beside them, bare SQLite that commits as many updates at a time. For reports to
PostgreSQL see bench_replicas.py.

    python bench/bench_store.py [--deployments N] [--stores sqlite,postgresql] [--folder KEPT]
"""

import argparse
import asyncio
import contextlib
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Protocol

import asyncpg
from report import Bar, info, report
from sqlalchemy.dialects.postgresql.asyncpg import PGDialect_asyncpg
from sqlalchemy.dialects.sqlite.base import SQLiteDialect
from store_rows import Rows, copy_into_postgres, insert_into_sqlite, record_rows

from pipecd_controlplane.store.applications import ApplicationFilter
from pipecd_controlplane.store.deployments import LIST, DeploymentFilter
from pipecd_controlplane.store.listing import build_listing
from pipecd_controlplane.store.open import SqliteFolder, open_database
from pipecd_controlplane.store.paging import Position
from pipecd_controlplane.store.postgres.config import PostgresServer
from pipecd_controlplane.store.sqlite.file import DATABASE_FILE
from pipecd_controlplane.store.statements import Compiled
from pipecd_controlplane.store.stores import Stores, stores
from pipecd_controlplane.usecases import deployment_reports as reports
from pipecd_controlplane.usecases import deployments, insights
from pipecd_controlplane.usecases.ownership import Agent
from pipecd_test_support.postgres import running_postgres
from pipecd_wire.model import application_pb2, common_pb2, insight_pb2
from pipecd_wire.model import deployment_pb2 as pb
from pipecd_wire.webservice import service_pb2 as webservice

APPLICATIONS = 10_000
PROJECT = "bench"
NOW = 1_760_000_000
PAGE = 30
RUNS = 60
ROUNDS = 3
"""Ours and the bare driver take turns: a machine that is busy for a moment slows down both."""
CALLERS = 64

STATUSES = (pb.DEPLOYMENT_SUCCESS,) * 17 + (pb.DEPLOYMENT_FAILURE,) * 2 + (pb.DEPLOYMENT_CANCELLED,)


def application(number: int) -> application_pb2.Application:
    return application_pb2.Application(
        id=f"app-{number:05}",
        name=f"service-{number:05}",
        piped_id=f"piped-{number % 50}",
        project_id=PROJECT,
        git_path=common_pb2.ApplicationGitPath(path=f"apps/{number}"),
        labels={"env": ("dev", "prod")[number % 2], "team": f"team-{number % 500}"},
        created_at=NOW - number,
        updated_at=NOW,
    )


def deployment(number: int, count: int) -> pb.Deployment:
    at = NOW - (count - number) * 300
    owner = number * 7919 % APPLICATIONS
    stages = [
        pb.PipelineStage(
            id=f"s{index}", name="SCRIPT_RUN", index=index, created_at=at, updated_at=at
        )
        for index in range(4)
    ]
    return pb.Deployment(
        id=f"dep-{number * 2654435761 % 2**32:010}-{number}",
        application_id=f"app-{owner:05}",
        application_name=f"service-{owner:05}",
        piped_id=f"piped-{owner % 50}",
        project_id=PROJECT,
        git_path=common_pb2.ApplicationGitPath(path=f"apps/{owner}"),
        labels={"env": ("dev", "prod")[owner % 2], "team": f"team-{owner % 500}"},
        trigger=pb.DeploymentTrigger(
            commit=pb.Commit(
                hash=f"{number:040x}", message="a change" * 4, author="somebody", created_at=at - 60
            ),
            timestamp=at,
        ),
        summary="deployed with the pipeline because a stage was configured",
        status=STATUSES[number % len(STATUSES)],
        stages=stages,
        completed_at=at + 120,
        created_at=at,
        updated_at=at + 120,
    )


class BareDriver(Protocol):
    """The driver of a database, without anything of ours around it."""

    name: str

    async def insert(self, rows: Rows) -> None:
        """Writes rows in bulk."""

    async def finish(self) -> None:
        """Gathers statistics, as the database would by itself some time later."""

    async def list(self, statement: Any, parameters: dict[str, Any]) -> list[float]:
        """Returns how many milliseconds each run of a statement took, its messages read."""


class BareSqlite:
    """The file in bare sqlite3."""

    name = "sqlite3"

    def __init__(self, path: Path) -> None:
        self._path = path
        self._connection = sqlite3.connect(path)

    async def insert(self, rows: Rows) -> None:
        insert_into_sqlite(self._path, rows)

    async def finish(self) -> None:
        self._connection.execute("ANALYZE")

    async def list(self, statement: Any, parameters: dict[str, Any]) -> list[float]:
        compiled = Compiled(statement, SQLiteDialect(paramstyle="qmark"))
        arguments = compiled.arguments(parameters)
        self._connection.execute(compiled.text, arguments).fetchall()
        taken = []
        for _ in range(RUNS // ROUNDS):
            started = time.perf_counter()
            for row in self._connection.execute(compiled.text, arguments):
                pb.Deployment.FromString(row[0])
            taken.append((time.perf_counter() - started) * 1000)
        return taken


class BarePostgres:
    """A connection of bare asyncpg."""

    name = "asyncpg"

    def __init__(self, connection: "asyncpg.Connection[asyncpg.Record]") -> None:
        self._connection = connection

    async def insert(self, rows: Rows) -> None:
        await copy_into_postgres(self._connection, rows)

    async def finish(self) -> None:
        await self._connection.execute("VACUUM ANALYZE")

    async def list(self, statement: Any, parameters: dict[str, Any]) -> list[float]:
        dialect = PGDialect_asyncpg(paramstyle="numeric_dollar")  # type: ignore[no-untyped-call] # SQLAlchemy's
        compiled = Compiled(statement, dialect)
        arguments = compiled.arguments(parameters)
        await self._connection.fetch(compiled.text, *arguments)
        taken = []
        for _ in range(RUNS // ROUNDS):
            started = time.perf_counter()
            for row in await self._connection.fetch(compiled.text, *arguments):
                pb.Deployment.FromString(row[0])
            taken.append((time.perf_counter() - started) * 1000)
        return taken


async def fill(kept: Stores, bare: BareDriver, count: int) -> None:
    for rows in record_rows(kept.applications, map(application, range(APPLICATIONS))):
        await bare.insert(rows)
    made = (deployment(number, count) for number in range(count))
    for rows in record_rows(kept.deployments, made):
        await bare.insert(rows)
    await bare.finish()


async def timed(run: Callable[[], Awaitable[Any]]) -> list[float]:
    await run()
    taken = []
    for _ in range(RUNS // ROUNDS):
        started = time.perf_counter()
        await run()
        taken.append((time.perf_counter() - started) * 1000)
    return taken


def find_p95(taken: list[float]) -> float:
    return sorted(taken)[int(len(taken) * 0.95)]


def list_parameters(wanted: DeploymentFilter, cursor: str) -> dict[str, Any]:
    place = Position.decode(cursor) if cursor else Position(created_at=2**62, id="")
    return {
        "project_id": PROJECT,
        **wanted.rows().parameters(),
        "created_at": place.created_at,
        "after": place.id,
        "batch": PAGE + 1,
    }


NOTHING = "a status nobody has"

# Which filter leads in the bare driver: ours has to find that out.
LISTS = {
    "all": ("", DeploymentFilter()),
    "one status": ("status", DeploymentFilter(statuses=(pb.DEPLOYMENT_FAILURE,))),
    "two statuses": (
        "status",
        DeploymentFilter(statuses=(pb.DEPLOYMENT_FAILURE, pb.DEPLOYMENT_CANCELLED)),
    ),
    NOTHING: ("status", DeploymentFilter(statuses=(pb.DEPLOYMENT_RUNNING,))),
    "an application": ("application_id", DeploymentFilter(application_ids=("app-00042",))),
    "a name": ("application_name", DeploymentFilter(application_name="service-00042")),
    "a frequent label": ("label 0", DeploymentFilter(labels={"env": "prod"})),
    "a rare label": ("label 0", DeploymentFilter(labels={"team": "team-7"})),
    "two labels and a status": (
        "label 1",
        DeploymentFilter(
            labels={"env": "prod", "team": "team-7"}, statuses=(pb.DEPLOYMENT_FAILURE,)
        ),
    ),
    "the last 30 days": ("", DeploymentFilter(updated_since=NOW - 30 * 86_400)),
}


async def lists(kept: Stores, bare: BareDriver, count: int) -> None:
    # A place in the middle of everything: half of the rows are before it.
    middle = Position(created_at=NOW - count // 2 * 300, id="").encode()
    for name, (leader, wanted) in LISTS.items():
        for where, cursor in (("first", ""), ("deep", middle)):

            async def run(wanted: DeploymentFilter = wanted, cursor: str = cursor) -> None:
                await kept.deployments.page(PROJECT, wanted, limit=PAGE, cursor=cursor)

            statement = build_listing(LIST, wanted.rows().shape(), leader)
            started = time.perf_counter()
            await run()
            first = (time.perf_counter() - started) * 1000
            theirs, ours = [], []
            for _ in range(ROUNDS):
                theirs += await bare.list(statement, list_parameters(wanted, cursor))
                ours += await timed(run)
            label = f"store.{bare.name}: {where} page of {name}"
            ratio = statistics.median(ours) / statistics.median(theirs)
            # To find nothing takes a few microseconds, and the way to a thread more than that.
            bar = Bar("<=", 4.0) if name != NOTHING else None
            report(f"{label}, to the bare driver", ratio, "x", bar)
            report(f"{label}, p95", find_p95(ours), "ms", Bar("<=", 100.0))
            info(f"{label}, bare", statistics.median(theirs), "ms")
            info(f"{label}, the first time, its filters counted", first, "ms")

    async def found() -> None:
        wanted = ApplicationFilter(labels={"team": "team-7"}, disabled=False)
        await kept.applications.page(PROJECT, wanted, limit=PAGE, cursor="")

    taken = [each for _ in range(ROUNDS) for each in await timed(found)]
    label = f"store.{bare.name}: applications of a label, p95"
    report(label, find_p95(taken), "ms", Bar("<=", 100.0))


async def figures(kept: Stores, store: str) -> None:
    for kind in (insight_pb2.DEPLOYMENT_FREQUENCY, insight_pb2.LEAD_TIME, insight_pb2.MTTR):
        request = webservice.GetInsightDataRequest(
            metrics_kind=kind,
            range_from=NOW - 700 * 86_400,
            range_to=NOW,
            resolution=insight_pb2.MONTHLY,
        )
        started = time.perf_counter()
        await insights.read_data(kept, PROJECT, request, lambda: NOW)
        name = insight_pb2.InsightMetricsKind.Name(kind)
        info(f"store.{store}: two years of {name}", (time.perf_counter() - started) * 1000, "ms")


async def report_calls(kept: Stores, path: Path, seconds: float = 5.0) -> None:
    """Each caller reports on a running deployment of its own, as a piped does."""
    agents = []
    for number in range(CALLERS):
        agent = Agent(project_id=PROJECT, piped_id=f"running-{number}")
        made = deployment(0, 1)
        made.id, made.piped_id = f"running-{number}", agent.piped_id
        made.status, made.completed_at = pb.DEPLOYMENT_RUNNING, 0
        if await kept.deployments.find(PROJECT, made.id) is None:
            await kept.deployments.add(made)
        agents.append((agent, made.id))
    ours = 0
    until = time.perf_counter() + seconds

    def said(number: int) -> Callable[[pb.Deployment], None]:
        return lambda deployment: reports.merge_metadata(deployment, {"progress": str(number)})

    async def caller(agent: Agent, deployment_id: str) -> None:
        nonlocal ours
        while time.perf_counter() < until:
            ours += 1
            await deployments.report(kept, agent, deployment_id, said(ours), lambda: NOW)

    async with asyncio.TaskGroup() as tasks:
        for each in agents:
            tasks.create_task(caller(*each))
    theirs = await asyncio.to_thread(bare_updates, path, [each[1] for each in agents], seconds)
    info("store.report calls", ours / seconds, "/s")
    info("store.bare updates, group-committed", theirs, "/s")
    report("store.report calls to bare SQLite", ours / seconds / theirs, "x", Bar(">=", 0.1))


def bare_updates(path: Path, ids: list[str], seconds: float) -> float:
    """Read, change and write a row by its key; as many in a commit as there are callers."""
    done = 0
    copy = path.with_name("bare.db")
    with contextlib.closing(sqlite3.connect(copy, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("CREATE TABLE row (id TEXT PRIMARY KEY, version INT, data BLOB)")
        data = deployment(0, 1).SerializeToString()
        for row_id in ids:
            connection.execute("INSERT INTO row VALUES (?, 1, ?)", (row_id, data))
        until = time.perf_counter() + seconds
        while time.perf_counter() < until:
            connection.execute("BEGIN IMMEDIATE")
            for row_id in ids:
                row = connection.execute("SELECT version, data FROM row WHERE id = ?", (row_id,))
                version, kept = row.fetchone()
                connection.execute(
                    "UPDATE row SET version = ?, data = ? WHERE id = ? AND version = ?",
                    (version + 1, kept, row_id, version),
                )
                done += 1
            connection.execute("COMMIT")
    return done / seconds


async def measure(
    config: SqliteFolder | PostgresServer, bare: BareDriver, count: int, *, is_filled: bool
) -> None:
    async with open_database(config, on_commit=lambda _changes: None) as database:
        kept = stores(database, lambda: NOW)
        if not is_filled:
            started = time.perf_counter()
            await fill(kept, bare, count)
            info(f"store.{bare.name}: fill", time.perf_counter() - started, "s")
        await lists(kept, bare, count)
        await figures(kept, bare.name)
        if isinstance(config, SqliteFolder):
            (config.folder / "bare.db").unlink(missing_ok=True)
            await report_calls(kept, config.folder / DATABASE_FILE)


async def measure_sqlite(folder: Path, count: int) -> None:
    path = folder / DATABASE_FILE
    is_filled = path.exists()
    config = SqliteFolder(folder=folder)
    async with open_database(config, on_commit=lambda _changes: None):
        pass  # it makes the tables
    await measure(config, BareSqlite(path), count, is_filled=is_filled)


async def measure_postgres(count: int) -> None:
    async with AsyncExitStack() as opened:
        server = opened.enter_context(running_postgres())
        name = await asyncio.to_thread(server.create_database)
        connection = await asyncpg.connect(server.url(name))
        opened.push_async_callback(connection.close)
        config = PostgresServer(url=server.url(name))
        await measure(config, BarePostgres(connection), count, is_filled=False)


async def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--deployments", type=int, default=1_000_000)
    arguments.add_argument("--stores", default="sqlite,postgresql")
    arguments.add_argument("--folder", type=Path, help="of SQLite: kept, and used again")
    chosen = arguments.parse_args()
    if "sqlite" in chosen.stores:
        with tempfile.TemporaryDirectory() as scratch:
            await measure_sqlite(chosen.folder or Path(scratch), chosen.deployments)
    if "postgresql" in chosen.stores:
        await measure_postgres(chosen.deployments)


if __name__ == "__main__":
    asyncio.run(main())
