# SPDX-License-Identifier: Apache-2.0
"""The state is kept true over real gRPC: by push, after breaks, by polling where there is none."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress

import pytest

from pipecd_model.errors import NotFoundError, UnauthenticatedError, UnavailableError
from pipecd_piped.controlplane.client import ControlPlane, UnknownRpcError, connected
from pipecd_piped.controlplane.lease import Lease, LeaseState
from pipecd_piped.controlplane.state import ControlPlaneState
from pipecd_piped.controlplane.watch import Watch, WatchPace
from pipecd_wire.model.application_pb2 import Application
from pipecd_wire.model.command_pb2 import Command
from pipecd_wire.model.deployment_pb2 import Deployment
from pipecd_wire.pipecd.push import push_pb2 as push
from pipecd_wire.pipedservice import service_pb2 as pb
from pipecd_wire.rpc import Endpoints, Metadata, Method, Server, StatusError, rpc, serving

LIMIT = 20
FAST = WatchPace(
    commands_seconds=0.02,
    deployments_seconds=0.02,
    applications_seconds=0.02,
    pause_seconds=0.01,
    longest_pause_seconds=0.05,
)
PIPED_SERVICE = pb.DESCRIPTOR.services_by_name["PipedService"]
PUSH_SERVICE = push.DESCRIPTOR.services_by_name["PushService"]
NOT_LISTED = ("ListApplications", "ListNotCompletedDeployments", "ListUnhandledCommands")


class Pusher:
    """A control plane's push: streams what the test puts in."""

    def __init__(self) -> None:
        self.streams: list[asyncio.Queue[push.WatchResponse | StatusError]] = []
        self.requests: list[push.WatchRequest] = []
        self.opened = asyncio.Event()

    @rpc("Watch")
    async def watch(
        self, caller: object, request: push.WatchRequest
    ) -> AsyncIterator[push.WatchResponse]:
        queue: asyncio.Queue[push.WatchResponse | StatusError] = asyncio.Queue()
        self.streams.append(queue)
        self.requests.append(request)
        self.opened.set()
        while True:
            message = await queue.get()
            if isinstance(message, StatusError):
                raise message
            yield message

    async def stream(self, number: int) -> "asyncio.Queue[push.WatchResponse | StatusError]":
        """Wait for the n-th connection."""
        async with asyncio.timeout(LIMIT):
            while len(self.streams) <= number:
                self.opened.clear()
                await self.opened.wait()
        return self.streams[number]


class Lists:
    """A control plane that can be listed; deployments come in pages of one."""

    def __init__(self) -> None:
        self.applications: list[Application] = []
        self.deployments: list[Deployment] = []
        self.commands: list[Command] = []
        self.broken = False

    @rpc("ListApplications")
    async def list_applications(
        self, caller: object, request: pb.ListApplicationsRequest
    ) -> pb.ListApplicationsResponse:
        return pb.ListApplicationsResponse(applications=self.applications)

    @rpc("ListNotCompletedDeployments")
    async def list_deployments(
        self, caller: object, request: pb.ListNotCompletedDeploymentsRequest
    ) -> pb.ListNotCompletedDeploymentsResponse:
        at = int(request.cursor or 0)
        more = at + 1 < len(self.deployments)
        return pb.ListNotCompletedDeploymentsResponse(
            deployments=self.deployments[at : at + 1], cursor=str(at + 1) if more else ""
        )

    @rpc("ListUnhandledCommands")
    async def list_commands(
        self, caller: object, request: pb.ListUnhandledCommandsRequest
    ) -> pb.ListUnhandledCommandsResponse:
        if self.broken:
            raise StatusError("UNAVAILABLE", "not now")
        return pb.ListUnhandledCommandsResponse(commands=self.commands)


async def admit(method: Method, metadata: Metadata) -> str:
    authorization = metadata.get("authorization", "")
    if authorization != "PIPED-TOKEN project,piped,key":
        raise UnauthenticatedError(f"unknown piped {authorization!r}")
    return authorization


