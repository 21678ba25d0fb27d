# SPDX-License-Identifier: Apache-2.0
"""A thousand streams: asked again by what concerns them, and by nothing else."""

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pipecd_controlplane.auth.call_authenticator import CallAuthenticator
from pipecd_controlplane.auth.recheck import CredentialRecheck
from pipecd_controlplane.store.database import Transaction
from pipecd_controlplane.store.open import open_database
from pipecd_controlplane.store.stores import Stores, stores
from pipecd_controlplane.usecases import sessions
from pipecd_controlplane.usecases.bus import Bus
from pipecd_controlplane.usecases.in_process import InProcessState
from pipecd_controlplane.usecases.leases import Leases
from pipecd_controlplane.usecases.project import ProjectSettings
from pipecd_model.errors import DeniedError, UnauthenticatedError
from pipecd_test_support.chosen_store import choose_database
from pipecd_test_support.controlplane_messages import MessageBuilder
from pipecd_test_support.waiting import Soon
from pipecd_wire.model import project_pb2
from pipecd_wire.pipecd.api import access_pb2, api_pb2
from pipecd_wire.rpc import Metadata, Method
from pipecd_wire.rpc.handlers import describe

WATCH_CHANGES = describe(
    api_pb2.DESCRIPTOR.services_by_name["ProjectService"].methods_by_name["WatchChanges"]
)
MANY = 1000


def now() -> int:
    return int(time.time())


@dataclass
class Server:
    """The parts of a server that a stream needs, and how often a caller was admitted again."""

    kept: Stores
    bus: Bus
    authenticator: CallAuthenticator
    recheck: CredentialRecheck
    asked: int = 0

    async def cookie(self, group: str) -> list[tuple[str, str]]:
        identity = sessions.UserIdentity(
            subject="ada", via=access_pb2.Session.OIDC, groups=(group,)
        )
        token = await sessions.start(self.kept, "ours", identity, now=now)
        return [("cookie", f"token={token}")]

    async def stream(self, metadata: Metadata, opened: "asyncio.Queue[None]") -> type[Exception]:
        """Open a stream without news, and wait for its end: answers how it was refused."""
        caller = await self.authenticator.admit(WATCH_CHANGES, metadata)

        async def silent() -> AsyncGenerator[Any, None]:
            yield api_pb2.WatchChangesResponse()
            await asyncio.Event().wait()

        guarded = self.recheck.guard_stream(
            WATCH_CHANGES, metadata, caller, api_pb2.WatchChangesRequest(), silent()
        )
        async with aclosing(guarded) as answers:
            try:
                async for _ in answers:
                    opened.put_nowait(None)
            except (UnauthenticatedError, DeniedError) as error:
                return type(error)
        pytest.fail("the stream ended by itself")


@asynccontextmanager
async def serving(folder: Path) -> AsyncIterator[Server]:
    shared = InProcessState(folder)
    bus = shared.bus
    async with open_database(choose_database(folder), on_commit=bus.publish) as database:
        kept = stores(database, now)
        authenticator = CallAuthenticator(kept, Leases(kept.leases), shared, now)

        async def readmit(method: Method, metadata: Metadata) -> Any:
            server.asked += 1
            return await authenticator.admit_again(method, metadata)

        server = Server(kept, bus, authenticator, CredentialRecheck(kept, bus, readmit, now))

        async def work(transaction: Transaction) -> None:
            project = project_pb2.Project(id="ours", created_at=1, updated_at=1)
            await kept.projects.add_in(transaction, project)

        await database.write(work)
        async with server.recheck.running():
            yield server


async def test_a_thousand_streams_are_asked_again_only_by_what_concerns_them(
    tmp_path: Path, build: MessageBuilder, soon: Soon
) -> None:
    async with serving(tmp_path / "data") as server, asyncio.TaskGroup() as tasks:
        settings = ProjectSettings(server.kept)
        await settings.add_group("ours", "some", "Viewer")
        await settings.add_group("ours", "one", "Viewer")
        opened: asyncio.Queue[None] = asyncio.Queue()
        cookies = [dict(await server.cookie("some")) for _ in range(MANY - 1)]
        cookies.append(dict(await server.cookie("one")))
        streams = [tasks.create_task(server.stream(each, opened)) for each in cookies]
        for _ in range(MANY):
            await soon(opened.get())
        server.asked = 0

        for number in range(100):
            await server.kept.applications.add(build.application(id=f"a{number}"))
            await server.kept.deployments.add(build.deployment(id=f"d{number}"))
        unrelated = server.asked

        last = cookies[-1]["cookie"].removeprefix("token=").partition(".")[0]
        await server.kept.sessions.end("ours", last)
        assert await soon(streams[-1]) is UnauthenticatedError
        by_one_session = server.asked

        await settings.delete_group("ours", "some")
        refused = [await soon(each) for each in streams[:-1]]

        assert unrelated == 0
        assert by_one_session == 1
        assert server.asked == 1 + MANY - 1
        assert set(refused) == {DeniedError}
        assert not server.bus._listeners  # nobody is left behind
