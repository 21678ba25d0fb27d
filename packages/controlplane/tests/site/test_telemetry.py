# SPDX-License-Identifier: Apache-2.0
"""Traces of pipeds are taken at the control plane's address, and sent on unread."""

import pytest

from pipecd_controlplane.api.v1.telemetry import EXPORT, SERVICE, ExportRequest, ExportResponse
from pipecd_test_support.controlplane_server import ServedControlPlane
from pipecd_test_support.served_settings import PlaneWith
from pipecd_wire.rpc import CallError, Endpoints, Metadata, admit_all, call, connect, rpc, serving

# resource_spans { … }: a field that our message knows nothing of.
SPANS = b"\x0a\x07\x0a\x05trace"


class Collector:
    """What a real collector would get."""

    def __init__(self) -> None:
        self.got: list[bytes] = []

    @rpc("Export")
    async def export(self, caller: Metadata, request: ExportRequest) -> ExportResponse:
        self.got.append(request.SerializeToString())
        return ExportResponse()


async def export(plane: ServedControlPlane, authorization: str) -> str:
    async with connect(plane.address) as channel:
        method = channel.unary_unary(
            EXPORT,
            request_serializer=lambda request: request,
            response_deserializer=ExportResponse.FromString,
        )
        try:
            await call(method, SPANS, metadata=[("authorization", authorization)])
        except CallError as error:
            return error.status
        return "OK"


async def test_without_a_collector_traces_are_taken_and_dropped(plane: ServedControlPlane) -> None:
    agent = await plane.agent()

    assert await export(plane, f"Bearer default,{agent.id},{agent.key}") == "OK"


@pytest.mark.parametrize("authorization", ["Bearer default,x,y", "Bearer", "API-KEY a.b", ""])
async def test_traces_are_taken_of_pipeds_only(
    plane: ServedControlPlane, authorization: str
) -> None:
    assert await export(plane, authorization) == "UNAUTHENTICATED"


async def test_with_a_collector_traces_reach_it_as_they_came(plane_with: PlaneWith) -> None:
    collector = Collector()
    endpoints = Endpoints(admit=admit_all)
    endpoints.add(SERVICE, collector)
    async with (
        serving(endpoints, "127.0.0.1:0") as port,
        plane_with(otlp_endpoint=f"http://127.0.0.1:{port}") as plane,
    ):
        agent = await plane.agent()
        assert await export(plane, f"Bearer default,{agent.id},{agent.key}") == "OK"

    assert collector.got == [SPANS]


async def test_a_collector_that_is_away_is_no_trouble_of_a_piped(plane_with: PlaneWith) -> None:
    async with plane_with(otlp_endpoint="127.0.0.1:9") as plane:
        agent = await plane.agent()
        assert await export(plane, f"Bearer default,{agent.id},{agent.key}") == "OK"
