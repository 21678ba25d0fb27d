# SPDX-License-Identifier: Apache-2.0
"""Lists and reports of a control plane with 10,000 applications and 200,000 deployments.

Each list is asked as a handler asks it (off the event loop, messages read), beside the same
statement in bare sqlite3 on the same file. Reports are group-committed; beside them, bare SQLite
that commits as many updates at a time.

    python bench/bench_store.py [--deployments N] [--folder KEPT]
"""

import argparse
import asyncio
import contextlib
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from report import Bar, info, report
from sqlalchemy.dialects.sqlite.base import SQLiteDialect

from pipecd_controlplane.store.applications import ApplicationFilter
from pipecd_controlplane.store.database import Transaction
from pipecd_controlplane.store.deployments import LIST, DeploymentFilter
from pipecd_controlplane.store.listing import build_listing
from pipecd_controlplane.store.open import SqliteFolder, open_database
from pipecd_controlplane.store.paging import Position
from pipecd_controlplane.store.sqlite.file import DATABASE_FILE
from pipecd_controlplane.store.statements import Compiled
from pipecd_controlplane.store.stores import Stores, stores
from pipecd_controlplane.usecases import deployment_reports as reports
from pipecd_controlplane.usecases import deployments, insights
from pipecd_controlplane.usecases.ownership import Agent
from pipecd_wire.model import application_pb2, common_pb2, insight_pb2
from pipecd_wire.model import deployment_pb2 as pb
from pipecd_wire.webservice import service_pb2 as webservice

APPLICATIONS = 10_000
PROJECT = "bench"
NOW = 1_760_000_000
PAGE = 30
RUNS = 60
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


async def fill(kept: Stores, count: int) -> None:
    async def applications(transaction: Transaction) -> None:
        for number in range(APPLICATIONS):
            await kept.applications.add_in(transaction, application(number))

    await kept.database.write(applications)
    for start in range(0, count, 5000):

        async def some(transaction: Transaction, start: int = start) -> None:
            for number in range(start, min(start + 5000, count)):
                await kept.deployments.add_in(transaction, deployment(number, count))

        await kept.database.write(some)


async def timed(run: Callable[[], Awaitable[Any]]) -> list[float]:
    await run()
    taken = []
    for _ in range(RUNS):
        started = time.perf_counter()
        await run()
        taken.append((time.perf_counter() - started) * 1000)
    return sorted(taken)


def bare(
    connection: sqlite3.Connection, wanted: DeploymentFilter, leader: str, cursor: str
) -> list[float]:
    """The same statement in bare sqlite3, its rows read as messages."""
    rows = wanted.rows()
    compiled = Compiled(
        build_listing(LIST, rows.shape(), leader),
        SQLiteDialect(paramstyle="qmark"),
    )
    place = Position.decode(cursor) if cursor else Position(created_at=2**62, id="")
    arguments = compiled.arguments(
        {
            "project_id": PROJECT,
            **rows.parameters(),
            "created_at": place.created_at,
            "after": place.id,
            "batch": PAGE + 1,
        }
    )
    connection.execute(compiled.text, arguments).fetchall()
    taken = []
    for _ in range(RUNS):
        started = time.perf_counter()
        for row in connection.execute(compiled.text, arguments):
            pb.Deployment.FromString(row[0])
        taken.append((time.perf_counter() - started) * 1000)
    return sorted(taken)


NOTHING = "a status nobody has"

# Which filter leads in bare sqlite3: ours has to find that out.
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


async def lists(kept: Stores, connection: sqlite3.Connection, count: int) -> None:
    # A place in the middle of everything: half of the rows are before it.
    middle = Position(created_at=NOW - count // 2 * 300, id="").encode()
    for name, (leader, wanted) in LISTS.items():
        for where, cursor in (("first", ""), ("deep", middle)):

            async def run(wanted: DeploymentFilter = wanted, cursor: str = cursor) -> None:
                await kept.deployments.page(PROJECT, wanted, limit=PAGE, cursor=cursor)

            ours, theirs = await timed(run), bare(connection, wanted, leader, cursor)
            label = f"store.{where} page of {name}"
            ratio = statistics.median(ours) / statistics.median(theirs)
            # To find nothing takes a few microseconds, and the way to a thread more than that.
            bar = Bar("<=", 5.0) if name != NOTHING else None
            report(f"{label}, to bare sqlite3", ratio, "x", bar)
            report(f"{label}, p95", ours[int(RUNS * 0.95)], "ms", Bar("<=", 100.0))
            info(f"{label}, bare", statistics.median(theirs), "ms")

    async def found() -> None:
        wanted = ApplicationFilter(labels={"team": "team-7"}, disabled=False)
        await kept.applications.page(PROJECT, wanted, limit=PAGE, cursor="")

    taken = await timed(found)
    report("store.applications of a label, p95", taken[int(RUNS * 0.95)], "ms", Bar("<=", 100.0))


async def figures(kept: Stores) -> None:
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
        info(f"store.two years of {name}", (time.perf_counter() - started) * 1000, "ms")


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


async def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--deployments", type=int, default=200_000)
    arguments.add_argument("--folder", type=Path, help="kept, and used again when it is filled")
    chosen = arguments.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = chosen.folder or Path(scratch)
        path = folder / DATABASE_FILE
        filled = path.exists()
        async with open_database(
            SqliteFolder(folder=folder), on_commit=lambda _changes: None
        ) as database:
            kept = stores(database, lambda: NOW)
            if not filled:
                started = time.perf_counter()
                await fill(kept, chosen.deployments)
                info("store.fill", time.perf_counter() - started, "s")
            with contextlib.closing(sqlite3.connect(path)) as connection:
                await lists(kept, connection, chosen.deployments)
            await figures(kept)
            (folder / "bare.db").unlink(missing_ok=True)
            await report_calls(kept, path)


if __name__ == "__main__":
    asyncio.run(main())
