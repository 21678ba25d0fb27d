# SPDX-License-Identifier: Apache-2.0
"""The lease over the real wire: who may work is told, and reports of who may not are refused."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, aclosing
from pathlib import Path
from typing import Any

import pytest

from pipecd_controlplane.usecases.leases import LeaseTimes
from pipecd_test_support.controlplane_messages import MessageBuilder
from pipecd_test_support.controlplane_server import AgentClient, Serve, ServedControlPlane
from pipecd_test_support.served_settings import serving_with
from pipecd_test_support.waiting import Soon
from pipecd_wire.headers import LEASE_EPOCH_HEADER
from pipecd_wire.model.common_pb2 import ApplicationGitRepository
from pipecd_wire.pipecd.api import api_pb2 as own
from pipecd_wire.pipecd.push import push_pb2 as pb
from pipecd_wire.pipedservice import service_pb2 as pipedservice
from pipecd_wire.rpc import CallError, call, stream
from pipecd_wire.rpc.handlers import describe


def request(name: str, folder: str = "") -> pb.WatchRequest:
    return pb.WatchRequest(instance_id=name, data_folder_id=folder or f"folder of {name}")


async def watch(
    opened: AsyncExitStack, agent: AgentClient, soon: Soon, asked: pb.WatchRequest
) -> tuple[pb.Lease, AsyncIterator[pb.WatchResponse]]:
    messages = await opened.enter_async_context(aclosing(stream(agent.push.Watch, asked)))
    first = await soon(anext(messages))
    return first.snapshot.lease, messages


async def next_lease(messages: AsyncIterator[pb.WatchResponse]) -> pb.Lease:
    async for message in messages:
        if message.WhichOneof("body") == "lease":
            return message.lease
    raise AssertionError("the stream has ended")


@pytest.fixture
async def opened() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as stack:
        yield stack


async def test_who_waits_is_told_when_the_holder_says_goodbye(
    plane: ServedControlPlane, soon: Soon, opened: AsyncExitStack
) -> None:
    agent = await plane.agent()
    held, _ = await watch(opened, agent, soon, request("a"))
    waiting, messages = await watch(opened, agent, soon, request("b"))
    assert (held.held, held.epoch, waiting.held) == (True, 1, False)

    await call(agent.push.ReleaseLease, pb.ReleaseLeaseRequest(instance_id="a", epoch=1))

    lease = await soon(next_lease(messages))
    assert (lease.held, lease.epoch) == (True, 2)


async def test_a_holder_is_told_that_another_has_come_back_to_its_folder(
    plane: ServedControlPlane, soon: Soon, opened: AsyncExitStack
) -> None:
    agent = await plane.agent()
    _, messages = await watch(opened, agent, soon, request("a", "folder"))
    back, _ = await watch(opened, agent, soon, request("b", "folder"))
    assert (back.held, back.epoch) == (True, 2)

    lease = await soon(next_lease(messages))

    assert (lease.held, lease.epoch) == (False, 2)


async def test_who_waits_is_told_when_the_holder_falls_silent(
    tmp_path: Path, build: MessageBuilder, soon: Soon, opened: AsyncExitStack
) -> None:
    """With a real timer. The holder's open watch does not keep its lease."""
    times = LeaseTimes(lease=0.2, take_over=60)
    plane = await opened.enter_async_context(serving_with(tmp_path, lease_times=times))
    agent = await plane.agent()
    await watch(opened, agent, soon, request("a"))
    lease, messages = await watch(opened, agent, soon, request("b"))
    if not lease.held:  # on a slow machine the time is over before it asks
        lease = await soon(next_lease(messages))

    assert (lease.held, lease.epoch) == (True, 2)
    assert 0 < lease.begun_after.ToTimedelta().total_seconds() < 60


async def test_a_renewal_is_answered_with_the_lease_and_refused_to_others(
    plane: ServedControlPlane,
) -> None:
    agent = await plane.agent()
    async with aclosing(stream(agent.push.Watch, request("a"))) as messages:
        await anext(messages)

    answer = await call(agent.push.RenewLease, pb.RenewLeaseRequest(instance_id="a", epoch=1))
    assert (answer.lease.held, answer.lease.epoch) == (True, 1)
    with pytest.raises(CallError) as caught:
        await call(agent.push.RenewLease, pb.RenewLeaseRequest(instance_id="b", epoch=1))
    assert caught.value.status == "FAILED_PRECONDITION"


def epoch(number: object) -> list[tuple[str, str]]:
    return [(LEASE_EPOCH_HEADER, str(number))]


async def test_a_report_under_an_older_lease_is_refused(
    plane: ServedControlPlane, soon: Soon, opened: AsyncExitStack
) -> None:
    agent = await plane.agent()
    await watch(opened, agent, soon, request("a", "folder"))
    await watch(opened, agent, soon, request("b", "folder"))
    report = pipedservice.ReportStatRequest()

    with pytest.raises(CallError) as caught:
        await call(agent.service.ReportStat, report, metadata=epoch(1))
    assert caught.value.status == "FAILED_PRECONDITION"
    assert "has gone to another instance (epoch 2, yours is 1)" in caught.value.message

    await call(agent.service.ReportStat, report, metadata=epoch(2))
    await call(agent.service.ReportStat, report)  # an agent that knows no leases
    with pytest.raises(CallError, match="'two' is not a number"):
        await call(agent.service.ReportStat, report, metadata=epoch("two"))


