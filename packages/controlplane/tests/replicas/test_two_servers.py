# SPDX-License-Identifier: Apache-2.0
"""Two control planes on one database are one control plane to whoever calls them."""

import asyncio
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from pipecd_controlplane.app import control_plane
from pipecd_controlplane.settings import ServerSettings
from pipecd_controlplane.store.postgres.config import PostgresServer
from pipecd_model.errors import ConfigError
from pipecd_test_support.balancer import Balancer
from pipecd_test_support.controlplane_messages import MessageBuilder
from pipecd_test_support.controlplane_server import AgentClient, ServedControlPlane
from pipecd_test_support.postgres import shared_postgres
from pipecd_test_support.waiting import Soon, wait_answer
from pipecd_wire.apiservice import service_pb2 as api
from pipecd_wire.pipecd.api import api_pb2 as own
from pipecd_wire.pipecd.api.overview_pb2 import SearchApplicationsRequest
from pipecd_wire.pipecd.api.overview_pb2_grpc import OverviewServiceStub
from pipecd_wire.pipecd.push import push_pb2 as pb
from pipecd_wire.pipedservice import service_pb2 as pipedservice
from pipecd_wire.rpc import call, stream

REQUEST = pb.WatchRequest(instance_id="instance", data_folder_id="folder")
KEY = b"an encryption key for all servers of one database\n"


@dataclass
class Site:
    """Two control planes, and an agent of the one that can also call the other."""

    one: ServedControlPlane
    other: ServedControlPlane

    async def meet(self, agent: AgentClient) -> AgentClient:
        """Returns an agent of the first as it calls the other."""
        return await self.other.agent_with("default", agent.id, agent.key)


def write_key(folder: Path) -> Path:
    key = folder / "all.key"
    key.write_bytes(KEY)
    return key


@asynccontextmanager
async def serving_on(
    where: PostgresServer, folder: Path, *, admin_key: Path | None = None
) -> AsyncIterator[ServedControlPlane]:
    key = write_key(folder.parent)
    settings = ServerSettings(
        data_dir=folder,
        postgres=where,
        encryption_key_files=(key,),
        grace_seconds=1,
        console_dir=folder / "no-console",
    )
    async with AsyncExitStack() as opened:
        running = await opened.enter_async_context(control_plane(settings))
        if admin_key is not None:
            shutil.copy(admin_key, running.admin_key_file)
        yield await ServedControlPlane.of(running, opened)


@pytest.fixture
async def site(where: PostgresServer, tmp_path: Path) -> AsyncIterator[Site]:
    async with serving_on(where, tmp_path / "one") as one:
        key = one.running.admin_key_file
        async with serving_on(where, tmp_path / "other", admin_key=key) as other:
            yield Site(one=one, other=other)


async def read_until(
    messages: AsyncIterator[pb.WatchResponse], holds: Callable[[pb.WatchResponse], bool]
) -> pb.WatchResponse:
    """Returns the first message of which something is true."""
    return await anext(message async for message in messages if holds(message))


async def test_a_command_to_one_reaches_the_agent_of_the_other(site: Site, soon: Soon) -> None:
    agent = await site.one.agent()
    application_id = await site.one.application(agent)
    there = await site.meet(agent)
    async with aclosing(stream(there.push.Watch, REQUEST)) as messages:
        assert (await soon(anext(messages))).WhichOneof("body") == "snapshot"

        asked = await call(
            site.one.admin.api.SyncApplication,
            api.SyncApplicationRequest(application_id=application_id),
        )

        # What was done before the watch may be heard of after it as well.
        heard = await soon(read_until(messages, lambda message: bool(message.change.commands)))
        assert [each.id for each in heard.change.commands] == [asked.command_id]


async def test_an_agent_is_connected_whichever_server_is_asked(site: Site, soon: Soon) -> None:
    agent = await site.one.agent()
    there = await site.meet(agent)

    async def is_online(plane: ServedControlPlane) -> bool:
        listed = await call(plane.admin.pipeds.ListPipeds, own.ListPipedsRequest())
        (found,) = [each for each in listed.pipeds if each.piped.id == agent.id]
        return found.last_seen_at > 0

    async with aclosing(stream(there.push.Watch, REQUEST)) as messages:
        await soon(anext(messages))
        assert await is_online(site.one)
        assert await is_online(site.other)


async def test_what_changes_here_is_heard_by_who_watches_there(
    site: Site, soon: Soon, build: MessageBuilder
) -> None:
    agent = await site.one.agent()
    application_id = await site.one.application(agent)
    request = own.WatchChangesRequest(kinds=[own.Change.DEPLOYMENT])
    async with aclosing(stream(site.other.admin.project.WatchChanges, request)) as messages:
        await soon(anext(messages))

        await site.one.deployment(agent, application_id, "d1", build.stage("s1"))

        heard: set[str] = set()
        while "d1" not in heard:
            heard |= {each.id for each in (await soon(anext(messages))).changes}


LISTEN = b"LISTEN "
PING = b'"ping"'


async def search_names(plane: ServedControlPlane) -> set[str]:
    stub = OverviewServiceStub(plane.admin.channel)
    found = await call(stub.SearchApplications, SearchApplicationsRequest())
    return {each.application.name for each in found.applications}


