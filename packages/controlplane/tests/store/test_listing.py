# SPDX-License-Identifier: Apache-2.0
"""Lists found by labels and columns: what a filter means does not depend on what leads."""

import re
import tracemalloc
from itertools import product
from typing import Any

import pytest

from pipecd_controlplane.store import chains, events, traces
from pipecd_controlplane.store.applications import ApplicationFilter
from pipecd_controlplane.store.deployments import LIST, DeploymentFilter
from pipecd_controlplane.store.list_statements import BY_UPDATE, ListQuery, Part, build_listing
from pipecd_controlplane.store.listing import (
    DRIVING_SECONDS,
    FREQUENT,
    DrivingFilters,
    Filter,
    FilteredList,
    make_list_key,
)
from pipecd_controlplane.store.paging import MOST_ITEMS
from pipecd_controlplane.store.stores import Stores
from pipecd_model.errors import ConfigError
from pipecd_test_support.controlplane_messages import MessageBuilder
from pipecd_wire.model import (
    application_pb2,
    deployment_chain_pb2,
    deployment_trace_pb2,
    event_pb2,
)
from pipecd_wire.model import deployment_pb2 as pb

STATUSES = (pb.DEPLOYMENT_RUNNING, pb.DEPLOYMENT_FAILURE, pb.DEPLOYMENT_SUCCESS)


async def filled(kept: Stores, build: MessageBuilder) -> list[pb.Deployment]:
    """One of each sort, in the order in which lists have them."""
    made = []
    for number, (status, env, team) in enumerate(
        product(STATUSES, ("dev", "prod", ""), ("x", "y"))
    ):
        labels = {"team": team, **({"env": env} if env else {})}
        made.append(
            build.deployment(
                id=f"d{number:02}",
                status=status,
                completed_at=5,
                labels=labels,
                application_id=f"app-{number % 3}",
                created_at=build.NOON + number // 2,
                updated_at=build.NOON + number,
            )
        )
        await kept.deployments.add(made[-1])
    return sorted(made, key=lambda each: (each.created_at, each.id), reverse=True)


WANTED = [
    DeploymentFilter(),
    DeploymentFilter(labels={"env": "prod"}),
    DeploymentFilter(labels={"env": "prod", "team": "y"}),
    DeploymentFilter(labels={"env": "prod", "nobody": "has"}),
    DeploymentFilter(labels={"team": "x"}, statuses=(pb.DEPLOYMENT_FAILURE,)),
    DeploymentFilter(labels={"team": "x"}, statuses=STATUSES[:2]),
    DeploymentFilter(statuses=STATUSES[:2] * 2),
    DeploymentFilter(statuses=STATUSES[1:], application_ids=("app-0", "app-2")),
    DeploymentFilter(
        labels={"env": "dev"}, application_ids=("app-0",), application_name="hello", kinds=(0,)
    ),
    DeploymentFilter(labels={"env": "dev"}, updated_since=1_700_000_009),
    # Of these some were created since that time, and some before.
    DeploymentFilter(updated_since=1_700_000_005),
    DeploymentFilter(statuses=(pb.DEPLOYMENT_FAILURE,), updated_since=1_700_000_005),
    DeploymentFilter(statuses=STATUSES[:2], updated_since=1_700_000_005),
    DeploymentFilter(
        labels={"team": "x"}, application_ids=("app-0", "app-1"), updated_since=1_700_000_005
    ),
    DeploymentFilter(kinds=(0,), labels={"nobody": "has"}, updated_since=1_700_000_005),
]


def matches(deployment: pb.Deployment, wanted: DeploymentFilter) -> bool:
    return (
        wanted.labels.items() <= dict(deployment.labels).items()
        and (not wanted.statuses or deployment.status in wanted.statuses)
        and (not wanted.application_ids or deployment.application_id in wanted.application_ids)
        and deployment.updated_at >= wanted.updated_since
    )


@pytest.mark.parametrize("limit", [1, 3, 100])
@pytest.mark.parametrize("wanted", WANTED, ids=str)
async def test_pages_hold_exactly_what_matches_in_order(
    kept: Stores, build: MessageBuilder, wanted: DeploymentFilter, limit: int
) -> None:
    expected = [each.id for each in await filled(kept, build) if matches(each, wanted)]

    found, cursor = [], ""
    while True:
        page = await kept.deployments.page("ours", wanted, limit=limit, cursor=cursor)
        found += [each.id for each in page.items]
        assert len(page.items) <= limit
        cursor = page.cursor
        if not cursor:
            break

    assert found == expected


async def test_labels_that_change_are_found_by_what_they_are_now(
    kept: Stores, build: MessageBuilder
) -> None:
    await kept.applications.add(build.application(labels={"env": "dev", "team": "x"}))

    def relabel(application: application_pb2.Application) -> None:
        application.labels.clear()
        application.labels["env"] = "prod"

    await kept.applications.update("ours", "app", relabel)

    async def found(**labels: str) -> int:
        wanted = ApplicationFilter(labels=labels)
        return len((await kept.applications.page("ours", wanted, limit=0, cursor="")).items)

    assert await found(env="prod") == 1
    assert await found(env="dev") == 0
    assert await found(team="x") == 0