async def test_every_report_is_behind_the_same_fence(
    plane: ServedControlPlane, soon: Soon, opened: AsyncExitStack
) -> None:
    """An empty request would be refused for itself: the fence stands before that."""
    agent = await plane.agent()
    await watch(opened, agent, soon, request("a", "folder"))
    await watch(opened, agent, soon, request("b", "folder"))
    refused = set()
    services = (
        (pipedservice.DESCRIPTOR.services_by_name["PipedService"], agent.service),
        (pb.DESCRIPTOR.services_by_name["PushService"], agent.push),
    )
    for service, stub in services:
        for method in service.methods:
            if describe(method).without_lease or method.server_streaming:
                continue
            asked = type(stub_request(service, method.name))()
            with pytest.raises(CallError) as caught:
                await call(getattr(stub, method.name), asked, metadata=epoch(1))
            refused.add(caught.value.status)

    assert refused == {"FAILED_PRECONDITION"}


def stub_request(service: Any, name: str) -> Any:
    module = pipedservice if service.name == "PipedService" else pb
    return getattr(module, service.methods_by_name[name].input_type.name)()


def test_what_is_not_fenced_exists_and_reads_or_is_about_the_lease() -> None:
    services = (
        pipedservice.DESCRIPTOR.services_by_name["PipedService"],
        pb.DESCRIPTOR.services_by_name["PushService"],
    )
    methods = [describe(method) for service in services for method in service.methods]

    unfenced = [method.path for method in methods if method.without_lease]

    assert unfenced
    assert not [path for path in unfenced if "/Report" in path or "/Save" in path]


async def test_an_instance_whose_lease_has_gone_may_still_read_and_ask(
    plane: ServedControlPlane, soon: Soon, opened: AsyncExitStack
) -> None:
    agent = await plane.agent()
    await watch(opened, agent, soon, request("a", "folder"))
    await watch(opened, agent, soon, request("b", "folder"))

    await call(
        agent.service.ListApplications, pipedservice.ListApplicationsRequest(), metadata=epoch(1)
    )
    release = pb.ReleaseLeaseRequest(instance_id="a", epoch=1)
    await call(agent.push.ReleaseLease, release, metadata=epoch(1))
    async with aclosing(stream(agent.push.Watch, request("a"), metadata=epoch(1))) as messages:
        assert not (await soon(anext(messages))).snapshot.lease.held


async def test_the_lease_outlives_the_server(serve: Serve, tmp_path: Path, soon: Soon) -> None:
    async with serve(tmp_path) as plane, AsyncExitStack() as opened:
        first = await plane.agent()
        await watch(opened, first, soon, request("a"))
    async with serve(tmp_path) as plane, AsyncExitStack() as opened:
        agent = await plane.agent_with("default", first.id, first.key)
        other, _ = await watch(opened, agent, soon, request("b"))
        holder, _ = await watch(opened, agent, soon, request("a"))

    assert (other.held, holder.held, holder.epoch) == (False, True, 1)


async def test_people_are_shown_two_agents_that_know_no_leases(plane: ServedControlPlane) -> None:
    agent = await plane.agent()

    async def alarms() -> list[str]:
        answer = await call(plane.admin.pipeds.ListPipeds, own.ListPipedsRequest())
        [item] = answer.pipeds
        return list(item.alarms)

    for started in (1, 2):
        stats = f"process_start_time_seconds {started}\n".encode()
        await call(agent.service.ReportStat, pipedservice.ReportStatRequest(piped_stats=stats))
    assert await alarms() == []

    stats = b"process_start_time_seconds 1\n"
    await call(agent.service.ReportStat, pipedservice.ReportStatRequest(piped_stats=stats))

    [alarm] = await alarms()
    assert alarm.startswith("two agents report under this piped id at once, from 127.0.0.1: stop")


async def test_only_the_holder_says_what_the_piped_is(
    plane: ServedControlPlane, soon: Soon, opened: AsyncExitStack
) -> None:
    """An instance that waits has another configuration, perhaps: it works with none of it yet."""
    agent = await plane.agent()

    async def report(version: str, epoch: int | None) -> str:
        metadata = () if epoch is None else (("pipecd-lease-epoch", str(epoch)),)
        meta = pipedservice.ReportPipedMetaRequest(
            version=version,
            repositories=[ApplicationGitRepository(id=version, remote="r", branch="main")],
        )
        answer = await call(agent.service.ReportPipedMeta, meta, metadata=metadata)
        assert answer.name == "agent"
        [item] = (await call(plane.admin.pipeds.ListPipeds, own.ListPipedsRequest())).pipeds
        [repository] = item.piped.repositories
        assert repository.id == item.piped.version
        return str(item.piped.version)

    assert await report("first", 0) == "first", "nobody holds the lease"
    await watch(opened, agent, soon, request("a"))
    assert await report("holder", 1) == "holder"
    assert await report("standby", 0) == "holder"
    assert await report("go agent", None) == "go agent", "it knows no leases"
    assert await report("holder", 1) == "holder"

    await call(agent.push.ReleaseLease, pb.ReleaseLeaseRequest(instance_id="a", epoch=1))
    assert await report("next", 0) == "next"
