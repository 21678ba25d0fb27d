# SPDX-License-Identifier: Apache-2.0
"""An agent hears at once: everything when it connects, then each change."""

from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Any

import pytest
from google.protobuf.message import Message

from pipecd_controlplane.usecases.agent_watch import AgentWatch
from pipecd_controlplane.usecases.git_hints import InProcessGitHints
from pipecd_controlplane.usecases.in_process import InProcessPresence
from pipecd_controlplane.usecases.leases import Instance, Leases
from pipecd_controlplane.usecases.ownership import Agent
from pipecd_test_support.controlplane_messages import MessageBuilder
from pipecd_test_support.controlplane_server import AgentClient, ServedControlPlane
from pipecd_test_support.rpc import UnaryMethod
from pipecd_test_support.waiting import Soon
from pipecd_wire.apiservice import service_pb2 as api
from pipecd_wire.model import deployment_pb2 as model
from pipecd_wire.model import piped_pb2
from pipecd_wire.pipecd.api import api_pb2 as own
from pipecd_wire.pipecd.push import push_pb2 as pb
from pipecd_wire.pipedservice import service_pb2 as pipedservice
from pipecd_wire.rpc import CallError, call, stream

REQUEST = pb.WatchRequest(instance_id="instance", data_folder_id="folder")


@asynccontextmanager
async def watching(agent: AgentClient, soon: Soon) -> AsyncIterator[tuple[pb.Snapshot, Any]]:
    async with aclosing(stream(agent.push.Watch, REQUEST)) as messages:
        first = await soon(anext(messages))
        assert first.WhichOneof("body") == "snapshot"
        yield first.snapshot, messages


async def test_the_first_message_is_everything(
    plane: ServedControlPlane, build: MessageBuilder, soon: Soon
) -> None:
    agent, other = await plane.agent(), await plane.agent(name="other")
    application_id = await plane.application(agent)
    disabled = await plane.application(agent, name="off")
    await call(
        plane.admin.api.DisableApplication, api.DisableApplicationRequest(application_id=disabled)
    )
    await plane.application(other)
    await plane.deployment(agent, application_id, "open", build.stage("s1"))
    await plane.deployment(agent, application_id, "ended", build.stage("s1"))
    await call(
        agent.service.ReportDeploymentCompleted,
        pipedservice.ReportDeploymentCompletedRequest(
            deployment_id="ended", status=model.DEPLOYMENT_SUCCESS, completed_at=5
        ),
    )
    asked = await call(
        plane.admin.api.SyncApplication, api.SyncApplicationRequest(application_id=application_id)
    )
    await plane.stores.push_commands.add("default", agent.id, pb.Command(id="own"))

    async with watching(agent, soon) as (snapshot, _):
        assert [application.id for application in snapshot.applications] == [application_id]
        assert [deployment.id for deployment in snapshot.deployments] == ["open"]
        assert [command.id for command in snapshot.commands] == [asked.command_id]
        assert [command.id for command in snapshot.own_commands] == ["own"]
        assert snapshot.lease.held


async def test_a_new_application_comes_at_once_and_goes_at_once(
    plane: ServedControlPlane, soon: Soon
) -> None:
    agent = await plane.agent()
    async with watching(agent, soon) as (snapshot, messages):
        assert list(snapshot.applications) == []

        application_id = await plane.application(agent)
        change = (await soon(anext(messages))).change
        assert [application.id for application in change.applications] == [application_id]

        await call(
            plane.admin.api.DisableApplication,
            api.DisableApplicationRequest(application_id=application_id),
        )
        change = (await soon(anext(messages))).change
        assert list(change.removed_application_ids) == [application_id]
        assert list(change.applications) == []


async def test_a_moved_application_leaves_one_agent_and_reaches_the_other(
    plane: ServedControlPlane, build: MessageBuilder, soon: Soon
) -> None:
    agent, other = await plane.agent(), await plane.agent(name="other")
    application_id = await plane.application(agent)
    async with watching(agent, soon) as (_, from_here), watching(other, soon) as (_, to_there):
        await call(
            plane.admin.api.UpdateApplication,
            api.UpdateApplicationRequest(
                application_id=application_id, piped_id=other.id, git_path=build.git_path()
            ),
        )

        gone = (await soon(anext(from_here))).change
        come = (await soon(anext(to_there))).change

    assert list(gone.removed_application_ids) == [application_id]
    assert [application.id for application in come.applications] == [application_id]


