# SPDX-License-Identifier: Apache-2.0
"""An idempotency key belongs to one caller and one RPC: what others make with it is their own."""

import pytest

from pipecd_controlplane.usecases.commands import id_of_request
from pipecd_test_support.controlplane_messages import MessageBuilder
from pipecd_test_support.controlplane_server import AgentClient, ServedControlPlane
from pipecd_wire.model import command_pb2
from pipecd_wire.model import deployment_pb2 as model
from pipecd_wire.pipecd.api import api_pb2 as pb
from pipecd_wire.pipedservice import service_pb2 as pipedservice
from pipecd_wire.rpc import call

KEY = [("pipecd-idempotency-key", "once")]


async def list_commands(agent: AgentClient) -> list[command_pb2.Command]:
    response = await call(
        agent.service.ListUnhandledCommands, pipedservice.ListUnhandledCommandsRequest()
    )
    return list(response.commands)


@pytest.fixture
async def agent(plane: ServedControlPlane, build: MessageBuilder) -> AgentClient:
    """An agent with the deployment `d1`, whose stage `s1` waits for approval."""
    agent = await plane.agent()
    waiting = build.stage(
        "s1",
        name="WAIT_APPROVAL",
        status=model.STAGE_RUNNING,
        available_operation=model.MANUAL_OPERATION_APPROVE,
    )
    await plane.deployment(agent, await plane.application(agent), "d1", waiting)
    return agent


async def test_the_same_key_of_two_callers_makes_a_command_for_each(
    plane: ServedControlPlane, agent: AgentClient
) -> None:
    first = await plane.user(plane.admin.key, extra=KEY)
    second = await plane.user(await plane.new_key("second"), extra=KEY)
    request = pb.CancelDeploymentRequest(deployment_id="d1")

    made = [
        (await call(user.deployments.CancelDeployment, request)).command_id
        for user in (first, second, first, second)
    ]

    assert made[0] != made[1]
    assert made[2:] == made[:2]
    assert {command.id for command in await list_commands(agent)} == set(made)


async def test_the_same_key_on_two_rpcs_makes_a_command_for_each(
    plane: ServedControlPlane, agent: AgentClient
) -> None:
    user = await plane.user(plane.admin.key, extra=KEY)
    approve = pb.ApproveStageRequest(deployment_id="d1", stage_id="s1")
    cancel = pb.CancelDeploymentRequest(deployment_id="d1")

    approved = await call(user.deployments.ApproveStage, approve)
    cancelled = await call(user.deployments.CancelDeployment, cancel)

    assert {command.id: command.type for command in await list_commands(agent)} == {
        approved.command_id: command_pb2.Command.APPROVE_STAGE,
        cancelled.command_id: command_pb2.Command.CANCEL_DEPLOYMENT,
    }
    assert await call(user.deployments.ApproveStage, approve) == approved
    assert await call(user.deployments.CancelDeployment, cancel) == cancelled


def test_each_part_of_a_request_alone_makes_an_id_of_its_own() -> None:
    request = ("project", "caller", "CancelDeployment", "key")
    others = [(*request[:n], "other", *request[n + 1 :]) for n in range(len(request))]

    ids = {id_of_request(*each) for each in (request, *others)}

    assert len(ids) == len(request) + 1
    assert id_of_request(*request) in ids


def test_a_call_without_a_key_has_no_id_of_its_own() -> None:
    assert id_of_request("project", "caller", "CancelDeployment", "") is None
