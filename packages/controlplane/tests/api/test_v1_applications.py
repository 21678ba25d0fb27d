# SPDX-License-Identifier: Apache-2.0
"""A sync with a strategy, over the real wire: what the agent is told, and that it is told once."""

import pytest

from pipecd_test_support.controlplane_server import AgentClient, ServedControlPlane
from pipecd_test_support.rpc import call_refused
from pipecd_wire.apiservice import service_pb2 as api
from pipecd_wire.model import command_pb2, common_pb2
from pipecd_wire.pipecd.api import api_pb2 as pb
from pipecd_wire.pipedservice import service_pb2 as pipedservice
from pipecd_wire.rpc import call


async def list_commands(agent: AgentClient) -> list[command_pb2.Command]:
    response = await call(
        agent.service.ListUnhandledCommands, pipedservice.ListUnhandledCommandsRequest()
    )
    return list(response.commands)


@pytest.mark.parametrize("strategy", [common_pb2.AUTO, common_pb2.QUICK_SYNC, common_pb2.PIPELINE])
async def test_the_agent_is_told_the_strategy_and_who_asked_for_it(
    plane: ServedControlPlane, strategy: common_pb2.SyncStrategy.ValueType
) -> None:
    agent = await plane.agent()
    application_id = await plane.application(agent)

    request = pb.SyncApplicationRequest(application_id=application_id, strategy=strategy)
    robot = await plane.user(await plane.new_key("robot"))
    answer = await call(robot.applications.SyncApplication, request)

    (told,) = await list_commands(agent)
    assert told.id == answer.command_id
    assert told.type == command_pb2.Command.SYNC_APPLICATION
    assert told.sync_application.application_id == application_id
    assert told.sync_application.sync_strategy == strategy
    assert told.commander == "robot"


async def test_a_sync_that_is_repeated_with_its_key_is_one_command(
    plane: ServedControlPlane,
) -> None:
    """The other RPC of the same name makes its own: its answer would hide the strategy."""
    agent = await plane.agent()
    application_id = await plane.application(agent)
    careful = await plane.user(plane.admin.key, extra=[("pipecd-idempotency-key", "k1")])
    quick = pb.SyncApplicationRequest(application_id=application_id, strategy=common_pb2.QUICK_SYNC)
    usual = api.SyncApplicationRequest(application_id=application_id)

    first = await call(careful.applications.SyncApplication, quick)
    other = await call(careful.api.SyncApplication, usual)

    assert await call(careful.applications.SyncApplication, quick) == first
    assert first.command_id != other.command_id
    assert {each.id for each in await list_commands(agent)} == {first.command_id, other.command_id}


async def test_a_disabled_application_is_not_synced(plane: ServedControlPlane) -> None:
    agent = await plane.agent()
    application_id = await plane.application(agent)
    disable = api.DisableApplicationRequest(application_id=application_id)
    await call(plane.admin.api.DisableApplication, disable)

    request = pb.SyncApplicationRequest(application_id=application_id)
    error = await call_refused(plane.admin.applications.SyncApplication, request)

    assert error.status == "FAILED_PRECONDITION"
    assert "is disabled" in str(error)


async def test_a_strategy_that_there_is_not_is_refused(plane: ServedControlPlane) -> None:
    agent = await plane.agent()
    request = pb.SyncApplicationRequest(application_id=await plane.application(agent))
    request.strategy = 7  # type: ignore[assignment]  # what a caller of another make may send

    error = await call_refused(plane.admin.applications.SyncApplication, request)

    assert error.status == "INVALID_ARGUMENT"
