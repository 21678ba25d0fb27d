# SPDX-License-Identifier: Apache-2.0
"""People with a session, who call as the web client does."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from pipecd_controlplane.usecases import sessions
from pipecd_test_support.controlplane_server import ServedControlPlane
from pipecd_wire.model import project_pb2
from pipecd_wire.pipecd.api import access_pb2, access_pb2_grpc, api_pb2_grpc
from pipecd_wire.rpc import CallError, call, connect
from pipecd_wire.webservice import service_pb2_grpc as web_grpc


def now() -> int:
    return int(time.time())


@dataclass
class Person:
    """Somebody who has signed in."""

    name: str
    session_id: str
    web: Any
    access: Any
    keys: Any
    project: Any

    async def call(self, name: str, request: Any) -> Any:
        return await call(getattr(self.web, name), request)

    async def refused(self, name: str, request: Any) -> CallError:
        with pytest.raises(CallError) as caught:
            await self.call(name, request)
        return caught.value


@pytest.fixture
def person(plane: ServedControlPlane) -> Callable[..., Any]:
    """`await person("Viewer")`: somebody with this role, in the project that tests use."""

    async def make(
        *roles: str, name: str = "ada", project_id: str = "default", groups: tuple[str, ...] = ()
    ) -> Person:
        identity = sessions.Identity(
            subject=name, via=access_pb2.Session.OIDC, roles=roles, groups=groups
        )
        cookie = await sessions.start(plane.stores, project_id, identity, now=now)
        pairs = [("cookie", f"token={cookie}")]
        channel = await plane.opened.enter_async_context(
            connect(plane.address, metadata=lambda: pairs)
        )
        return Person(
            name=name,
            session_id=cookie.partition(".")[0],
            web=web_grpc.WebServiceStub(channel),
            access=access_pb2_grpc.AccessServiceStub(channel),
            keys=access_pb2_grpc.ApiKeyServiceStub(channel),
            project=api_pb2_grpc.ProjectServiceStub(channel),
        )

    return make


@pytest.fixture
async def admin(person: Any) -> Person:
    made: Person = await person("Admin")
    return made


@pytest.fixture
def policy() -> Callable[..., project_pb2.ProjectRBACPolicy]:
    """`policy("APPLICATION", "GET", team="a")`, the rest being labels."""

    def make(resource: str, *actions: str, **labels: str) -> project_pb2.ProjectRBACPolicy:
        named = project_pb2.ProjectRBACResource(type=resource, labels=labels)
        return project_pb2.ProjectRBACPolicy(resources=[named], actions=actions)

    return make
