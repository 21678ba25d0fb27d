# SPDX-License-Identifier: Apache-2.0
"""What really runs: snapshots of both generations, and the changes of v0, over the wire."""

import pytest

from pipecd_controlplane.usecases import live_state
from pipecd_controlplane.usecases.ownership import Agent
from pipecd_model.errors import NotFoundError
from pipecd_test_support.controlplane_server import AgentClient, ServedControlPlane
from pipecd_wire.model import analysis_result_pb2, common_pb2
from pipecd_wire.model import application_live_state_pb2 as model
from pipecd_wire.pipedservice import service_pb2 as pb
from pipecd_wire.rpc import CallError, call

Snapshot = model.ApplicationLiveStateSnapshot
Kube = model.KubernetesResourceState


def version(timestamp: int, index: int = 0) -> model.ApplicationLiveStateVersion:
    return model.ApplicationLiveStateVersion(timestamp=timestamp, index=index)


def resource(name: str, health: Kube.HealthStatus.ValueType = Kube.HEALTHY) -> Kube:
    return Kube(
        id=name,
        name=name,
        api_version="v1",
        kind="Pod",
        health_status=health,
        created_at=1,
        updated_at=1,
    )


def kubernetes(agent: AgentClient, application_id: str, at: int, *resources: Kube) -> Snapshot:
    return Snapshot(
        application_id=application_id,
        piped_id=agent.id,
        project_id="default",
        kind=common_pb2.KUBERNETES,
        kubernetes=model.KubernetesApplicationLiveState(resources=resources),
        version=version(at),
    )


def event(
    application_id: str, at: int, index: int, state: Kube, *, deleted: bool = False
) -> model.KubernetesResourceStateEvent:
    kinds = model.KubernetesResourceStateEvent
    return kinds(
        id=f"{at}-{index}",
        application_id=application_id,
        type=kinds.DELETED if deleted else kinds.ADD_OR_UPDATED,
        state=state,
        snapshot_version=version(at, index),
        created_at=1,
    )


async def report(agent: AgentClient, snapshot: Snapshot) -> None:
    await call(
        agent.service.ReportApplicationLiveState,
        pb.ReportApplicationLiveStateRequest(snapshot=snapshot),
    )


async def patch(agent: AgentClient, *events: model.KubernetesResourceStateEvent) -> list[str]:
    answer = await call(
        agent.service.ReportApplicationLiveStateEvents,
        pb.ReportApplicationLiveStateEventsRequest(kubernetes_events=events),
    )
    return list(answer.failed_ids)


async def seen(plane: ServedControlPlane, application_id: str) -> Snapshot:
    return await live_state.read_snapshot(plane.stores, "default", application_id)


async def test_nothing_is_known_before_the_first_report(plane: ServedControlPlane) -> None:
    application_id = await plane.application(await plane.agent())

    with pytest.raises(NotFoundError):
        await seen(plane, application_id)


async def test_changes_are_kept_and_health_is_judged_after_them(plane: ServedControlPlane) -> None:
    agent = await plane.agent()
    application_id = await plane.application(agent)
    await report(agent, kubernetes(agent, application_id, 10, resource("a"), resource("b")))
    assert (await seen(plane, application_id)).health_status == Snapshot.HEALTHY

    await patch(agent, event(application_id, 10, 1, resource("a", Kube.OTHER)))
    worse = await seen(plane, application_id)
    await patch(
        agent,
        event(application_id, 10, 2, resource("a"), deleted=True),
        event(application_id, 10, 3, resource("c")),
    )
    better = await seen(plane, application_id)

    assert worse.health_status == Snapshot.OTHER
    assert better.health_status == Snapshot.HEALTHY
    assert [each.id for each in better.kubernetes.resources] == ["b", "c"]
    assert better.version == version(10, 3)


async def test_a_change_older_than_the_snapshot_is_in_it_already(plane: ServedControlPlane) -> None:
    agent = await plane.agent()
    application_id = await plane.application(agent)
    await report(agent, kubernetes(agent, application_id, 20, resource("a")))

    await patch(agent, event(application_id, 19, 9, resource("gone")))

    assert [each.id for each in (await seen(plane, application_id)).kubernetes.resources] == ["a"]


async def test_a_late_snapshot_does_not_take_the_view_back(plane: ServedControlPlane) -> None:
    agent = await plane.agent()
    application_id = await plane.application(agent)
    await report(agent, kubernetes(agent, application_id, 20, resource("new")))

    await report(agent, kubernetes(agent, application_id, 10, resource("old")))

    found = await seen(plane, application_id)
    assert [each.id for each in found.kubernetes.resources] == ["new"]


