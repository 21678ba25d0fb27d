# SPDX-License-Identifier: Apache-2.0
"""Lists and reports of a control plane with 10,000 applications and 1,000,000 deployments.

On SQLite and on PostgreSQL; there are 100,000 events, traces and audit records, and 20,000 chains.
Each list is asked as a handler asks it (off the event loop, messages read), beside the same
statement in the bare driver on the same database. The search among applications is an index in
memory and has no such peer. Reports to SQLite are group-committed; beside them, bare SQLite that
commits as many updates at a time. For reports to PostgreSQL see bench_replicas.py.

    python bench/bench_store.py [--deployments N] [--entries N] [--stores sqlite,postgresql]
        [--folder KEPT]
"""

import argparse
import asyncio
import contextlib
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import asyncpg
from bare_drivers import BareDriver, BarePostgres, BareSqlite
from control_planes import DURABLE
from report import Bar, info, report
from store_entities import (
    APPLICATIONS,
    NOW,
    PIPEDS,
    PROJECT,
    application,
    audit_records,
    chain,
    deployment,
    event,
    piped,
    trace,
)
from store_lists import MeasuredList, list_all
from store_rows import record_chain, record_rows

from pipecd_controlplane.api.web.application_lists import WebApplicationListsApi
from pipecd_controlplane.auth.caller import Person
from pipecd_controlplane.store.open import SqliteFolder, open_database
from pipecd_controlplane.store.postgres.config import PostgresServer
from pipecd_controlplane.store.sqlite.file import DATABASE_FILE
from pipecd_controlplane.store.stores import Stores, stores
from pipecd_controlplane.usecases import deployment_reports as reports
from pipecd_controlplane.usecases import deployments, insights
from pipecd_controlplane.usecases.application_index import ApplicationIndexes
from pipecd_controlplane.usecases.application_search import search
from pipecd_controlplane.usecases.bus import Bus
from pipecd_controlplane.usecases.change_history import ChangeHistories
from pipecd_controlplane.usecases.ownership import Agent
from pipecd_controlplane.usecases.replicated.state import open_replicated
from pipecd_controlplane.usecases.shared_state import ChangeBus
from pipecd_test_support.postgres import running_postgres
from pipecd_wire.model import deployment_pb2 as pb
from pipecd_wire.model import insight_pb2
from pipecd_wire.pipecd.api import overview_pb2
from pipecd_wire.webservice import service_pb2 as webservice

RUNS = 60
ROUNDS = 3
"""Ours and the bare driver take turns: a machine that is busy for a moment slows down both."""
CALLERS = 64
FAST = Bar("<=", 100.0)

Search = overview_pb2.SearchApplicationsRequest


async def fill(kept: Stores, bare: BareDriver, counts: dict[str, int]) -> None:
    await fill_deployments(kept, bare, counts["deployments"])
    await insert_all(kept.pipeds, bare, map(piped, range(PIPEDS)))
    for entities, make, kind in (
        (kept.events, event, "events"),
        (kept.traces, trace, "traces"),
        (kept.chains, chain, "chains"),
    ):
        count = counts[kind]
        await insert_all(entities, bare, map(make, range(count), [count] * count))
    await bare.insert(record_chain(audit_records(counts["audit"])))
    await bare.finish()


async def fill_deployments(kept: Stores, bare: BareDriver, count: int) -> None:
    await insert_all(kept.applications, bare, map(application, range(APPLICATIONS)))
    await insert_all(kept.deployments, bare, map(deployment, range(count), [count] * count))


async def insert_all(entities: Any, bare: BareDriver, made: Iterable[Any]) -> None:
    for rows in record_rows(entities, made):
        await bare.insert(rows)


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


async def measure_lists(kept: Stores, bare: BareDriver, counts: dict[str, int]) -> None:
    for each in list_all(kept, counts):
        await compare(each, bare)
    await measure_unpaged(kept, bare.name)


async def compare(measured: MeasuredList, bare: BareDriver) -> None:
    async def read() -> None:
        for each in measured.reads:
            await bare.read(each)

    started = time.perf_counter()
    await measured.run()
    first = (time.perf_counter() - started) * 1000
    theirs, ours = [], []
    for _ in range(ROUNDS):
        theirs += await timed(read)
        ours += await timed(measured.run)
    label = f"store.{bare.name}: {measured.name}"
    ratio = statistics.median(ours) / statistics.median(theirs)
    bar = None if measured.finds_little else Bar("<=", 4.0)
    report(f"{label}, to the bare driver", ratio, "x", bar)
    report(f"{label}, p95", find_p95(ours), "ms", FAST)
    info(f"{label}, bare", statistics.median(theirs), "ms")
    info(f"{label}, the first time, its filters counted", first, "ms")