def endpoints(pusher: Pusher | None, lists: Lists | None = None) -> Endpoints:
    served = Endpoints(admit=admit)
    if pusher is not None:
        unimplemented = [m.name for m in PUSH_SERVICE.methods if m.name != "Watch"]
        served.add(PUSH_SERVICE, pusher, unimplemented=unimplemented)
    if lists is not None:
        unimplemented = [m.name for m in PIPED_SERVICE.methods if m.name not in NOT_LISTED]
        served.add(PIPED_SERVICE, lists, unimplemented=unimplemented)
    return served


@asynccontextmanager
async def watching(port: int, pace: WatchPace = FAST) -> AsyncIterator[ControlPlaneState]:
    state = ControlPlaneState()
    async with connection(port) as control:
        watch = Watch(control, state, Lease("i"), data_folder_id="f", pace=pace)
        running = asyncio.ensure_future(watch.run())
        try:
            yield state
        finally:
            running.cancel()
            with suppress(asyncio.CancelledError):
                await running


def connection(port: int, key: str = "key\n") -> AbstractAsyncContextManager[ControlPlane]:
    return connected(f"127.0.0.1:{port}", project_id="project", piped_id="piped", key=key, tls=None)


async def until(state: ControlPlaneState, holds: Callable[[], bool]) -> None:
    changes = state.changes()
    async with asyncio.timeout(LIMIT):
        while not holds():
            await anext(changes)


def snapshot(*applications: str) -> push.WatchResponse:
    listed = [Application(id=id, name=id) for id in applications]
    return push.WatchResponse(snapshot=push.Snapshot(applications=listed))


def is_held(lease: Lease) -> bool:
    """Does it hold now? Other tasks change that."""
    return lease.held


async def test_a_snapshot_and_its_changes_fill_the_state() -> None:
    pusher = Pusher()
    async with (
        serving(endpoints(pusher), "127.0.0.1:0", grace_seconds=0) as port,
        watching(port) as state,
    ):
        stream = await pusher.stream(0)
        stream.put_nowait(snapshot("a", "b"))
        stream.put_nowait(
            push.WatchResponse(
                change=push.Change(
                    removed_application_ids=["a"], commands=[Command(id="c", piped_id="p")]
                )
            )
        )

        await until(state, lambda: bool(state.commands))

        assert list(state.applications) == ["b"]
    assert (pusher.requests[0].instance_id, pusher.requests[0].data_folder_id) == ("i", "f")


async def test_after_a_break_a_new_snapshot_replaces_everything() -> None:
    pusher = Pusher()
    async with (
        serving(endpoints(pusher), "127.0.0.1:0", grace_seconds=0) as port,
        watching(port) as state,
    ):
        (await pusher.stream(0)).put_nowait(snapshot("a"))
        await until(state, lambda: "a" in state.applications)
        pusher.streams[0].put_nowait(StatusError("UNAVAILABLE", "the server stops"))

        (await pusher.stream(1)).put_nowait(snapshot("b"))
        await until(state, lambda: "b" in state.applications)

        assert list(state.applications) == ["b"]


async def test_a_control_plane_that_starts_later_is_found() -> None:
    pusher = Pusher()
    server = Server(endpoints(pusher))
    port = server.listen("127.0.0.1:0")
    async with watching(port) as state:
        await asyncio.sleep(0.05)  # a few vain attempts
        await server.start()
        (await pusher.stream(0)).put_nowait(snapshot("a"))

        await until(state, lambda: "a" in state.applications)
    await server.stop(0)


async def test_a_silent_stream_is_given_up() -> None:
    """A connection that a firewall has dropped says nothing, not even a heartbeat."""
    pusher = Pusher()
    pace = WatchPace(silence_seconds=0.1, pause_seconds=0.01, longest_pause_seconds=0.05)
    async with (
        serving(endpoints(pusher), "127.0.0.1:0", grace_seconds=0) as port,
        watching(port, pace),
    ):
        (await pusher.stream(0)).put_nowait(snapshot("a"))

        await pusher.stream(1)