@pytest.mark.parametrize("what", ["sync", "approve", "cancel"])
async def test_a_command_comes_at_once(
    plane: ServedControlPlane, build: MessageBuilder, soon: Soon, what: str
) -> None:
    agent = await plane.agent()
    application_id = await plane.application(agent)
    waits = build.stage("s1", name="WAIT_APPROVAL", status=model.STAGE_RUNNING)
    await plane.deployment(agent, application_id, "d1", waits)
    calls: dict[str, tuple[UnaryMethod, Message]] = {
        "sync": (
            plane.admin.api.SyncApplication,
            api.SyncApplicationRequest(application_id=application_id),
        ),
        "approve": (
            plane.admin.deployments.ApproveStage,
            own.ApproveStageRequest(deployment_id="d1"),
        ),
        "cancel": (
            plane.admin.deployments.CancelDeployment,
            own.CancelDeploymentRequest(deployment_id="d1"),
        ),
    }
    async with watching(agent, soon) as (_, messages):
        asked = await call(*calls[what])

        change = (await soon(anext(messages))).change

    assert [command.id for command in change.commands] == [asked.command_id]


async def test_our_own_command_comes_and_is_handled_once(
    plane: ServedControlPlane, soon: Soon
) -> None:
    agent = await plane.agent()
    async with watching(agent, soon) as (_, messages):
        command = pb.Command(id="own", type=pb.Command.RESTART_PLUGIN, plugin_name="wait")
        await plane.stores.push_commands.add("default", agent.id, command)
        change = (await soon(anext(messages))).change
        assert list(change.own_commands) == [command]

    handled = pb.ReportCommandHandledRequest(command_id="own", succeeded=True)
    await call(agent.push.ReportCommandHandled, handled)
    await call(agent.push.ReportCommandHandled, handled)
    with pytest.raises(CallError) as caught:
        await call(agent.push.ReportCommandHandled, pb.ReportCommandHandledRequest(command_id="x"))
    assert caught.value.status == "NOT_FOUND"
    async with watching(agent, soon) as (snapshot, _):
        assert list(snapshot.own_commands) == []


async def test_a_deployment_comes_with_each_change(
    plane: ServedControlPlane, build: MessageBuilder, soon: Soon
) -> None:
    """A second instance of the same piped must see what the first one does."""
    agent = await plane.agent()
    application_id = await plane.application(agent)
    async with watching(agent, soon) as (_, messages):
        await plane.deployment(agent, application_id, "d1")

        change = (await soon(anext(messages))).change

    assert [deployment.id for deployment in change.deployments] == ["d1"]


async def test_another_agents_changes_are_not_heard(plane: ServedControlPlane, soon: Soon) -> None:
    agent, other = await plane.agent(), await plane.agent(name="other")
    async with watching(agent, soon) as (_, messages):
        await plane.application(other)
        mine = await plane.application(agent)

        change = (await soon(anext(messages))).change

    assert [application.id for application in change.applications] == [mine]


async def test_silence_is_broken_by_a_heartbeat(plane: ServedControlPlane, soon: Soon) -> None:
    agent = await plane.agent()
    bus = plane.running.bus
    watch = AgentWatch(
        plane.stores,
        bus,
        InProcessPresence(bus),
        Leases(plane.stores.leases),
        plane.running.questions,
        InProcessGitHints(bus),
        heartbeat=0.01,
    )
    caller = Agent(project_id="default", piped_id=agent.id)
    instance = Instance(agent=caller, instance_id="instance", data_folder_id="folder")
    async with aclosing(watch.watch(instance)) as messages:
        await soon(anext(messages))

        beats = [(await soon(anext(messages))).WhichOneof("body") for _ in range(3)]

    assert beats == ["heartbeat"] * 3


