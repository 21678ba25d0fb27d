# SPDX-License-Identifier: Apache-2.0
"""Commands for piped itself are carried out once, and their outcome is told."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from pipecd_model.errors import NotFoundError
from pipecd_piped.controlplane.client import ControlPlane
from pipecd_piped.push_commands import PushCommandRunner
from pipecd_wire.pipecd.push import push_pb2 as push
from pipecd_wire.rpc import Endpoints, admit_all, connect, rpc, serving

LIMIT = 20
SERVICE = push.DESCRIPTOR.services_by_name["PushService"]


class Listener:
    """The part of the control plane that hears of outcomes."""

    def __init__(self) -> None:
        self.told: asyncio.Queue[push.ReportCommandHandledRequest] = asyncio.Queue()

    @rpc("ReportCommandHandled")
    async def handled(
        self, _: object, request: push.ReportCommandHandledRequest
    ) -> push.ReportCommandHandledResponse:
        self.told.put_nowait(request)
        return push.ReportCommandHandledResponse()


def restart(command_id: str, plugin: str, **fields: Any) -> push.Command:
    return push.Command(
        id=command_id, type=push.Command.RESTART_PLUGIN, plugin_name=plugin, **fields
    )


class Agent:
    def __init__(self, control: ControlPlane, listener: Listener) -> None:
        self.restarted: list[tuple[str, str]] = []
        self.commands = PushCommandRunner(control, self._restart)
        self._listener = listener

    def _restart(self, name: str, by: str) -> None:
        if name == "unknown":
            raise NotFoundError("no such plugin", hint="it has wait")
        self.restarted.append((name, by))

    async def told(self) -> push.ReportCommandHandledRequest:
        return await asyncio.wait_for(self._listener.told.get(), LIMIT)


@asynccontextmanager
async def agent() -> AsyncIterator[Agent]:
    listener = Listener()
    endpoints = Endpoints(admit=admit_all)
    endpoints.add(
        SERVICE, listener, unimplemented=set(SERVICE.methods_by_name) - {"ReportCommandHandled"}
    )
    async with (
        serving(endpoints, "127.0.0.1:0", grace_seconds=0) as port,
        connect(f"127.0.0.1:{port}") as channel,
        asyncio.TaskGroup() as tasks,
    ):
        made = Agent(ControlPlane(channel), listener)
        working = tasks.create_task(made.commands.run())
        yield made
        working.cancel()


async def test_a_command_that_comes_twice_is_carried_out_once() -> None:
    async with agent() as it:
        it.commands.take([restart("c1", "wait", commander="Ada")])
        it.commands.take([restart("c1", "wait", commander="Ada"), restart("c2", "script")])
        first, second = await it.told(), await it.told()

        assert it.restarted == [("wait", "Ada"), ("script", "a person")]
    assert (first.command_id, first.succeeded) == ("c1", True)
    assert (second.command_id, second.succeeded) == ("c2", True)


async def test_one_that_cannot_be_carried_out_is_told_with_the_reason() -> None:
    async with agent() as it:
        it.commands.take([restart("c1", "unknown"), restart("c2", "wait")])
        first, second = await it.told(), await it.told()

    assert (first.succeeded, first.reason) == (False, "no such plugin (it has wait)")
    assert second.succeeded


async def test_commands_for_others_are_left_to_them() -> None:
    async with agent() as it:
        it.commands.take([push.Command(id="c1", type=push.Command.RETRY_STAGE)])
        it.commands.take([restart("c2", "wait")])

        assert (await it.told()).command_id == "c2"
