# SPDX-License-Identifier: Apache-2.0
"""Log lines tell which call they are of, and never a secret."""

import contextlib
import logging

import httpx2
import pytest

from pipecd_test_support.controlplane_server import ServedControlPlane
from pipecd_wire.apiservice import service_pb2 as api
from pipecd_wire.pipedservice import service_pb2 as piped
from pipecd_wire.rpc import CallError, call


async def test_a_refused_call_is_logged_with_the_id_it_came_with(
    plane: ServedControlPlane, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    user = await plane.user("unknown.secret", extra=[("x-request-id", "req-7")])

    with pytest.raises(CallError):
        await call(user.api.ListApplications, api.ListApplicationsRequest())

    (line,) = [record for record in caplog.records if record.message == "rpc.handled"]
    fields = line.fields  # type: ignore[attr-defined]
    assert fields["request_id"] == "req-7"
    assert fields["status"] == "UNAUTHENTICATED"
    assert fields["method"].endswith("/ListApplications")


async def test_a_call_that_went_well_names_its_caller_for_who_looks_closely(
    plane: ServedControlPlane, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)

    await call(plane.admin.api.ListApplications, api.ListApplicationsRequest())

    (line,) = [record for record in caplog.records if record.message == "rpc.handled"]
    fields = line.fields  # type: ignore[attr-defined]
    assert fields["project_id"] == "default"
    assert fields["caller"] == f"api-key:{plane.admin.key.partition('.')[0]}"
    assert len(fields["request_id"]) == 32


async def test_no_credential_is_ever_logged(
    plane: ServedControlPlane, caplog: pytest.LogCaptureFixture, client: httpx2.AsyncClient
) -> None:
    caplog.set_level(logging.DEBUG)
    agent = await plane.agent()
    wrong = await plane.agent_with("default", agent.id, "wrong-piped-key")
    malformed = await plane.agent_with("default", agent.id, "a,b,malformed-key")
    user = await plane.user(f"{plane.admin.key}-wrong-api-key")
    for each in (agent, wrong, malformed):
        with contextlib.suppress(CallError):
            await call(each.service.GetDesiredVersion, piped.GetDesiredVersionRequest())
    with contextlib.suppress(CallError):
        await call(user.api.ListApplications, api.ListApplicationsRequest())
    form = {"project": "default", "username": "admin", "password": "a-secret-password"}
    await client.post(f"http://{plane.address}/auth/login/static", data=form)

    told = "\n".join(f"{record.getMessage()} {record.__dict__}" for record in caplog.records)
    for secret in (
        agent.key,
        plane.admin.key.partition(".")[2],
        "wrong-piped-key",
        "malformed-key",
        "wrong-api-key",
        "a-secret-password",
    ):
        assert secret not in told
