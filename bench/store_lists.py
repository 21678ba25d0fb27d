# SPDX-License-Identifier: Apache-2.0
"""The lists that bench_store asks for, each beside the statement for the bare driver.

Which filter drives in the bare driver is said here: ours has to find that out.
"""

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Any

from bare_drivers import BareRead
from store_entities import NOW, PROJECT, STEP

from pipecd_controlplane.store import applications, audit, chains, deployments, events, traces
from pipecd_controlplane.store.applications import ApplicationFilter
from pipecd_controlplane.store.audit import FOREVER, AuditFilter
from pipecd_controlplane.store.audit_statements import build_audit_page
from pipecd_controlplane.store.chains import ChainFilter
from pipecd_controlplane.store.deployments import DeploymentFilter
from pipecd_controlplane.store.entities import Entities, RowFilter
from pipecd_controlplane.store.events import EventFilter
from pipecd_controlplane.store.list_statements import BY_UPDATE, ListQuery, Part, build_listing
from pipecd_controlplane.store.paging import START, Position
from pipecd_controlplane.store.pipeds import OF_PROJECT
from pipecd_controlplane.store.stores import Stores
from pipecd_controlplane.store.traces import TraceFilter
from pipecd_wire.model import application_pb2, event_pb2, piped_pb2
from pipecd_wire.model import deployment_pb2 as pb
from pipecd_wire.pipecd.api.api_pb2 import AuditRecord

PAGE = 30
MONTH_AGO = NOW - 30 * 86_400

SUCCESS = (pb.DEPLOYMENT_SUCCESS,)
FAILURE = (pb.DEPLOYMENT_FAILURE,)


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredList:
    """One page as a handler asks for it, and what the bare driver reads for the same."""

    name: str
    run: Callable[[], Awaitable[object]]
    reads: tuple[BareRead, ...]
    finds_little: bool = False
    """A row or none takes microseconds, and the way to a thread more: then there is no bar."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A filter, and which of its parts drives in the bare driver."""

    name: str
    wanted: RowFilter
    driving: str = ""
    finds_little: bool = False


DEPLOYMENTS = (
    Case(name="all", wanted=DeploymentFilter()),
    Case(name="one status", wanted=DeploymentFilter(statuses=FAILURE), driving="status"),
    Case(
        name="two statuses",
        wanted=DeploymentFilter(statuses=(*FAILURE, pb.DEPLOYMENT_CANCELLED)),
        driving="status",
    ),
    Case(
        name="a status nobody has",
        wanted=DeploymentFilter(statuses=(pb.DEPLOYMENT_RUNNING,)),
        driving="status",
        finds_little=True,
    ),
    Case(
        name="an application",
        wanted=DeploymentFilter(application_ids=("app-00042",)),
        driving="application_id",
    ),
    Case(
        name="a name",
        wanted=DeploymentFilter(application_name="service-00042"),
        driving="application_name",
    ),
    Case(name="a kind", wanted=DeploymentFilter(kinds=(0,)), driving="kind"),
    Case(
        name="a frequent label", wanted=DeploymentFilter(labels={"env": "prod"}), driving="label 0"
    ),
    Case(
        name="a rare label", wanted=DeploymentFilter(labels={"team": "team-7"}), driving="label 0"
    ),
    Case(
        name="two labels and a status",
        wanted=DeploymentFilter(labels={"env": "prod", "team": "team-7"}, statuses=FAILURE),
        driving="label 1",
    ),
    Case(name="the last 30 days", wanted=DeploymentFilter(updated_since=MONTH_AGO)),
    Case(
        name="a frequent status of the last 30 days",
        wanted=DeploymentFilter(statuses=SUCCESS, updated_since=MONTH_AGO),
        driving="status",
    ),
    Case(
        name="a kind of the last 30 days",
        wanted=DeploymentFilter(kinds=(0,), updated_since=MONTH_AGO),
        driving="kind",
    ),
    Case(
        name="a frequent label of the last 30 days",
        wanted=DeploymentFilter(labels={"env": "prod"}, updated_since=MONTH_AGO),
        driving="label 0",
    ),
)
APPLICATIONS = (
    Case(name="all", wanted=ApplicationFilter()),
    Case(
        name="a label",
        wanted=ApplicationFilter(labels={"team": "team-7"}, disabled=False),
        driving="label 0",
    ),
    Case(
        name="a name",
        wanted=ApplicationFilter(name="service-00042"),
        driving="name",
        finds_little=True,
    ),
    Case(name="a kind", wanted=ApplicationFilter(kinds=(0,), deleted=False)),
    Case(
        name="a sync status nobody has",
        wanted=ApplicationFilter(sync_statuses=(application_pb2.INVALID_CONFIG,)),
    ),
    Case(name="a piped", wanted=ApplicationFilter(piped_id="piped-7")),
)
EVENTS = (
    Case(name="all", wanted=EventFilter()),
    Case(name="a name", wanted=EventFilter(name="image-7"), driving="name"),
    Case(
        name="a status",
        wanted=EventFilter(statuses=(event_pb2.EVENT_FAILURE,)),
        driving="status",
    ),
    Case(name="a frequent label", wanted=EventFilter(labels={"env": "prod"}), driving="label 0"),
    Case(name="a rare label", wanted=EventFilter(labels={"team": "rare"}), driving="label 0"),
    Case(name="the last 30 days", wanted=EventFilter(updated_since=MONTH_AGO)),
    Case(
        name="a frequent status of the last 30 days",
        wanted=EventFilter(statuses=(event_pb2.EVENT_SUCCESS,), updated_since=MONTH_AGO),
        driving="status",
    ),
)
TRACES = (
    Case(name="all", wanted=TraceFilter()),
    Case(
        name="a commit",
        wanted=TraceFilter(commit_hash=f"{4242:040x}"),
        driving="commit_hash",
        finds_little=True,
    ),
    Case(name="the last 30 days", wanted=TraceFilter(updated_since=MONTH_AGO)),
)
CHAINS = (
    Case(name="all", wanted=ChainFilter()),
    Case(name="the last 30 days", wanted=ChainFilter(updated_since=MONTH_AGO)),
)
AUDIT = (
    ("all", AuditFilter(), ""),
    ("a frequent actor", AuditFilter(actor="ada"), "actor"),
    ("a rare actor", AuditFilter(actor="rare"), "actor"),
    ("a way to sign in", AuditFilter(actor="SSO"), "actor"),
    ("a frequent action", AuditFilter(action="SyncApplication"), "action"),
    ("a rare action", AuditFilter(action="RareAction"), "action"),
    ("a subject", AuditFilter(subject="app-00042"), "subject"),
    ("a subject's name", AuditFilter(subject="service-00042"), "subject"),
    ("a rare action of a frequent actor", AuditFilter(actor="ada", action="RareAction"), "action"),
    ("an actor of the last 30 days", AuditFilter(actor="rare", since=MONTH_AGO), "actor"),
    ("the last 30 days", AuditFilter(since=MONTH_AGO), ""),
)