async def test_a_clock_that_was_put_back_does_not_hide_what_runs(plane: ServedControlPlane) -> None:
    agent = await plane.agent()
    application_id = await plane.application(agent)
    await report(agent, kubernetes(agent, application_id, 20, resource("new")))
    known = await plane.stores.live_states.find("default", application_id)
    assert known is not None
    later = known.updated_at + 121
    caller = Agent(project_id="default", piped_id=agent.id)

    await live_state.report(
        plane.stores,
        caller,
        kubernetes(agent, application_id, 10, resource("now")),
        lambda: later,
    )

    found = await seen(plane, application_id)
    assert [each.id for each in found.kubernetes.resources] == ["now"]


async def test_changes_before_any_snapshot_are_taken_and_forgotten(
    plane: ServedControlPlane,
) -> None:
    agent = await plane.agent()
    application_id = await plane.application(agent)

    assert await patch(agent, event(application_id, 10, 1, resource("a"))) == []

    with pytest.raises(NotFoundError):
        await seen(plane, application_id)


async def test_changes_of_applications_of_others_are_named_and_left_out(
    plane: ServedControlPlane,
) -> None:
    agent, other = await plane.agent(), await plane.agent(name="other")
    mine = await plane.application(agent)
    theirs = await plane.application(other, name="theirs")
    await report(agent, kubernetes(agent, mine, 10))
    await report(other, kubernetes(other, theirs, 10))

    failed = await patch(
        agent,
        event(theirs, 10, 1, resource("intruder")),
        event(mine, 10, 2, resource("mine")),
    )

    assert failed == ["10-1"]
    assert [each.id for each in (await seen(plane, mine)).kubernetes.resources] == ["mine"]
    assert list((await seen(plane, theirs)).kubernetes.resources) == []


async def test_a_snapshot_of_anothers_application_is_refused(plane: ServedControlPlane) -> None:
    agent, other = await plane.agent(), await plane.agent(name="other")
    theirs = await plane.application(other)

    for snapshot in (kubernetes(agent, theirs, 10), kubernetes(other, theirs, 10)):
        with pytest.raises(CallError) as caught:
            await report(agent, snapshot)
        assert caught.value.status == "PERMISSION_DENIED"


@pytest.mark.parametrize(
    ("healths", "expected"),
    [
        (["HEALTHY", "UNKNOWN", "UNHEALTHY"], "UNHEALTHY"),
        (["HEALTHY", "UNKNOWN"], "UNKNOWN"),
        (["HEALTHY", "HEALTHY"], "HEALTHY"),
    ],
)
async def test_the_worst_resource_of_a_v1_application_is_its_health(
    plane: ServedControlPlane, healths: list[str], expected: str
) -> None:
    agent = await plane.agent()
    application_id = await plane.application(agent)
    resources = [
        model.ResourceState(
            id=str(number),
            name="x",
            health_status=model.ResourceState.HealthStatus.Value(health),
            deploy_target="east",
            plugin_name="files",
            created_at=1,
            updated_at=1,
        )
        for number, health in enumerate(healths)
    ]

    await report(
        agent,
        Snapshot(
            application_id=application_id,
            piped_id=agent.id,
            project_id="default",
            version=version(10),
            application_live_state=model.ApplicationLiveState(resources=resources),
        ),
    )

    found = await seen(plane, application_id)
    assert Snapshot.Status.Name(found.health_status) == expected
    assert list(found.application_live_state.resources) == resources


async def test_the_last_analysis_is_kept_for_the_next_one(plane: ServedControlPlane) -> None:
    agent = await plane.agent()
    application_id = await plane.application(agent)
    ask = pb.GetLatestAnalysisResultRequest(application_id=application_id)
    with pytest.raises(CallError) as caught:
        await call(agent.service.GetLatestAnalysisResult, ask)
    assert caught.value.status == "NOT_FOUND"

    for start_time in (5, 6):
        await call(
            agent.service.PutLatestAnalysisResult,
            pb.PutLatestAnalysisResultRequest(
                application_id=application_id,
                analysis_result=analysis_result_pb2.AnalysisResult(start_time=start_time),
            ),
        )
        answer = await call(agent.service.GetLatestAnalysisResult, ask)
        assert answer.analysis_result.start_time == start_time


async def test_the_analysis_of_anothers_application_is_out_of_reach(
    plane: ServedControlPlane,
) -> None:
    agent, other = await plane.agent(), await plane.agent(name="other")
    theirs = await plane.application(other)

    with pytest.raises(CallError) as caught:
        await call(
            agent.service.PutLatestAnalysisResult,
            pb.PutLatestAnalysisResultRequest(
                application_id=theirs,
                analysis_result=analysis_result_pb2.AnalysisResult(start_time=1),
            ),
        )

    assert caught.value.status == "PERMISSION_DENIED"