async def test_the_rarest_filter_leads(kept: Stores, build: MessageBuilder) -> None:
    await filled(kept, build)
    wanted = DeploymentFilter(
        labels={"env": "prod", "team": "x"}, statuses=(pb.DEPLOYMENT_RUNNING,)
    ).rows()

    leader = await kept.database.read(
        lambda view: FilteredList(LIST, view, "ours", wanted, DrivingFilters()).find_driving()
    )

    assert leader in {"status", "label 0"}  # six of each; the team has nine
    assert min(FREQUENT) > 9


async def test_what_has_led_a_list_leads_its_next_pages_for_some_time(
    kept: Stores, build: MessageBuilder
) -> None:
    now = 0.0
    lately = DrivingFilters(lambda: now)
    await filled(kept, build)
    rare = DeploymentFilter(labels={"env": "none"}, statuses=(pb.DEPLOYMENT_RUNNING,)).rows()

    async def find() -> str:
        return await kept.database.read(
            lambda view: FilteredList(LIST, view, "ours", rare, lately).find_driving()
        )

    assert await find() == "label 0"
    for number in range(9):
        labels = {"env": "none"}
        status = pb.DEPLOYMENT_RUNNING if not number else pb.DEPLOYMENT_FAILURE
        await kept.deployments.add(
            build.deployment(id=f"e{number}", status=status, labels=labels, created_at=build.NOON)
        )
    assert await find() == "label 0"
    page = await kept.deployments.page(
        "ours",
        DeploymentFilter(labels={"env": "none"}, statuses=(pb.DEPLOYMENT_RUNNING,)),
        limit=10,
        cursor="",
    )
    assert [each.id for each in page.items] == ["e0"]
    now += DRIVING_SECONDS
    assert await find() == "status"


def test_what_has_led_is_known_in_little_memory_however_long_the_values_of_filters_are() -> None:
    """Callers choose them: a thousand messages of megabytes would be gigabytes."""
    lately = DrivingFilters()

    def note(number: int) -> None:
        text = f"{number}" * (1 << 20)
        rows = DeploymentFilter(labels={"env": text, text: "x"}).rows()
        lately.note(make_list_key("ours", rows, Part.ALL), "label 0")

    tracemalloc.start()
    try:
        note(0)
        before = tracemalloc.get_traced_memory()[0]
        for number in range(1, 10):
            note(number)
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()

    assert grown < 1 << 20


def test_what_has_led_a_list_is_known_of_that_list_alone() -> None:
    lately = DrivingFilters()

    def key(project_id: str = "ours", part: Part = Part.ALL, **labels: str) -> bytes:
        rows = DeploymentFilter(labels=labels, statuses=STATUSES).rows()
        return make_list_key(project_id, rows, part)

    lately.note(key(env="dev", team="x"), "label 1")

    assert lately.find(key(team="x", env="dev")) == "label 1"
    for other in (
        key(env="dev"),
        key(env="x", team="dev"),
        key(),
        key("theirs", env="dev", team="x"),
        key(part=Part.OLDER, env="dev", team="x"),
    ):
        assert lately.find(other) is None


@pytest.mark.parametrize(
    ("status", "drives"),
    [(pb.DEPLOYMENT_SUCCESS, BY_UPDATE), (pb.DEPLOYMENT_RUNNING, "status")],
)
async def test_what_was_updated_lately_is_found_by_that_unless_another_filter_is_rarer(
    kept: Stores, build: MessageBuilder, status: pb.DeploymentStatus.ValueType, drives: str
) -> None:
    for number in range(9):
        await kept.deployments.add(
            build.deployment(
                id=f"d{number}",
                status=pb.DEPLOYMENT_RUNNING if number == 0 else pb.DEPLOYMENT_SUCCESS,
                updated_at=build.NOON + number,
            )
        )
    wanted = DeploymentFilter(statuses=(status,), updated_since=build.NOON + 6).rows()

    driving = await kept.database.read(
        lambda view: FilteredList(LIST, view, "ours", wanted, DrivingFilters()).find_driving(
            Part.OLDER
        )
    )

    assert driving == drives


def explain(kept: Stores, statement: Any, rows: Filter, *, created_at: int = 5) -> list[str]:
    """How SQLite finds the rows of a list."""
    connection = kept.database._inline  # type: ignore[attr-defined]
    compiled = kept.database._statements[statement]  # type: ignore[attr-defined]
    page = {"project_id": "ours", "created_at": created_at, "after": "", "batch": 10}
    arguments = compiled.arguments({**rows.parameters(), **page})
    found = connection.execute(f"EXPLAIN QUERY PLAN {compiled.text}", arguments)
    return [row[3] for row in found]


