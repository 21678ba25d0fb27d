# SPDX-License-Identifier: Apache-2.0
"""Commands, and what pipeds and plugins keep with us."""

from typing import Any

import pytest

from pipecd_controlplane.store.changes import Change, ChangeKind
from pipecd_controlplane.store.stores import Stores
from pipecd_controlplane.usecases import push_commands
from pipecd_controlplane.usecases.ownership import Agent
from pipecd_model.errors import NotFoundError
from pipecd_test_support.controlplane_messages import MessageBuilder
from pipecd_wire.model import command_pb2
from pipecd_wire.pipecd.push import push_pb2


def outcome(**fields: Any) -> command_pb2.Command:
    defaults = {"id": "c1", "status": command_pb2.COMMAND_SUCCEEDED, "handled_at": 5}
    return command_pb2.Command(**{**defaults, **fields})


async def test_a_handled_command_is_no_longer_listed(kept: Stores, build: MessageBuilder) -> None:
    await kept.commands.add(build.command())
    await kept.commands.add(build.command(id="c2"))

    await kept.commands.record_outcome("ours", "piped", outcome(metadata={"a": "b"}), b"")

    listed = await kept.commands.list_unhandled("ours", "piped")
    assert [command.id for command in listed] == ["c2"]
    command = await kept.commands.get("ours", "c1")
    assert (command.status, command.metadata["a"]) == (command_pb2.COMMAND_SUCCEEDED, "b")


async def test_the_first_outcome_of_a_command_stays(kept: Stores, build: MessageBuilder) -> None:
    await kept.commands.add(build.command())
    await kept.commands.record_outcome("ours", "piped", outcome(), b"output")

    await kept.commands.record_outcome(
        "ours", "piped", outcome(status=command_pb2.COMMAND_FAILED, handled_at=9), b"other"
    )

    command = await kept.commands.get("ours", "c1")
    assert (command.status, command.handled_at) == (command_pb2.COMMAND_SUCCEEDED, 5)


@pytest.mark.parametrize(("project_id", "piped_id"), [("ours", "another"), ("theirs", "piped")])
async def test_a_command_of_another_piped_cannot_be_handled(
    kept: Stores, build: MessageBuilder, project_id: str, piped_id: str
) -> None:
    await kept.commands.add(build.command())

    with pytest.raises(NotFoundError, match="there is no command 'c1'"):
        await kept.commands.record_outcome(project_id, piped_id, outcome(), b"")

    assert (await kept.commands.get("ours", "c1")).status == command_pb2.COMMAND_NOT_HANDLED_YET


async def test_commands_are_listed_to_their_own_piped_only(
    kept: Stores, build: MessageBuilder
) -> None:
    await kept.commands.add(build.command())
    await kept.commands.add(build.command(id="c2", piped_id="another"))
    await kept.commands.add(build.command(id="c3", project_id="theirs"))

    listed = await kept.commands.list_unhandled("ours", "piped")

    assert [command.id for command in listed] == ["c1"]


async def test_our_own_command_is_there_until_it_is_handled(
    kept: Stores, told: list[Change]
) -> None:
    command = push_pb2.Command(id="o1", type=push_pb2.Command.RESTART_PLUGIN, plugin_name="wait")
    await kept.push_commands.add("ours", "piped", command)
    assert await kept.push_commands.find_unhandled("ours", "piped", "o1") == command
    assert await kept.push_commands.find_unhandled("ours", "another", "o1") is None

    ours = Agent(project_id="ours", piped_id="piped")
    for late in (False, True):
        outcome = push_pb2.ReportCommandHandledRequest(
            command_id="o1", succeeded=not late, reason="late" if late else ""
        )
        await push_commands.record_outcome(kept, ours, outcome)

    assert await kept.push_commands.find_unhandled("ours", "piped", "o1") is None
    change = Change(kind=ChangeKind.PUSH_COMMAND, id="o1", project_id="ours", piped_id="piped")
    assert told == [change, change]
    state = await kept.push_commands.find("ours", "o1")
    assert state is not None
    assert (state.command, state.handled, state.succeeded, state.reason) == (
        command,
        True,
        True,
        "",
    )
    assert await kept.push_commands.find("theirs", "o1") is None


async def test_our_own_command_of_another_piped_cannot_be_handled(kept: Stores) -> None:
    await kept.push_commands.add("ours", "piped", push_pb2.Command(id="o1"))

    with pytest.raises(NotFoundError):
        await push_commands.record_outcome(
            kept,
            Agent(project_id="ours", piped_id="another"),
            push_pb2.ReportCommandHandledRequest(command_id="o1", succeeded=True),
        )


async def test_what_a_piped_reports_replaces_what_it_reported_before(kept: Stores) -> None:
    for name in ("wait", "scriptrun"):
        await kept.plugin_states.put(
            "ours",
            "piped",
            push_pb2.ReportPluginsRequest(plugins=[push_pb2.PluginState(name=name)]),
        )

    found = await kept.plugin_states.list_by_project("ours")

    assert [state.name for state in found["piped"].message.plugins] == ["scriptrun"]
    assert await kept.plugin_states.list_by_project("theirs") == {}


async def test_a_shared_object_is_the_bytes_that_were_put_last(kept: Stores) -> None:
    await kept.shared_objects.put("ours", "app", "plugin", "../key", b"one")
    await kept.shared_objects.put("ours", "app", "plugin", "../key", b"\x00two")

    assert await kept.shared_objects.find("ours", "app", "plugin", "../key") == b"\x00two"
    assert await kept.shared_objects.find("ours", "app", "other", "../key") is None
    assert await kept.shared_objects.find("theirs", "app", "plugin", "../key") is None


async def test_only_enabled_applications_are_listed_to_their_piped(
    kept: Stores, build: MessageBuilder
) -> None:
    await kept.applications.add(build.application(id="a"))
    await kept.applications.add(build.application(id="b", disabled=True))
    await kept.applications.add(build.application(id="c", piped_id="another"))

    listed = await kept.applications.list_enabled("ours", "piped")

    assert [application.id for application in listed] == ["a"]
