# SPDX-License-Identifier: Apache-2.0
"""Windows, freezes and the emergency stop over the wire."""

from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from pipecd_test_support.controlplane_server import AgentClient, ServedControlPlane
from pipecd_test_support.waiting import Soon
from pipecd_wire.pipecd.api import api_pb2 as own
from pipecd_wire.pipecd.api import windows_pb2 as pb
from pipecd_wire.pipecd.api.windows_pb2_grpc import WindowServiceStub
from pipecd_wire.pipecd.control.control_pb2 import StageAction, Window
from pipecd_wire.pipecd.push import push_pb2
from pipecd_wire.pipedservice import service_pb2 as pipedservice
from pipecd_wire.rpc import CallError, call, stream

if TYPE_CHECKING:
    from pipecd_wire.pipecd.api.windows_pb2_grpc import WindowServiceAsyncStub

WATCH = push_pb2.WatchRequest(instance_id="instance", data_folder_id="folder")


def window(name: str = "night", **fields: Any) -> Window:
    given: dict[str, Any] = {
        "effect": Window.DENY,
        "start": "2020-01-01T00:00:00",
        "duration": Duration(seconds=86400),
        "rule": "FREQ=DAILY",
        "time_zone": "UTC",
    }
    return Window(name=name, **(given | fields))


@pytest.fixture
def windows(plane: ServedControlPlane) -> "WindowServiceAsyncStub":
    stub: WindowServiceAsyncStub = WindowServiceStub(plane.admin.channel)
    return stub


async def set_window(stub: "WindowServiceAsyncStub", wanted: Window) -> Window:
    return (await call(stub.SetWindow, pb.SetWindowRequest(window=wanted))).window


async def create(plane: ServedControlPlane, agent: AgentClient, application_id: str) -> None:
    """As upstream's agents do, which know of no lease."""
    deployment = plane.build.deployment(
        id="new", application_id=application_id, piped_id=agent.id, project_id="default"
    )
    await call(
        agent.service.CreateDeployment,
        pipedservice.CreateDeploymentRequest(deployment=deployment),
    )


async def test_windows_are_set_replaced_and_deleted_by_name(
    windows: "WindowServiceAsyncStub",
) -> None:
    first = await set_window(windows, window("b", reason="one", created_by="mallory"))
    second = await set_window(windows, window("a"))
    again = await set_window(windows, window("b", reason="two"))

    rules = (await call(windows.GetRules, pb.GetRulesRequest())).rules
    assert [(each.name, each.reason) for each in rules.windows] == [("a", ""), ("b", "two")]
    assert (again.id, again.created_by) == (first.id, first.created_by)
    assert first.created_by != "mallory"
    await call(windows.DeleteWindow, pb.DeleteWindowRequest(name="b"))
    rules = (await call(windows.GetRules, pb.GetRulesRequest())).rules
    assert list(rules.windows) == [second]
    with pytest.raises(CallError) as caught:
        await call(windows.DeleteWindow, pb.DeleteWindowRequest(name="b"))
    assert caught.value.status == "NOT_FOUND"


@pytest.mark.parametrize(
    "fields",
    [{"rule": "FREQ=SECONDLY"}, {"time_zone": "Nowhere"}, {"start": "soon"}, {"effect": 0}],
)
async def test_what_is_no_window_is_refused(
    windows: "WindowServiceAsyncStub", fields: dict[str, Any]
) -> None:
    with pytest.raises(CallError) as caught:
        await set_window(windows, window(**fields))

    assert caught.value.status == "INVALID_ARGUMENT"
    assert caught.value.message.startswith("invalid window")


async def test_a_window_for_an_application_that_is_not_there_is_refused(
    windows: "WindowServiceAsyncStub",
) -> None:
    with pytest.raises(CallError) as caught:
        await set_window(windows, window(application_id="nobody"))

    assert caught.value.status == "NOT_FOUND"


async def test_agents_hear_of_rules_at_once(
    plane: ServedControlPlane, windows: "WindowServiceAsyncStub", soon: Soon
) -> None:
    agent = await plane.agent()
    application_id = await plane.application(agent)
    await set_window(windows, window())
    async with aclosing(stream(agent.push.Watch, WATCH)) as messages:
        snapshot = (await soon(anext(messages))).snapshot
        assert [each.name for each in snapshot.rules.windows] == ["night"]

        stop = pb.StopDeploymentsRequest(reason="a fire")
        await call(windows.StopDeployments, stop)
        rules = (await soon(anext(messages))).change.rules
        assert rules.emergency_stop.reason == "a fire"
        assert [each.name for each in rules.windows] == ["night"]

        await call(windows.ResumeDeployments, pb.ResumeDeploymentsRequest())
        change = (await soon(anext(messages))).change
        assert change.HasField("rules")
        assert not change.rules.HasField("emergency_stop")

        freeze = own.SetFreezeRequest(application_id=application_id, frozen=True, reason="audit")
        await call(plane.admin.applications.SetFreeze, freeze)
        (control,) = (await soon(anext(messages))).change.controls
        assert control.freeze.reason == "audit"