async def test_without_push_the_lists_are_polled() -> None:
    lists = Lists()
    lists.applications = [Application(id="a", name="a")]
    lists.deployments = [Deployment(id="d1"), Deployment(id="d2")]
    lists.commands = [Command(id="c")]
    async with (
        serving(endpoints(None, lists), "127.0.0.1:0", grace_seconds=0) as port,
        watching(port) as state,
    ):
        await until(state, lambda: bool(state.commands))
        assert (list(state.applications), list(state.deployments)) == (["a"], ["d1", "d2"])

        lists.commands = [Command(id="c"), Command(id="later")]

        await until(state, lambda: "later" in state.commands)


async def test_a_poll_that_fails_is_repeated() -> None:
    lists = Lists()
    lists.broken = True
    async with (
        serving(endpoints(None, lists), "127.0.0.1:0", grace_seconds=0) as port,
        watching(port) as state,
    ):
        await asyncio.sleep(0.05)
        lists.broken = False
        lists.commands = [Command(id="c")]

        await until(state, lambda: "c" in state.commands)


async def test_a_control_plane_that_learns_to_push_is_followed() -> None:
    lists, pusher = Lists(), Pusher()
    served = endpoints(None, lists)
    pace = WatchPace(
        commands_seconds=0.02,
        deployments_seconds=0.02,
        applications_seconds=0.02,
        try_push_seconds=0.05,
        longest_pause_seconds=0.05,
    )
    async with (
        serving(served, "127.0.0.1:0", grace_seconds=0) as port,
        watching(port, pace) as state,
    ):
        await asyncio.wait_for(state.wait_filled(), LIMIT)
        unimplemented = [m.name for m in PUSH_SERVICE.methods if m.name != "Watch"]
        served.add(PUSH_SERVICE, pusher, unimplemented=unimplemented)

        (await pusher.stream(0)).put_nowait(snapshot("pushed"))

        await until(state, lambda: "pushed" in state.applications)


async def test_while_the_stream_does_not_get_through_the_lists_are_polled() -> None:
    class Refusing:
        @rpc("Watch")
        async def watch(
            self, caller: object, request: push.WatchRequest
        ) -> AsyncIterator[push.WatchResponse]:
            raise UnavailableError("no streams through this proxy")
            yield push.WatchResponse()  # type: ignore[unreachable] # makes it a generator

    lists = Lists()
    lists.applications = [Application(id="a", name="a")]
    served = endpoints(None, lists)
    unimplemented = [m.name for m in PUSH_SERVICE.methods if m.name != "Watch"]
    served.add(PUSH_SERVICE, Refusing(), unimplemented=unimplemented)
    async with serving(served, "127.0.0.1:0", grace_seconds=0) as port, watching(port) as state:
        await until(state, lambda: "a" in state.applications)


@pytest.fixture
async def control() -> AsyncIterator[ControlPlane]:
    async with (
        serving(endpoints(None, Lists()), "127.0.0.1:0", grace_seconds=0) as port,
        connection(port) as opened,
    ):
        yield opened


async def test_an_rpc_that_the_control_plane_lacks_is_told_apart(control: ControlPlane) -> None:
    with pytest.raises(UnknownRpcError, match="GetDeployment"):
        await control.call(control.service.GetDeployment, pb.GetDeploymentRequest(id="d"))


async def test_a_wrong_key_is_an_error_of_its_own() -> None:
    async with (
        serving(endpoints(None, Lists()), "127.0.0.1:0", grace_seconds=0) as port,
        connection(port, key="wrong") as control,
    ):
        with pytest.raises(UnauthenticatedError, match="unknown piped"):
            await control.call(control.service.ListApplications, pb.ListApplicationsRequest())


async def test_a_report_is_repeated_until_it_is_taken() -> None:
    class Moody:
        calls = 0

        @rpc("ReportStat")
        async def report_stat(
            self, caller: object, request: pb.ReportStatRequest
        ) -> pb.ReportStatResponse:
            self.calls += 1
            if self.calls < 4:
                raise StatusError(["UNAVAILABLE", "INTERNAL", "UNKNOWN"][self.calls - 1], "no")
            return pb.ReportStatResponse()

    moody = Moody()
    served = Endpoints(admit=admit)
    served.add(
        PIPED_SERVICE,
        moody,
        unimplemented=[m.name for m in PIPED_SERVICE.methods if m.name != "ReportStat"],
    )
    async with serving(served, "127.0.0.1:0", grace_seconds=0) as port, connection(port) as control:
        calling = control.call_until_accepted(control.service.ReportStat, pb.ReportStatRequest())
        await asyncio.wait_for(calling, LIMIT)

    assert moody.calls == 4


