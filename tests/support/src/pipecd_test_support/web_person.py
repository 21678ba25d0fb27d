# SPDX-License-Identifier: Apache-2.0
"""Somebody with a session, who calls as the web client does."""

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from pipecd_controlplane.usecases import sessions
from pipecd_test_support.controlplane_server import ServedControlPlane
from pipecd_wire.apiservice import service_pb2_grpc as api_grpc
from pipecd_wire.pipecd.api import access_pb2, access_pb2_grpc, api_pb2_grpc
from pipecd_wire.rpc import connect
from pipecd_wire.webservice import service_pb2_grpc as web_grpc

if TYPE_CHECKING:  # they are in the stub files only
    from pipecd_wire.apiservice.service_pb2_grpc import APIServiceAsyncStub
    from pipecd_wire.pipecd.api.access_pb2_grpc import (
        AccessServiceAsyncStub,
        ApiKeyServiceAsyncStub,
    )
    from pipecd_wire.pipecd.api.api_pb2_grpc import ProjectServiceAsyncStub
    from pipecd_wire.webservice.service_pb2_grpc import WebServiceAsyncStub


@dataclass
class WebPerson:
    """Somebody who has signed in."""

    name: str
    session_id: str
    web: "WebServiceAsyncStub"
    api: "APIServiceAsyncStub"
    access: "AccessServiceAsyncStub"
    keys: "ApiKeyServiceAsyncStub"
    project: "ProjectServiceAsyncStub"


class SignIn(Protocol):
    """Signs somebody in; see `sign_in`."""

    async def __call__(
        self,
        *roles: str,
        name: str = "ada",
        project_id: str = "default",
        groups: tuple[str, ...] = (),
    ) -> WebPerson: ...


async def sign_in(
    plane: ServedControlPlane,
    *roles: str,
    name: str = "ada",
    project_id: str = "default",
    groups: tuple[str, ...] = (),
) -> WebPerson:
    """Returns somebody with these roles, who calls with a session of the project."""
    identity = sessions.UserIdentity(
        subject=name, via=access_pb2.Session.OIDC, roles=roles, groups=groups
    )
    cookie = await sessions.start(plane.stores, project_id, identity, now=lambda: int(time.time()))
    pairs = [("cookie", f"token={cookie}")]
    channel = await plane.opened.enter_async_context(connect(plane.address, metadata=lambda: pairs))
    return WebPerson(
        name=name,
        session_id=cookie.partition(".")[0],
        web=web_grpc.WebServiceStub(channel),
        api=api_grpc.APIServiceStub(channel),
        access=access_pb2_grpc.AccessServiceStub(channel),
        keys=access_pb2_grpc.ApiKeyServiceStub(channel),
        project=api_pb2_grpc.ProjectServiceStub(channel),
    )
