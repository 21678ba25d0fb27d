# SPDX-License-Identifier: Apache-2.0
"""Reports are delivered by the names that the journal has on disk."""

import pytest

from pipecd_wire.pipedservice import service_pb2 as pb
from pipecd_wire.pipedservice.service_pb2_grpc import PipedServiceStub
from pipecd_wire.rpc import connect
from piped.controlplane.client import ControlPlane, UnknownRpcError, deliverable_rpcs


class NamingChannel:
    """A channel whose calls are only the paths of their methods."""

    def unary_unary(self, path: str, *_: object, **__: object) -> str:
        return path.rpartition("/")[2]


def test_every_name_is_that_of_its_rpc() -> None:
    rpcs = deliverable_rpcs(PipedServiceStub(NamingChannel()))  # type: ignore[call-overload] # no channel

    assert {name: str(rpc) for name, rpc in rpcs.items()} == {name: name for name in rpcs}


async def test_a_name_that_no_report_has_is_refused() -> None:
    """As from the journal of a newer piped: it is logged and dropped, and the lane goes on."""
    async with connect("unix:nowhere") as channel:
        with pytest.raises(UnknownRpcError, match="ReportWeather"):
            await ControlPlane(channel).deliver_named("ReportWeather", pb.ReportStatRequest())
