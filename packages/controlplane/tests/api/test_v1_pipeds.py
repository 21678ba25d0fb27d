# SPDX-License-Identifier: Apache-2.0
"""Restart a plugin of a piped, over the real wire."""

from contextlib import aclosing

import pytest

from pipecd_test_support.controlplane_server import AgentClient, ServedControlPlane
from pipecd_test_support.waiting import Soon
from pipecd_wire.apiservice import service_pb2 as api
from pipecd_wire.model.piped_pb2 import Piped
from pipecd_wire.pipecd.api import api_pb2 as pb
from pipecd_wire.pipecd.push import push_pb2
from pipecd_wire.pipedservice import service_pb2 as pipedservice
from pipecd_wire.rpc import CallError, call, stream

WATCH = push_pb2.WatchRequest(instance_id="instance", data_folder_id="folder")


async def agent_with_plugins(plane: ServedControlPlane) -> AgentClient:
    agent = await plane.agent()
    meta = pipedservice.ReportPipedMetaRequest(
        version="1", plugins=[Piped.Plugin(name="wait"), Piped.Plugin(name="scriptrun")]
    )
    await call(agent.service.ReportPipedMeta, meta)
    return agent


async def test_the_agent_hears_of_the_wish_at_once(plane: ServedControlPlane, soon: Soon) -> None:
    agent = await agent_with_plugins(plane)
    async with aclosing(stream(agent.push.Watch, WATCH)) as messages:
        await soon(anext(messages))
        answer = await call(
            plane.admin.pipeds.RestartPlugin,
            pb.RestartPluginRequest(piped_id=agent.id, plugin_name="wait"),
        )
        [command] = (await soon(anext(messages))).change.own_commands

    assert command.id == answer.command_id
    assert command.type == push_pb2.Command.RESTART_PLUGIN
    assert command.plugin_name == "wait"
    assert command.commander
    assert command.created_at.seconds


async def test_a_repeated_call_makes_one_command(plane: ServedControlPlane, soon: Soon) -> None:
    agent = await agent_with_plugins(plane)
    request = pb.RestartPluginRequest(piped_id=agent.id, plugin_name="wait")
    key = (("pipecd-idempotency-key", "once"),)
    first = await call(plane.admin.pipeds.RestartPlugin, request, metadata=key)
    second = await call(plane.admin.pipeds.RestartPlugin, request, metadata=key)

    async with aclosing(stream(agent.push.Watch, WATCH)) as messages:
        snapshot = (await soon(anext(messages))).snapshot

    assert first == second
    assert [each.id for each in snapshot.own_commands] == [first.command_id]


@pytest.mark.parametrize(
    ("plugin", "status", "sentence"),
    [
        ("wiat", "NOT_FOUND", "has no plugin 'wiat' (it has wait, scriptrun)"),
        ("wait", "FAILED_PRECONDITION", "is disabled"),
    ],
)
async def test_what_cannot_be_restarted_is_refused(
    plane: ServedControlPlane, plugin: str, status: str, sentence: str
) -> None:
    agent = await agent_with_plugins(plane)
    if status == "FAILED_PRECONDITION":
        await call(plane.admin.api.DisablePiped, api.DisablePipedRequest(piped_id=agent.id))

    with pytest.raises(CallError) as caught:
        await call(
            plane.admin.pipeds.RestartPlugin,
            pb.RestartPluginRequest(piped_id=agent.id, plugin_name=plugin),
        )

    assert caught.value.status == status
    assert sentence in str(caught.value)


async def test_a_piped_that_nobody_knows_is_refused(plane: ServedControlPlane) -> None:
    with pytest.raises(CallError) as caught:
        await call(
            plane.admin.pipeds.RestartPlugin,
            pb.RestartPluginRequest(piped_id="nobody", plugin_name="wait"),
        )

    assert caught.value.status == "NOT_FOUND"
