# SPDX-License-Identifier: Apache-2.0
"""Why a plugin refused a call: known from the detail, and from the text where there is none."""

import pytest

from pipecd_wire.headers import REFUSAL_TRAILER
from pipecd_wire.pipecd.plugin import plugin_pb2, plugin_pb2_grpc
from pipecd_wire.refusals import find_reason, is_stopping, make_stopping_error
from pipecd_wire.rpc import (
    CallError,
    Endpoints,
    StatusError,
    admit_all,
    call,
    connect,
    rpc,
    serving,
)


class Stages:
    """Refuses every wait with the given error."""

    def __init__(self, refusal: StatusError) -> None:
        self._refusal = refusal

    @rpc("WaitStage")
    async def wait_stage(
        self, _caller: object, request: plugin_pb2.WaitStageRequest
    ) -> plugin_pb2.WaitStageResponse:
        raise self._refusal


async def refuse(refusal: StatusError) -> CallError:
    """Returns what the caller of a plugin that refuses sees, over real gRPC."""
    endpoints = Endpoints(admit=admit_all)
    service = plugin_pb2.DESCRIPTOR.services_by_name["PluginStageService"]
    endpoints.add(service, Stages(refusal))
    request = plugin_pb2.WaitStageRequest(deployment_id="d1", stage_id="s1")
    async with (
        serving(endpoints, "127.0.0.1:0", grace_seconds=0) as port,
        connect(f"127.0.0.1:{port}") as channel,
    ):
        with pytest.raises(CallError) as caught:
            await call(plugin_pb2_grpc.PluginStageServiceStub(channel).WaitStage, request)
    return caught.value


async def test_a_stopping_plugin_says_so_in_a_message_and_in_the_text_of_old() -> None:
    seen = await refuse(make_stopping_error())

    assert is_stopping(seen)
    assert find_reason(seen) == plugin_pb2.Refusal.STOPPING
    assert (seen.status, seen.message) == ("UNAVAILABLE", "plugin is stopping")


async def test_the_text_alone_is_understood() -> None:
    """Upstream's plugins, and those that were built before the message, send nothing else."""
    seen = await refuse(StatusError("UNAVAILABLE", "plugin is stopping"))

    assert is_stopping(seen)
    assert find_reason(seen) is None


async def test_the_message_counts_whatever_the_text_says() -> None:
    trailers = make_stopping_error().trailers

    seen = await refuse(StatusError("UNAVAILABLE", "see you later", trailers=trailers))

    assert is_stopping(seen)


@pytest.mark.parametrize(
    "refusal",
    [
        StatusError("UNAVAILABLE", "the cluster does not answer"),
        StatusError("INTERNAL", "plugin is stopping"),
        StatusError(
            "UNAVAILABLE",
            "plugin is stopping",
            trailers=((REFUSAL_TRAILER, plugin_pb2.Refusal().SerializeToString()),),
        ),
    ],
)
async def test_other_refusals_are_none(refusal: StatusError) -> None:
    assert not is_stopping(await refuse(refusal))


async def test_a_detail_that_is_none_of_ours_is_passed_over() -> None:
    trailers = ((REFUSAL_TRAILER, b"\xff\xff"),)

    seen = await refuse(StatusError("UNAVAILABLE", "plugin is stopping", trailers=trailers))

    assert is_stopping(seen)