async def test_a_report_that_is_refused_for_good_is_not_repeated() -> None:
    class Firm:
        calls = 0

        @rpc("ReportStat")
        async def report_stat(
            self, caller: object, request: pb.ReportStatRequest
        ) -> pb.ReportStatResponse:
            self.calls += 1
            raise NotFoundError("no such piped")

    firm = Firm()
    served = Endpoints(admit=admit)
    served.add(
        PIPED_SERVICE,
        firm,
        unimplemented=[m.name for m in PIPED_SERVICE.methods if m.name != "ReportStat"],
    )
    async with serving(served, "127.0.0.1:0", grace_seconds=0) as port, connection(port) as control:
        with pytest.raises(NotFoundError, match="no such piped"):
            await control.call_until_accepted(control.service.ReportStat, pb.ReportStatRequest())

    assert firm.calls == 1


async def test_a_lease_that_comes_later_is_taken_with_a_new_snapshot() -> None:
    """What the holder before has done is in there."""
    pusher = Pusher()
    lease = Lease("i")
    async with (
        asyncio.timeout(LIMIT),
        serving(endpoints(pusher), "127.0.0.1:0") as port,
        connection(port) as control,
        asyncio.TaskGroup() as tasks,
    ):
        watch = Watch(control, ControlPlaneState(), lease, data_folder_id="f", pace=FAST)
        running = tasks.create_task(watch.run())
        first = await pusher.stream(0)
        elsewhere = push.Lease(epoch=4, held=False)
        first.put_nowait(push.WatchResponse(snapshot=push.Snapshot(lease=elsewhere)))
        first.put_nowait(push.WatchResponse(lease=push.Lease(epoch=5, held=True)))
        second = await pusher.stream(1)
        assert lease.state is LeaseState.ELSEWHERE
        ours = push.Lease(epoch=5, held=True)
        second.put_nowait(push.WatchResponse(snapshot=push.Snapshot(lease=ours)))
        while not is_held(lease):  # noqa: ASYNC110 - another task makes it true
            await asyncio.sleep(0.01)
        second.put_nowait(push.WatchResponse(lease=push.Lease(epoch=6, held=False)))
        while is_held(lease):  # noqa: ASYNC110 - another task makes it true
            await asyncio.sleep(0.01)
        running.cancel()
    assert lease.epoch == 5


async def test_a_refused_renewal_opens_the_stream_anew() -> None:
    pusher = Pusher()
    lease = Lease("i")
    async with (
        asyncio.timeout(LIMIT),
        serving(endpoints(pusher), "127.0.0.1:0") as port,
        connection(port) as control,
        asyncio.TaskGroup() as tasks,
    ):
        watch = Watch(control, ControlPlaneState(), lease, data_folder_id="f", pace=FAST)
        running = tasks.create_task(watch.run())
        first = await pusher.stream(0)
        first.put_nowait(
            push.WatchResponse(snapshot=push.Snapshot(lease=push.Lease(epoch=5, held=True)))
        )
        while not is_held(lease):  # noqa: ASYNC110 - another task makes it true
            await asyncio.sleep(0.01)

        lease.on_refused()

        await pusher.stream(1)
        running.cancel()


async def test_a_control_plane_without_push_sets_no_limits() -> None:
    lease = Lease("i")
    async with (
        asyncio.timeout(LIMIT),
        serving(endpoints(None, Lists()), "127.0.0.1:0") as port,
        connection(port) as control,
        asyncio.TaskGroup() as tasks,
    ):
        watch = Watch(control, ControlPlaneState(), lease, data_folder_id="f", pace=FAST)
        running = tasks.create_task(watch.run())
        while not is_held(lease):  # noqa: ASYNC110 - another task makes it true
            await asyncio.sleep(0.01)
        running.cancel()

    assert lease.state is LeaseState.UNLIMITED
