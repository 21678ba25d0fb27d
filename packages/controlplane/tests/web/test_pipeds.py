# SPDX-License-Identifier: Apache-2.0
"""Pipeds and their keys, as the settings page works with them."""

import pytest

from pipecd_test_support.controlplane_server import AgentClient, ServedControlPlane
from pipecd_test_support.rpc import call_refused
from pipecd_test_support.web_person import WebPerson
from pipecd_wire.model import command_pb2, piped_pb2
from pipecd_wire.pipedservice import service_pb2 as piped
from pipecd_wire.rpc import CallError, call
from pipecd_wire.webservice import service_pb2 as pb


async def status_of(agent: AgentClient) -> str:
    try:
        await call(agent.service.GetDesiredVersion, piped.GetDesiredVersionRequest())
    except CallError as error:
        return error.status
    return "OK"


async def test_a_new_key_works_beside_the_old_one_until_that_is_deleted(
    plane: ServedControlPlane, admin: WebPerson
) -> None:
    old = await plane.agent()
    made = await call(admin.web.RecreatePipedKey, pb.RecreatePipedKeyRequest(id=old.id))
    new = await plane.agent_with("default", old.id, made.key)
    assert [await status_of(old), await status_of(new)] == ["OK", "OK"]

    await call(admin.web.DeleteOldPipedKeys, pb.DeleteOldPipedKeysRequest(piped_id=old.id))

    assert await status_of(new) == "OK"
    assert await status_of(old) == "UNAUTHENTICATED"


async def test_a_third_key_is_refused_with_the_reason(
    plane: ServedControlPlane, admin: WebPerson
) -> None:
    agent = await plane.agent()
    await call(admin.web.RecreatePipedKey, pb.RecreatePipedKeyRequest(id=agent.id))

    error = await call_refused(admin.web.RecreatePipedKey, pb.RecreatePipedKeyRequest(id=agent.id))

    assert error.status == "FAILED_PRECONDITION"
    assert "has 2 keys already" in error.message


@pytest.mark.parametrize("name", ["", " ", "\n"])
async def test_a_piped_has_a_name(plane: ServedControlPlane, admin: WebPerson, name: str) -> None:
    agent = await plane.agent(name="named")

    made = await call_refused(admin.web.RegisterPiped, pb.RegisterPipedRequest(name=name))
    renamed = await call_refused(
        admin.web.UpdatePiped, pb.UpdatePipedRequest(piped_id=agent.id, name=name)
    )

    assert (made.status, renamed.status) == ("INVALID_ARGUMENT", "INVALID_ARGUMENT")
    assert "name" in made.message
    assert [each.name for each in await plane.stores.pipeds.list_by_project("default")] == ["named"]


async def test_the_list_has_statuses_and_no_hashes(
    plane: ServedControlPlane, admin: WebPerson
) -> None:
    agent = await plane.agent(name="seen")
    await call(agent.service.ReportStat, piped.ReportStatRequest(piped_stats=b"up 1\n"))
    await call(admin.web.RegisterPiped, pb.RegisterPipedRequest(name="never seen", desc="d"))

    listed = await call(admin.web.ListPipeds, pb.ListPipedsRequest(with_status=True))

    statuses = {each.name: each.status for each in listed.pipeds}
    assert statuses == {"seen": piped_pb2.Piped.ONLINE, "never seen": piped_pb2.Piped.UNKNOWN}
    assert {key.hash for each in listed.pipeds for key in each.keys} == {"redacted"}


async def test_the_list_can_be_of_the_enabled_ones(
    plane: ServedControlPlane, admin: WebPerson
) -> None:
    first, second = await plane.agent(name="first"), await plane.agent(name="second")
    await call(admin.web.DisablePiped, pb.DisablePipedRequest(piped_id=first.id))

    request = pb.ListPipedsRequest()
    request.options.enabled.value = True
    listed = await call(admin.web.ListPipeds, request)

    assert [each.id for each in listed.pipeds] == [second.id]
    assert await status_of(first) == "UNAUTHENTICATED"


async def test_a_version_is_wanted_of_all_or_of_none(
    plane: ServedControlPlane, admin: WebPerson
) -> None:
    agent = await plane.agent()
    request = pb.UpdatePipedDesiredVersionRequest(version="v0.50.0", piped_ids=[agent.id, "nobody"])
    assert (await call_refused(admin.web.UpdatePipedDesiredVersion, request)).status == "NOT_FOUND"
    answer = await call(agent.service.GetDesiredVersion, piped.GetDesiredVersionRequest())
    assert answer.version == ""

    request = pb.UpdatePipedDesiredVersionRequest(version="0.50", piped_ids=[agent.id])
    assert (
        await call_refused(admin.web.UpdatePipedDesiredVersion, request)
    ).status == "INVALID_ARGUMENT"

    request = pb.UpdatePipedDesiredVersionRequest(version="v0.50.0", piped_ids=[agent.id])
    await call(admin.web.UpdatePipedDesiredVersion, request)
    answer = await call(agent.service.GetDesiredVersion, piped.GetDesiredVersionRequest())
    assert answer.version == "v0.50.0"


async def test_a_restart_reaches_the_piped_as_a_command(
    plane: ServedControlPlane, admin: WebPerson
) -> None:
    agent = await plane.agent()

    answer = await call(admin.web.RestartPiped, pb.RestartPipedRequest(piped_id=agent.id))

    listed = await call(agent.service.ListUnhandledCommands, piped.ListUnhandledCommandsRequest())
    (command,) = listed.commands
    assert command.id == answer.command_id
    assert command.type == command_pb2.Command.RESTART_PIPED
    assert command.restart_piped.piped_id == agent.id
    assert command.commander == "ada"
