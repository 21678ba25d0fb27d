# SPDX-License-Identifier: Apache-2.0
"""Reports are delivered by the names that the journal has on disk."""

from typing import Any

import pytest

from pipecd_piped.controlplane.client import ControlPlane, UnknownRpcError, deliverable_rpcs
from pipecd_wire.pipecd.push.push_pb2_grpc import PushServiceStub
from pipecd_wire.pipedservice import service_pb2 as pb
from pipecd_wire.pipedservice.service_pb2_grpc import PipedServiceStub
from pipecd_wire.rpc import connect


class NamingChannel:
    """A channel whose calls are only the paths of their methods."""

    def unary_unary(self, path: str, *_: object, **__: object) -> str:
        return path.rpartition("/")[2]

    unary_stream = unary_unary


def test_every_name_is_that_of_its_rpc() -> None:
    channel: Any = NamingChannel()
    rpcs = deliverable_rpcs(PipedServiceStub(channel), PushServiceStub(channel))

    expected = {name: name.rpartition("/")[2] for name in rpcs}
    assert {name: str(rpc) for name, rpc in rpcs.items()} == expected


async def test_a_name_that_no_report_has_is_refused() -> None:
    """As from the journal of a newer piped: it is logged and dropped, and the lane goes on."""
    async with connect("unix:nowhere") as channel:
        with pytest.raises(UnknownRpcError, match="ReportWeather"):
            await ControlPlane(channel).deliver_named("ReportWeather", pb.ReportStatRequest())
