# SPDX-License-Identifier: Apache-2.0
"""One caller, however many connections it has, leaves room for all others."""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from pathlib import Path

import pytest

from pipecd_model.config.frontlimits import FrontLimitsConfig
from pipecd_test_support.controlplane_server import ProgramClient, ServedControlPlane
from pipecd_test_support.served_settings import serving_with
from pipecd_test_support.waiting import Soon
from pipecd_wire.apiservice import service_pb2 as apiservice
from pipecd_wire.model import apikey_pb2
from pipecd_wire.pipecd.api import api_pb2
from pipecd_wire.rpc import CallError, call, stream

LIST = apiservice.ListApplicationsRequest()


@pytest.fixture
async def plane(tmp_path: Path) -> AsyncIterator[ServedControlPlane]:
    """A control plane on which nobody has more than two calls open."""
    limits = FrontLimitsConfig(max_calls_per_caller=2)
    async with serving_with(tmp_path / "data", limits=limits) as served:
        yield served


def watch(user: ProgramClient) -> AsyncGenerator[api_pb2.WatchChangesResponse, None]:
    return stream(user.project.WatchChanges, api_pb2.WatchChangesRequest())


async def test_one_caller_has_so_many_calls_open_and_others_do_not_notice(
    plane: ServedControlPlane,
) -> None:
    key = await plane.new_key("robot", role=apikey_pb2.APIKey.READ_ONLY)
    users = [await plane.user(key) for _ in range(3)]
    async with aclosing(watch(users[0])) as first, aclosing(watch(users[1])) as second:
        await anext(first)
        await anext(second)
        for refused in (
            call(users[2].api.ListApplications, LIST),
            anext(watch(users[2])),
            call(users[0].api.ListApplications, LIST),
        ):
            with pytest.raises(CallError) as failed:
                await refused
            assert failed.value.status == "RESOURCE_EXHAUSTED"
            assert "maxCallsPerCaller" in failed.value.message
        await call(plane.admin.api.ListApplications, LIST)


async def test_calls_that_are_over_do_not_count_however_they_ended(
    plane: ServedControlPlane, soon: Soon
) -> None:
    user = await plane.user(await plane.new_key("robot"))

    async def wait_until_answered() -> None:
        while True:
            try:
                await call(user.api.ListApplications, LIST)
            except CallError as error:  # the server hears later of it that a caller has ended one
                if error.status != "RESOURCE_EXHAUSTED":
                    raise
            else:
                return

    for _ in range(4):
        with pytest.raises(CallError) as failed:
            await call(
                user.api.GetDeployment, apiservice.GetDeploymentRequest(deployment_id="none")
            )
        assert failed.value.status == "NOT_FOUND"
        async with aclosing(watch(user)) as first, aclosing(watch(user)) as second:
            await anext(first)
            await anext(second)
        await soon(wait_until_answered())
