# SPDX-License-Identifier: Apache-2.0
"""A browser, and projects whose people sign in."""

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import httpx2
import pytest

from pipecd_controlplane.app import control_plane
from pipecd_controlplane.settings import ServerSettings
from pipecd_controlplane.store.database import Transaction
from pipecd_controlplane.usecases.keys import hash_of
from pipecd_wire.model import project_pb2
from pipecd_wire.rpc import CallError, call, connect
from pipecd_wire.webservice import service_pb2 as web
from pipecd_wire.webservice import service_pb2_grpc as web_grpc

PASSWORD = "correct horse"  # noqa: S105 - of a project that lives as long as a test


@dataclass
class Site:
    """A control plane, as browsers and their web client see it."""

    plane: Any
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

    async def sign_in(self, browser: Any, **fields: str) -> Any:
        form = {"project": "shop", "username": "boss", "password": PASSWORD, **fields}
        return await browser.post("/auth/login/static", data=form)

    async def call(self, token: str, name: str, request: Any) -> Any:
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


@pytest.fixture
def site_with(plane_of: Callable[..., Any], tmp_path: Path) -> Any:
    """A site with settings of its own: `async with site_with(public_url=…) as site`."""

    @asynccontextmanager
    async def make(**settings: Any) -> AsyncIterator[Site]:
        async with AsyncExitStack() as opened:
            running = await opened.enter_async_context(
                control_plane(
                    ServerSettings(
                        **{"data_dir": tmp_path / "data", "grace_seconds": 1, **settings}
                    )
                )
            )
            clients = await opened.enter_async_context(AsyncExitStack())
            site = Site(plane=await plane_of(running, opened), opened=clients)
            site.scheme = "https" if settings.get("tls") else "http"
            yield site

    return make


@pytest.fixture
async def site(site_with: Any) -> AsyncIterator[Site]:
    async with site_with() as made:
        await made.project()
        yield made


@pytest.fixture
def error_of() -> Callable[[Any], str]:
    """What the page would show: errors of a sign-in travel in a cookie."""

    def read(response: Any) -> str:
        assert response.status_code == 303
        assert response.headers["location"] == "/"
        return unquote(response.cookies["error"])

    return read
