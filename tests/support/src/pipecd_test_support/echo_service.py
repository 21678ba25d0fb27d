# SPDX-License-Identifier: Apache-2.0
"""A tiny service that echoes and waits, for tests of what carries its calls."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from pipecd_wire.pipecd.api import api_pb2 as pb
from pipecd_wire.rpc import PEER, Admit, Endpoints, Metadata, rpc


@dataclass
class EchoApi:
    """Echoes; waits where the test says so; tells the caller's address when asked for `peer`."""

    started: asyncio.Event = field(default_factory=asyncio.Event)
    finish: asyncio.Event = field(default_factory=asyncio.Event)
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    @rpc("ReleaseHold")
    async def release_hold(
        self, caller: Metadata, request: pb.ReleaseHoldRequest
    ) -> pb.ReleaseHoldResponse:
        if request.application_id == "wait":
            self.started.set()
            try:
                await self.finish.wait()
            finally:
                self.ended.set()
        answer = caller[PEER] if request.application_id == "peer" else request.application_id
        return pb.ReleaseHoldResponse(command_id=answer)

    @property
    def watch(self) -> "EchoWatch":
        return EchoWatch(self)


class EchoWatch:
    """Streams a message, and the next when the test says so."""

    def __init__(self, api: EchoApi) -> None:
        self._api = api

    @rpc("WatchChanges")
    async def watch_changes(
        self, caller: Metadata, request: pb.WatchChangesRequest
    ) -> AsyncIterator[pb.WatchChangesResponse]:
        self._api.started.set()
        try:
            yield pb.WatchChangesResponse(changes=[pb.Change(id="first")])
            await self._api.finish.wait()
            yield pb.WatchChangesResponse(changes=[pb.Change(id="second")])
        finally:
            self._api.ended.set()


def make_echo_endpoints(api: EchoApi, admit: Admit) -> Endpoints:
    """Returns the endpoints of the service, for whom `admit` lets in."""
    made = Endpoints(admit=admit)
    applications = pb.DESCRIPTOR.services_by_name["ApplicationService"]
    projects = pb.DESCRIPTOR.services_by_name["ProjectService"]
    made.add(applications, api, unimplemented=set(applications.methods_by_name) - {"ReleaseHold"})
    made.add(projects, api.watch, unimplemented=["ListAudit"])
    return made
