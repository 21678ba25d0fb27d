# SPDX-License-Identifier: Apache-2.0
"""A control plane as browsers and their web client see it, with projects whose people sign in."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import httpx2
from google.protobuf.message import Message

from pipecd_controlplane.store.database import Transaction
from pipecd_controlplane.usecases.keys import hash_of
from pipecd_test_support.controlplane_server import ServedControlPlane
from pipecd_test_support.served_settings import serving_with
from pipecd_wire.model import project_pb2
from pipecd_wire.rpc import CallError, call, connect
from pipecd_wire.webservice import service_pb2 as web
from pipecd_wire.webservice import service_pb2_grpc as web_grpc

PASSWORD = "correct horse"  # noqa: S105 - of a project that lives as long as a test


@dataclass
class SignInSite:
    """A control plane, as browsers and their web client see it."""

    plane: ServedControlPlane
    opened: AsyncExitStack
    scheme: str = "http"

    @property
    def url(self) -> str:
        return f"{self.scheme}://{self.plane.address}"

    async def browser(self, **options: Any) -> httpx2.AsyncClient:
        client = httpx2.AsyncClient(base_url=self.url, trust_env=False, timeout=30, **options)
        return await self.opened.enter_async_context(client)

    async def project(self, project_id: str = "shop", **fields: Any) -> None:
        project = project_pb2.Project(
            id=project_id,
            static_admin=project_pb2.ProjectStaticUser(
                username="boss", password_hash=await hash_of(PASSWORD)
            ),
            created_at=1,
            updated_at=1,
            **fields,
        )

        async def work(transaction: Transaction) -> None:
            await self.plane.stores.projects.add_in(transaction, project)

        await self.plane.stores.database.write(work)

    async def sign_in(self, browser: httpx2.AsyncClient, **fields: str) -> httpx2.Response:
        form = {"project": "shop", "username": "boss", "password": PASSWORD, **fields}
        return await browser.post("/auth/login/static", data=form)

    async def call(self, token: str, name: str, request: Message) -> Any:
        """As the web client calls: with the cookie of the browser."""
        pairs = [("cookie", f"token={token}")]
        async with connect(self.plane.address) as channel:
            stub = web_grpc.WebServiceStub(channel)
            return await call(getattr(stub, name), request, metadata=pairs)

    async def me(self, token: str) -> str:
        """Who the cookie is, or the status that it gets."""
        try:
            return str((await self.call(token, "GetMe", web.GetMeRequest())).subject)
        except CallError as error:
            return error.status


SiteWith = Callable[..., AbstractAsyncContextManager[SignInSite]]
"""`async with site_with(public_url=…) as site`."""

ReadError = Callable[[httpx2.Response], str]
"""Returns what the page would show; see `read_error`."""


@asynccontextmanager
async def serving_site(folder: Path, **settings: Any) -> AsyncIterator[SignInSite]:
    """Serves a site with settings of its own, without projects."""
    async with serving_with(folder, **settings) as plane, AsyncExitStack() as clients:
        scheme = "https" if settings.get("tls") else "http"
        yield SignInSite(plane=plane, opened=clients, scheme=scheme)


def read_error(response: httpx2.Response) -> str:
    """Returns what the page would show: errors of a sign-in travel in a cookie."""
    assert response.status_code == 303
    assert response.headers["location"] == "/"
    return unquote(response.cookies["error"])