@pytest.mark.sqlite
@pytest.mark.parametrize("wanted", WANTED, ids=str)
async def test_every_filter_that_can_lead_walks_along_an_index(
    kept: Stores, wanted: DeploymentFilter
) -> None:
    """No list of ours is sorted after it was read: that would cost all rows for each page."""
    rows = wanted.rows()
    part = Part.NEWER if rows.updated_since else Part.ALL
    driving = await kept.database.read(
        lambda view: FilteredList(LIST, view, "ours", rows, DrivingFilters()).find_driving(part)
    )

    plan = explain(kept, build_listing(LIST, rows.shape(), driving, part), rows)

    assert not [step for step in plan if re.match("SCAN (deployment|first)", step)], plan
    # Walks that are merged are sorted once more, each of them a page long.
    walks = max((len(values) for values in rows.columns.values()), default=1)
    sorts = [step for step in plan if "TEMP B-TREE" in step]
    assert len(sorts) <= (walks if walks > 1 else 0), plan
    ends = [step for step in plan if "created_at>?" in step]
    assert bool(ends) == (part is Part.NEWER), plan


@pytest.mark.sqlite
@pytest.mark.parametrize("of", [LIST, events.LIST, traces.LIST, chains.LIST], ids=lambda o: o.table)
async def test_what_is_older_and_was_updated_is_found_in_an_index_alone(
    kept: Stores, of: ListQuery
) -> None:
    rows = Filter(columns=dict.fromkeys(of.leading, ("x", "y")), updated_since=7)

    plan = explain(kept, build_listing(of, rows.shape(), BY_UPDATE), rows)

    name = of.table.name
    found = f"SEARCH {name} USING COVERING INDEX {name}_by_update (project_id=? AND updated_at>?)"
    assert found in plan
    others = [step for step in plan if step.startswith(("SEARCH", "SCAN")) and step != found]
    assert all("(id=?)" in step for step in others), plan


@pytest.mark.parametrize("limit", [1, 100])
async def test_events_traces_and_chains_are_found_by_the_time_of_their_update(
    kept: Stores, build: MessageBuilder, limit: int
) -> None:
    kinds: list[tuple[Any, Any, Any]] = [
        (kept.events, event_pb2.Event, events.EventFilter),
        (kept.traces, deployment_trace_pb2.DeploymentTrace, traces.TraceFilter),
        (kept.chains, deployment_chain_pb2.DeploymentChain, chains.ChainFilter),
    ]
    for entities, make, make_filter in kinds:
        for number in range(6):
            times = {"created_at": 10 * number, "updated_at": 10 * number + 25}
            await entities.add(make(id=f"e{number}", project_id="ours", **times))

        found, cursor = [], ""
        while True:
            wanted = make_filter(updated_since=50)
            page = await entities.page("ours", wanted, limit=limit, cursor=cursor)
            found += [each.id for each in page.items]
            if not (cursor := page.cursor):
                break

        assert found == ["e5", "e4", "e3"]


@pytest.mark.parametrize(
    ("wanted", "named"),
    [
        (DeploymentFilter(application_ids=tuple(map(str, range(21)))), "application_id: 21"),
        (DeploymentFilter(labels={str(n): "x" for n in range(11)}), "labels: 11"),
    ],
)
async def test_a_filter_has_limits(kept: Stores, wanted: DeploymentFilter, named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        await kept.deployments.page("ours", wanted, limit=1, cursor="")


async def test_a_page_has_limits(kept: Stores, build: MessageBuilder) -> None:
    await filled(kept, build)

    page = await kept.deployments.page("ours", DeploymentFilter(), limit=2**31 - 1, cursor="")
    assert len(page.items) == 18 < MOST_ITEMS
    with pytest.raises(ConfigError, match="less than nothing"):
        await kept.deployments.page("ours", DeploymentFilter(), limit=-1, cursor="")


async def test_a_label_finds_only_what_is_of_the_project(
    kept: Stores, build: MessageBuilder
) -> None:
    """Two projects use one label: neither list, nor page, nor figure of one shows the other."""
    for project_id in ("ours", "theirs"):
        labels = {"env": "prod"}
        await kept.applications.add(
            build.application(id=f"app-{project_id}", project_id=project_id, labels=labels)
        )
        await kept.deployments.add(
            build.deployment(
                id=f"d-{project_id}",
                project_id=project_id,
                labels=labels,
                status=pb.DEPLOYMENT_SUCCESS,
                completed_at=build.NOON,
            )
        )
    labels = {"env": "prod"}

    applications = await kept.applications.page(
        "ours", ApplicationFilter(labels=labels), limit=0, cursor=""
    )
    deployments = await kept.deployments.page(
        "ours", DeploymentFilter(labels=labels), limit=0, cursor=""
    )
    figures = await kept.outcomes.tally("ours", 0, build.NOON + 1, labels=labels)

    assert [each.id for each in applications.items] == ["app-ours"]
    assert [each.id for each in deployments.items] == ["d-ours"]
    assert sum(each.count for each in figures) == 1
