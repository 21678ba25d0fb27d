# SPDX-License-Identifier: Apache-2.0
"""Whole histories of an agent's reports, doubled, shuffled and retried, against a real database.

What is refused because something it needs is not there yet is sent again later, as agents do. On
the way no status goes back, no line of a log is there twice; in the end none is missing.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipecd_controlplane.api.piped.deployments import AgentDeploymentsApi
from pipecd_controlplane.api.piped.events import AgentEventsApi
from pipecd_controlplane.api.piped.live_state import AgentLiveStateApi
from pipecd_controlplane.api.piped.stages import AgentStagesApi
from pipecd_controlplane.store.open import open_database
from pipecd_controlplane.store.stage_logs import LogKey
from pipecd_controlplane.store.stores import Stores, stores
from pipecd_controlplane.usecases import events
from pipecd_controlplane.usecases.ownership import Agent
from pipecd_model import deployment as deployments
from pipecd_model import stage as stages
from pipecd_model.errors import ConfigError, ConflictError, NotFoundError, StateError
from pipecd_test_support.chosen_store import count_examples, temporary_database
from pipecd_wire.model import application_live_state_pb2 as live
from pipecd_wire.model import application_pb2, common_pb2, event_pb2, logblock_pb2
from pipecd_wire.model import deployment_pb2 as model
from pipecd_wire.pipedservice import service_pb2 as pb

NOON = 1_700_000_000
AGENT = Agent(project_id="ours", piped_id="piped")
LINES = 9
STAGES = ("s1", "s2")


@dataclass(frozen=True)
class Report:
    """One call of the agent."""

    name: str
    send: Callable[["Server"], Awaitable[Any]]

    def __repr__(self) -> str:
        return self.name


class Server:
    """The handlers over one database."""

    def __init__(self, kept: Stores) -> None:
        self.kept = kept
        self.deployments = AgentDeploymentsApi(kept, lambda: NOON)
        self.stages = AgentStagesApi(kept, lambda: NOON)
        self.events = AgentEventsApi(kept, lambda: NOON)
        self.live = AgentLiveStateApi(kept, lambda: NOON)


def stage(stage_id: str) -> model.PipelineStage:
    return model.PipelineStage(id=stage_id, name="WAIT", created_at=NOON, updated_at=NOON)


def created() -> Report:
    deployment = model.Deployment(
        id="d1",
        application_id="app",
        application_name="hello",
        piped_id="piped",
        project_id="ours",
        created_at=NOON,
        updated_at=NOON,
        labels={"env": "dev"},
    )
    request = pb.CreateDeploymentRequest(deployment=deployment)
    return Report("created", lambda server: server.deployments.create_deployment(AGENT, request))


def planned() -> Report:
    request = pb.ReportDeploymentPlannedRequest(
        deployment_id="d1", stages=[stage(each) for each in STAGES]
    )
    return Report("planned", lambda server: server.deployments.report_planned(AGENT, request))


def running() -> Report:
    request = pb.ReportDeploymentStatusChangedRequest(
        deployment_id="d1", status=model.DEPLOYMENT_RUNNING
    )
    return Report(
        "running", lambda server: server.deployments.report_status_changed(AGENT, request)
    )


def stage_is(stage_id: str, status: model.StageStatus.ValueType) -> Report:
    request = pb.ReportStageStatusChangedRequest(
        deployment_id="d1", stage_id=stage_id, status=status, completed_at=NOON
    )
    return Report(
        f"{stage_id} {model.StageStatus.Name(status)}",
        lambda server: server.stages.report_status_changed(AGENT, request),
    )


def lines(first: int, last: int) -> list[logblock_pb2.LogBlock]:
    return [
        logblock_pb2.LogBlock(index=index, log=f"line {index}", created_at=NOON)
        for index in range(first, last)
    ]


def logged(stage_id: str, first: int, last: int) -> Report:
    request = pb.ReportStageLogsRequest(
        deployment_id="d1", stage_id=stage_id, blocks=lines(first, last)
    )
    return Report(
        f"{stage_id} log {first}-{last}", lambda server: server.stages.report_logs(AGENT, request)
    )


def sealed(stage_id: str) -> Report:
    """The last one of a log holds all that was not acknowledged; here that is everything."""
    request = pb.ReportStageLogsFromLastCheckpointRequest(
        deployment_id="d1", stage_id=stage_id, blocks=lines(0, LINES), completed=True
    )
    return Report(
        f"{stage_id} sealed",
        lambda server: server.stages.report_logs_from_last_checkpoint(AGENT, request),
    )


def noted(key: str) -> Report:
    request = pb.SaveDeploymentPluginMetadataRequest(
        deployment_id="d1", plugin_name="wait", metadata={key: "x"}
    )
    return Report(
        f"noted {key}", lambda server: server.deployments.save_plugin_metadata(AGENT, request)
    )


def completed() -> Report:
    request = pb.ReportDeploymentCompletedRequest(
        deployment_id="d1",
        status=model.DEPLOYMENT_SUCCESS,
        completed_at=NOON + 5,
        stage_statuses=dict.fromkeys(STAGES, model.STAGE_SUCCESS),
    )
    return Report("completed", lambda server: server.deployments.report_completed(AGENT, request))


def handled(status: event_pb2.EventStatus.ValueType) -> Report:
    request = pb.ReportEventStatusesRequest(
        events=[
            pb.ReportEventStatusesRequest.Event(
                id="event", status=status, status_description="said"
            )
        ]
    )
    return Report(
        f"event {event_pb2.EventStatus.Name(status)}",
        lambda server: server.events.report_statuses(AGENT, request),
    )


def seen(at: int) -> Report:
    request = pb.ReportApplicationLiveStateRequest(
        snapshot=live.ApplicationLiveStateSnapshot(
            application_id="app",
            piped_id="piped",
            project_id="ours",
            version=live.ApplicationLiveStateVersion(timestamp=at),
        )
    )
    return Report(f"seen {at}", lambda server: server.live.report_live_state(AGENT, request))


# What an agent sends one after the other: the next one when the one before was taken.
LANES = [
    [
        created(),
        planned(),
        running(),
        stage_is("s1", model.STAGE_RUNNING),
        stage_is("s1", model.STAGE_SUCCESS),
        stage_is("s2", model.STAGE_RUNNING),
        stage_is("s2", model.STAGE_SUCCESS),
        completed(),
    ],
    *(
        [logged(each, 0, 3), logged(each, 2, 6), logged(each, 6, LINES), sealed(each)]
        for each in STAGES
    ),
    [noted("a"), noted("b")],
    [handled(event_pb2.EVENT_NOT_HANDLED), handled(event_pb2.EVENT_SUCCESS)],
    [handled(event_pb2.EVENT_OUTDATED)],
    [seen(1), seen(3)],
    [seen(2)],
]
ALL = [report for lane in LANES for report in lane]


@st.composite
def histories(draw: Any) -> list[Report]:
    """All lanes, interleaved, and copies of reports that arrive again at any later time."""
    places = [place for place, lane in enumerate(LANES) for _ in lane]
    left = [list(lane) for lane in LANES]
    arrivals = [left[place].pop(0) for place in draw(st.permutations(places))]
    for number in draw(st.lists(st.integers(0, len(ALL) - 1), max_size=15)):
        first = arrivals.index(ALL[number])
        arrivals.insert(draw(st.integers(first + 1, len(arrivals))), ALL[number])
    return arrivals


def make_settings() -> settings:
    return settings(
        max_examples=count_examples(100), deadline=None, suppress_health_check=list(HealthCheck)
    )


def test_in_the_end_all_is_as_if_each_report_had_come_once(store_kind: str) -> None:
    @make_settings()
    @given(histories())
    def check(arrivals: list[Report]) -> None:
        asyncio.run(judged(arrivals, complete=True))

    check()


def test_in_any_order_at_all_no_status_goes_back_and_nothing_is_there_twice(
    store_kind: str,
) -> None:
    @make_settings()
    @given(st.lists(st.sampled_from(ALL), max_size=25))
    def check(arrivals: list[Report]) -> None:
        asyncio.run(judged(arrivals, complete=False))

    check()


async def judged(arrivals: list[Report], *, complete: bool) -> None:
    with temporary_database() as config:
        async with open_database(config, on_commit=lambda _changes: None) as database:
            kept = stores(database, lambda: NOON)
            await prepare(kept)
            server = Server(kept)
            waiting = list(arrivals)
            attempts: Counter[str] = Counter()
            before = await state(kept)
            while waiting:
                report = waiting.pop(0)
                attempts[report.name] += 1
                try:
                    await report.send(server)
                except (NotFoundError, ConfigError):
                    # What it is about is not there yet; agents give up after ten attempts.
                    if complete or attempts[report.name] < 10:
                        waiting.append(report)
                except ConflictError:
                    assert report.name == "created"
                except StateError:
                    assert not complete, "a log that was sealed has all of its lines"
                now = await state(kept)
                forward(before, now)
                before = now
            if complete:
                await check_end(kept, before)


async def prepare(kept: Stores) -> None:
    await kept.applications.add(
        application_pb2.Application(
            id="app",
            name="hello",
            piped_id="piped",
            project_id="ours",
            git_path=common_pb2.ApplicationGitPath(path="ab"),
        )
    )
    await events.register(
        kept,
        "ours",
        name="image",
        data="v1",
        labels={},
        contexts={},
        trace=None,
        now=lambda: NOON,
        wanted_id="event",
    )


@dataclass(frozen=True)
class State:
    """What must not go back."""

    deployment: model.Deployment
    event: event_pb2.Event
    logs: dict[str, list[int]]
    seen_at: int


async def state(kept: Stores) -> State:
    logs = await kept.stage_logs.whole(
        "ours", [LogKey(deployment_id="d1", stage_id=each) for each in STAGES]
    )
    snapshot = await kept.live_states.find("ours", "app")
    return State(
        deployment=await kept.deployments.find("ours", "d1") or model.Deployment(),
        event=await kept.events.get("ours", "event"),
        logs={key.stage_id: [b.index for b in part.blocks] for key, part in logs.items()},
        seen_at=snapshot.message.version.timestamp if snapshot else 0,
    )


def rank(status: Any) -> int:
    return 2 if stages.is_completed(status) else int(status)


def forward(before: State, now: State) -> None:
    old, new = before.deployment, now.deployment
    assert deployments.is_completed(new.status) or new.status >= old.status
    assert not deployments.is_completed(old.status) or new.status == old.status
    was = {each.id: each.status for each in old.stages}
    for each in new.stages:
        assert rank(each.status) >= rank(was.get(each.id, 0))
    assert set(was) <= {each.id for each in new.stages}
    assert (
        old.metadata_v2.plugins["wait"].keyValues.items()
        <= dict(new.metadata_v2.plugins["wait"].keyValues).items()
    )
    for stage_id, indexes in now.logs.items():
        assert indexes[: len(before.logs[stage_id])] == before.logs[stage_id]
        assert max(Counter(indexes).values(), default=1) == 1
    if before.event.status == event_pb2.EVENT_SUCCESS:
        assert now.event == before.event
    assert now.seen_at >= before.seen_at


async def check_end(kept: Stores, end: State) -> None:
    assert end.deployment.status == model.DEPLOYMENT_SUCCESS
    assert [each.id for each in end.deployment.stages] == list(STAGES)
    assert {each.status for each in end.deployment.stages} == {model.STAGE_SUCCESS}
    assert dict(end.deployment.metadata_v2.plugins["wait"].keyValues) == {"a": "x", "b": "x"}
    for indexes in end.logs.values():
        assert sorted(indexes) == list(range(LINES))
    assert end.event.status == event_pb2.EVENT_SUCCESS
    assert end.seen_at == 3
    tallies = await kept.outcomes.tally("ours", 0, 2 * NOON, labels={"env": "dev"})
    assert sum(tally.count for tally in tallies) == 1