def list_all(kept: Stores, counts: dict[str, int]) -> Iterator[MeasuredList]:
    """Yields every list; `counts` has how many there are of each kind, which say where half is."""
    kinds: tuple[tuple[str, Entities[Any], ListQuery, tuple[Case, ...]], ...] = (
        ("deployments", kept.deployments, deployments.LIST, DEPLOYMENTS),
        ("applications", kept.applications, applications.LIST, APPLICATIONS),
        ("events", kept.events, events.LIST, EVENTS),
        ("traces", kept.traces, traces.LIST, TRACES),
        ("chains", kept.chains, chains.LIST, CHAINS),
    )
    for kind, entities, query, cases in kinds:
        step = 1 if kind == "applications" else STEP
        middle = Position(created_at=NOW - counts[kind] // 2 * step, id="")
        for case in cases:
            for where, after in (("first", START), ("deep", middle)):
                yield _measure_page(f"{where} page of {kind}: ", entities, query, case, after)
    for name, wanted, driving in AUDIT:
        yield _measure_audit(kept, name, wanted, driving)

    async def list_pipeds() -> None:
        await kept.pipeds.list_by_project(PROJECT)

    read = BareRead(OF_PROJECT, {"project_id": PROJECT}, piped_pb2.Piped.FromString)
    yield MeasuredList(name="all pipeds", run=list_pipeds, reads=(read,))


def _measure_page(
    where: str, entities: Entities[Any], query: ListQuery, case: Case, after: Position
) -> MeasuredList:
    rows = case.wanted.rows()
    part, driving = Part.ALL, case.driving
    if rows.updated_since:
        part = Part.NEWER if after.created_at >= rows.updated_since else Part.OLDER
        driving = BY_UPDATE if part is Part.OLDER else driving
    parameters = {
        "project_id": PROJECT,
        **rows.parameters(),
        "created_at": after.created_at,
        "after": after.id,
        "batch": PAGE + 1,
    }
    statement = build_listing(query, rows.shape(), driving, part)
    cursor = "" if after == START else after.encode()

    async def run() -> None:
        await entities.page(PROJECT, case.wanted, limit=PAGE, cursor=cursor)

    return MeasuredList(
        name=f"{where}{case.name}",
        run=run,
        reads=(BareRead(statement, parameters, entities.message.FromString),),
        finds_little=case.finds_little,
    )


def _measure_audit(kept: Stores, name: str, wanted: AuditFilter, driving: str) -> MeasuredList:
    page = {
        "project_id": PROJECT,
        **wanted.parameters(),
        "after": FOREVER,
        "batch": PAGE + 1,
    }
    statement = build_audit_page(tuple(wanted.values()), driving, oldest_first=False)

    async def run() -> None:
        await kept.audit.page(PROJECT, wanted, limit=PAGE, cursor="")

    # A page says where the chain ends.
    head = BareRead(audit.LAST, {"project_id": PROJECT}, AuditRecord.FromString)
    return MeasuredList(
        name=f"audit: {name}",
        run=run,
        reads=(BareRead(statement, page, AuditRecord.FromString), head),
    )