async def measure_unpaged(kept: Stores, store: str) -> None:
    """Upstream's page asks for all applications at once."""
    api = WebApplicationListsApi(kept)
    caller = Person(project_id=PROJECT, session_id="", name="ada", via=0)
    request_type = webservice.ListApplicationsRequest
    of_label = request_type.Options(labels={"team": "team-7"})
    requests = {
        "all applications at once": request_type(),
        "the applications of a label at once": request_type(options=of_label),
    }
    for name, request in requests.items():

        async def run(request: webservice.ListApplicationsRequest = request) -> None:
            await api.list_applications(caller, request)

        taken = [each for _ in range(ROUNDS) for each in await timed(run)]
        report(f"store.{store}: {name}, p95", find_p95(taken), "ms", FAST)


async def measure_search(kept: Stores, store: str, bus: ChangeBus) -> None:
    """With the wait until all is heard that other servers have committed."""
    indexes = ApplicationIndexes(kept, ChangeHistories(bus))
    started = time.perf_counter()
    await indexes.read(PROJECT)
    info(f"store.{store}: index of applications made", time.perf_counter() - started, "s")
    requests = {
        "text": Search(text="service-0012"),
        "label": Search(labels=[Search.LabelChoice(key="env", values=["prod"])]),
        "urgency": Search(order=Search.URGENCY),
    }
    for name, request in requests.items():

        async def run(request: Search = request) -> None:
            await asyncio.to_thread(search, await indexes.read(PROJECT), request, {})

        taken = [each for _ in range(ROUNDS) for each in await timed(run)]
        report(f"store.{store}: search by {name}, p95", find_p95(taken), "ms", FAST)


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
    config: SqliteFolder | PostgresServer,
    bare: BareDriver,
    counts: dict[str, int],
    *,
    is_filled: bool,
) -> None:
    async with open_database(config, on_commit=lambda _changes: None) as database:
        kept = stores(database, lambda: NOW)
        if not is_filled:
            started = time.perf_counter()
            await fill(kept, bare, counts)
            info(f"store.{bare.name}: fill", time.perf_counter() - started, "s")
        await measure_lists(kept, bare, counts)
        await figures(kept, bare.name)
        if isinstance(config, SqliteFolder):
            await measure_search(kept, bare.name, Bus())
            (config.folder / "bare.db").unlink(missing_ok=True)
            await report_calls(kept, config.folder / DATABASE_FILE)


async def measure_sqlite(folder: Path, counts: dict[str, int]) -> None:
    path = folder / DATABASE_FILE
    is_filled = path.exists()
    config = SqliteFolder(folder=folder)
    async with open_database(config, on_commit=lambda _changes: None):
        pass  # it makes the tables
    await measure(config, BareSqlite(path), counts, is_filled=is_filled)


async def measure_postgres(counts: dict[str, int]) -> None:
    async with AsyncExitStack() as opened:
        server = opened.enter_context(running_postgres(settings=DURABLE))
        name = await asyncio.to_thread(server.create_database)
        connection = await asyncpg.connect(server.url(name))
        opened.push_async_callback(connection.close)
        config = PostgresServer(url=server.url(name))
        bare = BarePostgres(connection)
        await measure(config, bare, counts, is_filled=False)
        folder = Path(opened.enter_context(tempfile.TemporaryDirectory()))
        state = await opened.enter_async_context(open_replicated(config, folder, []))
        await measure_search(stores(state.database, lambda: NOW), bare.name, state.bus)


async def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--deployments", type=int, default=1_000_000)
    arguments.add_argument("--entries", type=int, default=100_000)
    arguments.add_argument("--stores", default="sqlite,postgresql")
    arguments.add_argument("--folder", type=Path, help="of SQLite: kept, and used again")
    chosen = arguments.parse_args()
    counts = dict.fromkeys(("events", "traces", "audit"), chosen.entries)
    counts |= {"deployments": chosen.deployments, "applications": APPLICATIONS}
    counts["chains"] = chosen.entries // 5
    if "sqlite" in chosen.stores:
        with tempfile.TemporaryDirectory() as scratch:
            await measure_sqlite(chosen.folder or Path(scratch), counts)
    if "postgresql" in chosen.stores:
        await measure_postgres(counts)


if __name__ == "__main__":
    asyncio.run(main())
