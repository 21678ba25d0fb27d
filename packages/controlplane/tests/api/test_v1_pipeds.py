# SPDX-License-Identifier: Apache-2.0
"""Restart a plugin of a piped, delete a piped: over the real wire."""

import time
from contextlib import aclosing

import pytest

from pipecd_test_support.controlplane_server import AgentClient, ServedControlPlane
from pipecd_test_support.rpc import call_refused
from pipecd_test_support.waiting import Soon, wait_soon
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
    async with aclosing(stream(agent.push.Watch, WATCH)) as messages:
        await wait_soon(anext(messages))  # it is one of ours
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


async def test_when_a_piped_was_last_seen_is_told(plane: ServedControlPlane, soon: Soon) -> None:
    agent = await plane.agent()

    async def read_last_seen() -> int:
        answer = await call(plane.admin.pipeds.ListPipeds, pb.ListPipedsRequest())
        return answer.pipeds[0].last_seen_at

    begun = int(time.time())
    assert await read_last_seen() == 0
    async with aclosing(stream(agent.push.Watch, WATCH)) as messages:
        await soon(anext(messages))
        assert begun <= await read_last_seen() <= time.time() + 1
    await call(agent.service.ReportStat, pipedservice.ReportStatRequest(piped_stats=b"x 1\n"))
    assert begun <= await read_last_seen() <= time.time() + 1


class TestDelete:
    """A piped that is no more needed can be deleted; one that is needed cannot."""

    async def test_it_is_gone_and_its_key_counts_no_more(self, plane: ServedControlPlane) -> None:
        agent, other = await plane.agent(), await plane.agent(name="other")

        await call(plane.admin.pipeds.DeletePiped, pb.DeletePipedRequest(piped_id=agent.id))

        answer = await call(plane.admin.pipeds.ListPipeds, pb.ListPipedsRequest())
        assert [item.piped.id for item in answer.pipeds] == [other.id]
        refused = await call_refused(agent.service.ReportStat, pipedservice.ReportStatRequest())
        assert refused.status == "UNAUTHENTICATED"
        again = pb.DeletePipedRequest(piped_id=agent.id)
        assert (await call_refused(plane.admin.pipeds.DeletePiped, again)).status == "NOT_FOUND"

    async def test_not_while_it_is_online(self, plane: ServedControlPlane, soon: Soon) -> None:
        agent = await plane.agent()
        async with aclosing(stream(agent.push.Watch, WATCH)) as messages:
            await soon(anext(messages))
            request = pb.DeletePipedRequest(piped_id=agent.id)
            refused = await call_refused(plane.admin.pipeds.DeletePiped, request)

        assert refused.status == "FAILED_PRECONDITION"
        assert "the piped 'agent' is online (stop it first" in refused.message

    async def test_not_while_applications_belong_to_it(self, plane: ServedControlPlane) -> None:
        agent = await plane.agent()
        ids = [await plane.application(agent, name=name) for name in "abcd"]
        request = pb.DeletePipedRequest(piped_id=agent.id)

        refused = await call_refused(plane.admin.pipeds.DeletePiped, request)

        assert refused.status == "FAILED_PRECONDITION"
        assert "applications belong to the piped 'agent': a, b, c and more" in refused.message

        for application_id in ids:
            await call(
                plane.admin.api.DeleteApplication,
                api.DeleteApplicationRequest(application_id=application_id),
            )
        await call(plane.admin.pipeds.DeletePiped, request)
