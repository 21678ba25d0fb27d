# SPDX-License-Identifier: Apache-2.0
"""Two small services of ours for the tests of the RPC helpers: one unary RPC and one stream."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import Any

import pytest

from pipecd_wire.pipecd.api import api_pb2 as pb
from pipecd_wire.rpc import Admit, Endpoints, GuardStream, Observe, admit_all, rpc

APPLICATIONS = pb.DESCRIPTOR.services_by_name["ApplicationService"]
PROJECTS = pb.DESCRIPTOR.services_by_name["ProjectService"]

Unary = Callable[[Any, pb.ReleaseHoldRequest], Awaitable[pb.ReleaseHoldResponse]]
Streaming = Callable[[Any, pb.WatchChangesRequest], Any]


class Applications:
    def __init__(self, answer: Unary) -> None:
        self._answer = answer

    @rpc("ReleaseHold")
    async def release_hold(
        self, caller: object, request: pb.ReleaseHoldRequest
    ) -> pb.ReleaseHoldResponse:
        return await self._answer(caller, request)


class Projects:
    def __init__(self, answer: Streaming) -> None:
        self._answer = answer

    @rpc("WatchChanges")
    async def watch_changes(
        self, caller: object, request: pb.WatchChangesRequest
    ) -> AsyncIterator[pb.WatchChangesResponse]:
        async with aclosing(self._answer(caller, request)) as responses:
            async for response in responses:
                yield response


async def echo(_caller: object, request: pb.ReleaseHoldRequest) -> pb.ReleaseHoldResponse:
    return pb.ReleaseHoldResponse(command_id=request.application_id)


async def three(
    _caller: object, _request: pb.WatchChangesRequest
) -> AsyncIterator[pb.WatchChangesResponse]:
    for number in range(3):
        yield pb.WatchChangesResponse(changes=[pb.Change(id=str(number))])


@pytest.fixture
def served() -> Callable[..., Endpoints]:
    """Endpoints whose two RPCs do what the test says; by default an echo and three messages."""

    def make(
        unary: Unary = echo,
        streaming: Streaming = three,
        *,
        admit: Admit = admit_all,
        observers: tuple[Observe, ...] = (),
        guard_stream: GuardStream | None = None,
    ) -> Endpoints:
        endpoints = Endpoints(admit=admit, observers=observers, guard_stream=guard_stream)
        unimplemented = set(APPLICATIONS.methods_by_name) - {"ReleaseHold"}
        endpoints.add(APPLICATIONS, Applications(unary), unimplemented=unimplemented)
        unimplemented = set(PROJECTS.methods_by_name) - {"WatchChanges"}
        endpoints.add(PROJECTS, Projects(streaming), unimplemented=unimplemented)
        return endpoints

    return make