async def test_a_snapshot_too_large_for_one_message_goes_on_in_the_next(
    plane: ServedControlPlane, soon: Soon
) -> None:
    agent = await plane.agent()
    application_id = await plane.application(agent)
    for number in range(3):
        await plane.deployment(agent, application_id, f"d{number}", summary="x" * 4_000_000)

    async with watching(agent, soon) as (snapshot, messages):
        rest = (await soon(anext(messages))).change

    ids = [deployment.id for deployment in [*snapshot.deployments, *rest.deployments]]
    assert sorted(ids) == ["d0", "d1", "d2"]


async def test_the_pipeds_are_listed_with_connection_and_plugins(
    plane: ServedControlPlane, soon: Soon
) -> None:
    agent = await plane.agent()
    await call(plane.admin.api.RegisterPiped, api.RegisterPipedRequest(name="never started"))
    await call(
        agent.push.ReportPlugins,
        pb.ReportPluginsRequest(plugins=[pb.PluginState(name="wait", state=pb.PluginState.READY)]),
    )

    async def listed() -> dict[str, Any]:
        answer = await call(plane.admin.pipeds.ListPipeds, own.ListPipedsRequest())
        return {item.piped.name: item for item in answer.pipeds}

    before = await listed()
    async with watching(agent, soon):
        during = await listed()

    assert before["agent"].piped.status == piped_pb2.Piped.OFFLINE
    assert during["agent"].piped.status == piped_pb2.Piped.ONLINE
    assert during["never started"].piped.status == piped_pb2.Piped.UNKNOWN
    assert [plugin.name for plugin in during["agent"].plugins] == ["wait"]
    assert list(during["agent"].piped.keys) == []


async def test_a_piped_that_only_polls_is_online_by_its_stats(plane: ServedControlPlane) -> None:
    """A Go agent does not watch."""
    agent = await plane.agent()
    await call(agent.service.ReportStat, pipedservice.ReportStatRequest(piped_stats=b"up 1\n"))

    answer = await call(plane.admin.pipeds.ListPipeds, own.ListPipedsRequest())

    assert [item.piped.status for item in answer.pipeds] == [piped_pb2.Piped.ONLINE]


async def test_everything_that_changes_in_a_project_is_told(
    plane: ServedControlPlane, build: MessageBuilder, soon: Soon
) -> None:
    agent = await plane.agent()
    theirs = await plane.other_project()
    their_agent = await plane.agent(theirs, name="theirs")
    changes = stream(plane.admin.project.WatchChanges, own.WatchChangesRequest())
    async with aclosing(changes) as messages:
        await soon(anext(messages))  # it listens now
        await plane.application(their_agent, theirs)

        application_id = await plane.application(agent)
        (change,) = (await soon(anext(messages))).changes
        assert (change.kind, change.id) == (own.Change.APPLICATION, application_id)

        await plane.deployment(agent, application_id, "d1")
        told = [(each.kind, each.id) for each in (await soon(anext(messages))).changes]
        # The application has a last deployment now.
        assert sorted(told) == [
            (own.Change.APPLICATION, application_id),
            (own.Change.DEPLOYMENT, "d1"),
        ]

        await call(
            agent.service.ReportStageLogs,
            pipedservice.ReportStageLogsRequest(
                deployment_id="d1", stage_id="s1", blocks=build.blocks(1)
            ),
        )
        (change,) = (await soon(anext(messages))).changes
        assert (change.kind, change.id) == (own.Change.STAGE_LOG, "d1/s1/0")


async def test_people_are_told_when_a_piped_comes_and_goes(
    plane: ServedControlPlane, soon: Soon
) -> None:
    agent = await plane.agent()
    changes = stream(plane.admin.project.WatchChanges, own.WatchChangesRequest())
    async with aclosing(changes) as messages:
        await soon(anext(messages))  # it listens now
        async with watching(agent, soon):
            (came,) = (await soon(anext(messages))).changes
        (went,) = (await soon(anext(messages))).changes

    assert (came.kind, came.id) == (own.Change.PIPED, agent.id)
    assert went == came