async def test_a_repeated_stop_keeps_its_first_reason(windows: "WindowServiceAsyncStub") -> None:
    first = await call(windows.StopDeployments, pb.StopDeploymentsRequest(reason="one"))
    second = await call(windows.StopDeployments, pb.StopDeploymentsRequest(reason="two"))

    assert first.emergency_stop == second.emergency_stop


async def test_what_an_upstream_agent_would_begin_is_refused(
    plane: ServedControlPlane, windows: "WindowServiceAsyncStub"
) -> None:
    agent = await plane.agent()
    application_id = await plane.application(agent)
    freeze = own.SetFreezeRequest(application_id=application_id, frozen=True)

    async def refusal() -> str:
        with pytest.raises(CallError) as caught:
            await create(plane, agent, application_id)
        assert caught.value.status == "FAILED_PRECONDITION"
        return caught.value.message

    await set_window(windows, window())
    assert "the window 'night' denies deployments" in await refusal()
    await call(windows.StopDeployments, pb.StopDeploymentsRequest(reason="a fire"))
    assert "emergency stop" in await refusal()
    await call(windows.ResumeDeployments, pb.ResumeDeploymentsRequest())
    await call(windows.DeleteWindow, pb.DeleteWindowRequest(name="night"))
    await call(plane.admin.applications.SetFreeze, freeze)
    assert "frozen" in await refusal()
    freeze.frozen = False
    await call(plane.admin.applications.SetFreeze, freeze)

    await create(plane, agent, application_id)

    assert (await plane.read_deployment("new")).application_id == application_id


async def test_an_override_is_recorded_with_its_reason(
    plane: ServedControlPlane, windows: "WindowServiceAsyncStub", soon: Soon
) -> None:
    agent = await plane.agent()
    async with aclosing(stream(agent.push.Watch, WATCH)) as messages:
        await soon(anext(messages))
    await plane.deployment(agent, await plane.application(agent), "d1")
    request = pb.OverrideRulesRequest(deployment_id="d1", reason="it is urgent")

    record = (await call(windows.OverrideRules, request)).record
    request.reason = "another"
    again = (await call(windows.OverrideRules, request)).record

    assert record == again
    assert record.override.reason == "it is urgent"
    (action,) = record.actions
    assert (action.kind, action.comment) == (StageAction.OVERRIDDEN, "it is urgent")


async def test_nobody_overrides_without_a_reason(windows: "WindowServiceAsyncStub") -> None:
    with pytest.raises(CallError) as caught:
        await call(windows.OverrideRules, pb.OverrideRulesRequest(deployment_id="d1"))

    assert caught.value.status == "INVALID_ARGUMENT"


async def test_a_week_is_previewed(
    plane: ServedControlPlane, windows: "WindowServiceAsyncStub"
) -> None:
    agent = await plane.agent()
    application_id = await plane.application(agent, labels={"env": "prod"})
    nine = {"start": "2026-03-02T09:00:00", "duration": Duration(seconds=8 * 3600)}
    await set_window(windows, window("office", effect=Window.ALLOW, labels={"env": "prod"}, **nine))
    monday = 1_772_409_600
    request = pb.PreviewWindowsRequest(
        application_id=application_id, start=Timestamp(seconds=monday)
    )

    spans = (await call(windows.PreviewWindows, request)).spans

    assert len(spans) == 15
    assert [bool(each.reason) for each in spans[:3]] == [True, False, True]
    assert spans[1].start.seconds == monday + 9 * 3600
    assert spans[-1].end.seconds == monday + 7 * 86400
    others = pb.PreviewWindowsRequest(start=Timestamp(seconds=monday))
    (free,) = (await call(windows.PreviewWindows, others)).spans
    assert not free.reason


async def test_a_preview_without_end_is_refused(windows: "WindowServiceAsyncStub") -> None:
    request = pb.PreviewWindowsRequest(end=Timestamp(seconds=2**40))
    with pytest.raises(CallError) as caught:
        await call(windows.PreviewWindows, request)

    assert caught.value.status == "INVALID_ARGUMENT"