async def test_a_search_there_finds_what_was_added_here_before(
    where: PostgresServer, tmp_path: Path, soon: Soon
) -> None:
    """Whoever hears of a change from one server may ask another, which has not heard of it yet."""
    name = where.url.partition("@/")[2].partition("?")[0]
    balancer = Balancer([str(shared_postgres().socket)], words=(LISTEN, PING))
    async with serving_on(where, tmp_path / "one") as one, balancer.listening():
        through = replace(where, url=f"postgresql://postgres@{balancer.address}/{name}")
        key = one.running.admin_key_file
        async with serving_on(through, tmp_path / "other", admin_key=key) as other:
            agent = await one.agent()
            await one.application(agent, name="first")
            assert await soon(search_names(other)) == {"first"}

            (listening,) = [each for each in balancer.connections if LISTEN in each.said]
            listening.through.clear()
            for each in balancer.connections:
                each.said.discard(PING)
            await one.application(agent, name="second")
            searching = asyncio.create_task(search_names(other))

            async def is_asking() -> bool:
                return searching.done() or any(PING in each.said for each in balancer.connections)

            await wait_answer(is_asking, bool)
            listening.through.set()

            assert await soon(searching) == {"first", "second"}


async def test_an_idempotency_key_that_is_repeated_there_makes_nothing_new(site: Site) -> None:
    """The answer of the first server was lost, and the balancer chooses another one."""
    agent = await site.one.agent()
    application_id = await site.one.application(agent)
    request = own.SyncApplicationRequest(application_id=application_id)
    made = []
    for plane in (site.one, site.other, site.one):
        user = await plane.user(plane.admin.key, extra=[("pipecd-idempotency-key", "once")])
        made.append((await call(user.applications.SyncApplication, request)).command_id)

    assert len(set(made)) == 1
    listed = await call(
        (await site.meet(agent)).service.ListUnhandledCommands,
        pipedservice.ListUnhandledCommandsRequest(),
    )
    assert [each.id for each in listed.commands] == made[:1]


async def test_of_two_servers_that_get_an_idempotency_key_at_once_one_makes_something(
    site: Site,
) -> None:
    agent = await site.one.agent()
    application_id = await site.one.application(agent)
    request = own.SyncApplicationRequest(application_id=application_id)
    extra = [("pipecd-idempotency-key", "once")]
    users = [await each.user(each.admin.key, extra=extra) for each in (site.one, site.other)]
    async with asyncio.TaskGroup() as tasks:
        made = [
            tasks.create_task(call(each.applications.SyncApplication, request)) for each in users
        ]

    assert len({each.result().command_id for each in made}) == 1
    listed = await call(
        agent.service.ListUnhandledCommands, pipedservice.ListUnhandledCommandsRequest()
    )
    assert len(listed.commands) == 1


async def test_of_two_instances_at_two_servers_one_holds_the_lease(site: Site, soon: Soon) -> None:
    agent = await site.one.agent()
    there = await site.meet(agent)
    rival = pb.WatchRequest(instance_id="rival", data_folder_id="another")
    async with aclosing(stream(agent.push.Watch, REQUEST)) as holder:
        first = await soon(anext(holder))
        async with aclosing(stream(there.push.Watch, rival)) as waiting:
            second = await soon(anext(waiting))
            assert (first.snapshot.lease.held, second.snapshot.lease.held) == (True, False)

            await call(
                there.push.ReleaseLease,
                pb.ReleaseLeaseRequest(instance_id="instance", epoch=first.snapshot.lease.epoch),
            )

            await soon(read_until(waiting, lambda message: message.lease.held))


async def test_both_start_at_once_on_an_empty_database(tmp_path: Path) -> None:
    server = shared_postgres()
    name = server.create_database(is_empty=True)
    where = PostgresServer(url=server.url(name), connections=4)
    key = write_key(tmp_path)

    @asynccontextmanager
    async def starting(folder: Path) -> AsyncIterator[Path]:
        settings = ServerSettings(
            data_dir=folder,
            postgres=where,
            encryption_key_files=(key,),
            grace_seconds=1,
            console_dir=folder,
        )
        async with control_plane(settings) as running:
            yield running.admin_key_file

    async def start(folder: Path, opened: AsyncExitStack) -> Path:
        return await opened.enter_async_context(starting(folder))

    async with AsyncExitStack() as first, AsyncExitStack() as second, asyncio.TaskGroup() as tasks:
        starts = [
            tasks.create_task(start(tmp_path / "one", first)),
            tasks.create_task(start(tmp_path / "other", second)),
        ]
        files = [await each for each in starts]
        # One of them has made the project, and has the key to it.
        assert sum(each.exists() for each in files) == 1
    server.drop_database(name)


async def test_a_server_with_another_encryption_key_is_refused(
    where: PostgresServer, tmp_path: Path
) -> None:
    async with serving_on(where, tmp_path / "one"):
        settings = ServerSettings(data_dir=tmp_path / "other", postgres=where)
        with pytest.raises(ConfigError, match="a key that this server does not have") as caught:
            async with control_plane(settings):
                pass
    assert "--encryption-key-file" in caught.value.hint
