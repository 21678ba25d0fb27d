# SPDX-License-Identifier: Apache-2.0
"""One stream carries every change and the logs that are followed; an interruption loses nothing."""

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from typing import Any

import pytest

from pipecd_controlplane.store.changes import Change as StoredChange
from pipecd_controlplane.store.changes import ChangeKind
from pipecd_controlplane.store.stage_logs import LogKey
from pipecd_controlplane.usecases import sessions
from pipecd_controlplane.usecases.change_history import ProjectHistory
from pipecd_test_support.controlplane_server import ServedControlPlane
from pipecd_wire.model import deployment_pb2, project_pb2
from pipecd_wire.pipecd.api import access_pb2
from pipecd_wire.pipecd.api import api_pb2 as pb
from pipecd_wire.pipecd.api.api_pb2_grpc import ProjectServiceStub
from pipecd_wire.rpc import CallError, connect, stream
from pipecd_wire.rpc.channel import Channel

KEY = LogKey(deployment_id="d1", stage_id="s1")
FOLLOWED = pb.FollowedLog(deployment_id="d1", stage_id="s1", first_line=1)
DEADLINE = 40.0


@asynccontextmanager
async def watching(channel: Channel, **fields: Any) -> AsyncIterator[Callable[[], Any]]:
    """Yields what returns the next response."""
    request = pb.WatchChangesRequest(**fields)
    answers = stream(ProjectServiceStub(channel).WatchChanges, request, deadline=DEADLINE)
    async with aclosing(answers):
        yield answers.__anext__


async def add_deployment(plane: ServedControlPlane, name: str = "d1", **fields: Any) -> None:
    await plane.stores.deployments.add(
        plane.build.deployment(
            id=name, project_id="default", stages=[plane.build.stage("s1")], **fields
        )
    )


async def append(plane: ServedControlPlane, *indexes: int, completed: bool = False) -> None:
    await plane.stores.stage_logs.append(
        "default", KEY, plane.build.blocks(*indexes), completed=completed
    )


async def end_stage(plane: ServedControlPlane) -> None:
    def edit(deployment: deployment_pb2.Deployment) -> None:
        deployment.stages[0].status = deployment_pb2.STAGE_SUCCESS

    await plane.stores.deployments.update("default", "d1", edit)


async def read_lines(receive: Callable[[], Any], count: int) -> list[int]:
    """Returns the indexes of the next lines, however they are divided."""
    found: list[int] = []
    while len(found) < count:
        for new in (await receive()).new_lines:
            assert not new.refusal, new.refusal
            found += [block.index for block in new.blocks]
    return found


async def receive_all(receive: Callable[[], Any]) -> None:
    while True:
        await receive()


async def test_who_was_away_is_told_what_changed_meanwhile(plane: ServedControlPlane) -> None:
    async with watching(plane.admin.channel) as receive:
        first = await receive()
        assert (list(first.changes), first.read_again) == ([], False)
        cursor = first.cursor
    await add_deployment(plane, "d1")
    await add_deployment(plane, "d2")
    await end_stage(plane)

    async with watching(plane.admin.channel, cursor=cursor) as receive:
        missed = await receive()
        told = [each.id for each in missed.changes if each.kind == pb.Change.DEPLOYMENT]
        assert (sorted(told), missed.read_again) == (["d1", "d2"], False)
    async with watching(plane.admin.channel, cursor=missed.cursor) as receive:
        assert list((await receive()).changes) == []


@pytest.mark.parametrize("cursor", ["x", "0123456789abcdef.1", ".", "x.-1", "9" * 500])
async def test_a_cursor_that_is_not_known_says_that_all_must_be_read(
    plane: ServedControlPlane, cursor: str
) -> None:
    async with watching(plane.admin.channel, cursor=cursor) as receive:
        first = await receive()
        assert (first.read_again, list(first.changes)) == (True, [])
        await add_deployment(plane)
        assert not (await receive()).read_again


def test_a_history_that_has_forgotten_says_so() -> None:
    history = ProjectHistory("m", most=2)

    def change(name: str) -> StoredChange:
        return StoredChange(kind=ChangeKind.DEPLOYMENT, id=name, project_id="p")

    for name in ("a", "b", "a"):
        history.notify(change(name))
    kept = history.read_since(0)
    assert ([each.id for each in kept.changes], kept.is_whole) == (["b", "a"], True)
    history.notify(change("c"))
    assert not history.read_since(0).is_whole
    assert not history.read_since(1).is_whole
    later = history.read_since(2)
    assert ([each.id for each in later.changes], later.is_whole) == (["a", "c"], True)
    assert history.parse_cursor(history.format_cursor(4)) == 4
    assert history.parse_cursor("m.5") is None
    assert history.parse_cursor("other.1") is None


async def test_a_quiet_stream_says_that_it_lives(plane: ServedControlPlane) -> None:
    async with watching(plane.admin.channel, keep_alive_seconds=1) as receive:
        first = await receive()
        for _ in range(2):
            alive = await receive()
            assert (list(alive.changes), alive.cursor) == ([], first.cursor)


async def test_a_stream_says_that_it_lives_also_while_things_change_that_are_not_told(
    plane: ServedControlPlane,
) -> None:
    await add_deployment(plane)

    async def write_on() -> None:
        for index in itertools.count(1):
            await append(plane, index)

    wanted = [pb.Change.APPLICATION]
    async with (
        watching(plane.admin.channel, kinds=wanted, keep_alive_seconds=1) as receive,
        asyncio.TaskGroup() as tasks,
    ):
        await receive()
        writing = tasks.create_task(write_on())
        for _ in range(2):
            assert list((await receive()).changes) == []
        writing.cancel()


async def test_only_the_wanted_kinds_are_told(plane: ServedControlPlane) -> None:
    await add_deployment(plane)
    async with watching(plane.admin.channel, kinds=[pb.Change.APPLICATION]) as receive:
        await receive()
        await append(plane, 1)
        await end_stage(plane)
        await plane.stores.applications.add(plane.build.application(id="a1", project_id="default"))
        told = await receive()
        assert [(each.kind, each.id) for each in told.changes] == [(pb.Change.APPLICATION, "a1")]


async def test_a_followed_log_comes_with_its_lines_and_its_end(plane: ServedControlPlane) -> None:
    await add_deployment(plane)
    await append(plane, 10, 20)
    async with watching(plane.admin.channel, logs=[FOLLOWED]) as receive:
        first = await receive()
        assert [block.index for block in first.new_lines[0].blocks] == [10, 20]
        assert first.new_lines[0].first_line == 1
        await append(plane, 30, 40)
        assert await read_lines(receive, 2) == [30, 40]
        await append(plane, 50, completed=True)
        await end_stage(plane)
        ended = False
        while not ended:
            for new in (await receive()).new_lines:
                ended = new.completed
                assert new.total_lines == 5


async def test_a_log_that_nobody_seals_ends_with_its_stage(plane: ServedControlPlane) -> None:
    await add_deployment(plane)
    await append(plane, 10)
    await end_stage(plane)
    async with watching(plane.admin.channel, logs=[FOLLOWED]) as receive:
        lines = [*(await receive()).new_lines]
        while not lines[-1].completed:
            lines += (await receive()).new_lines
    assert [block.index for new in lines for block in new.blocks] == [10]


async def test_from_now_on_and_from_a_line_on(plane: ServedControlPlane) -> None:
    await add_deployment(plane)
    await append(plane, 1, 2, 3)
    wanted = [
        pb.FollowedLog(deployment_id="d1", stage_id="s1"),
        pb.FollowedLog(deployment_id="d1", stage_id="s1", first_line=3),
    ]
    async with watching(plane.admin.channel, logs=wanted) as receive:
        first = await receive()
        assert [[block.index for block in new.blocks] for new in first.new_lines] == [[], [3]]
        assert [new.first_line for new in first.new_lines] == [4, 3]


async def test_a_long_log_comes_in_parts(plane: ServedControlPlane) -> None:
    await add_deployment(plane)
    for start in range(0, 12_000, 4_000):
        await append(plane, *range(start + 1, start + 4_001))
    async with watching(plane.admin.channel, logs=[FOLLOWED]) as receive:
        assert await read_lines(receive, 12_000) == list(range(1, 12_001))


async def test_a_log_of_another_project_or_of_none_is_refused_and_the_rest_goes_on(
    plane: ServedControlPlane,
) -> None:
    await plane.other_project("theirs")
    await plane.stores.deployments.add(
        plane.build.deployment(id="foreign", project_id="theirs", stages=[plane.build.stage("s1")])
    )
    await add_deployment(plane)
    wanted = [
        pb.FollowedLog(deployment_id="foreign", stage_id="s1"),
        pb.FollowedLog(deployment_id="nothing", stage_id="s1"),
        pb.FollowedLog(deployment_id="d1", stage_id="nothing"),
        FOLLOWED,
    ]
    async with watching(plane.admin.channel, logs=wanted) as receive:
        first = {new.place: new for new in (await receive()).new_lines}
        assert "no deployment 'foreign'" in first[0].refusal
        assert "no deployment 'nothing'" in first[1].refusal
        assert first[2].refusal
        await append(plane, 1)
        assert await read_lines(receive, 1) == [1]


async def test_whoever_loses_the_right_to_a_log_is_told_at_once(plane: ServedControlPlane) -> None:
    """The stream goes on: the right to watch the project is another one."""
    resource, policy = project_pb2.ProjectRBACResource, project_pb2.ProjectRBACPolicy

    def give(project: project_pb2.Project) -> None:
        role = project.rbac_roles.add(name="Shop")
        role.policies.add(resources=[resource(type=resource.PROJECT)], actions=[policy.GET])
        role.policies.add(
            resources=[resource(type=resource.DEPLOYMENT, labels={"team": "shop"})],
            actions=[policy.GET],
        )
        project.user_groups.add(sso_group="shop", role="Shop")

    def take(project: project_pb2.Project) -> None:
        del project.rbac_roles[0].policies[1]

    await plane.stores.projects.update("default", give)
    await add_deployment(plane, labels={"team": "shop"})
    await add_deployment(plane, "d2")
    await append(plane, 1)
    identity = sessions.UserIdentity(subject="ann", via=access_pb2.Session.GITHUB, groups=("shop",))
    cookie = await sessions.start(plane.stores, "default", identity, now=lambda: int(time.time()))
    pairs = [("cookie", f"token={cookie}")]
    logs = [FOLLOWED, pb.FollowedLog(deployment_id="d2", stage_id="s1")]
    async with (
        connect(plane.address, metadata=lambda: pairs) as channel,
        watching(channel, logs=logs) as receive,
    ):
        first = (await receive()).new_lines
        assert [block.index for block in first[0].blocks] == [1]
        assert "no deployment 'd2'" in first[1].refusal

        await plane.stores.projects.update("default", take)
        told = await receive()
        assert pb.Change.PROJECT in {each.kind for each in told.changes}
        assert [bool(new.refusal) for new in told.new_lines] == [True]

        await plane.stores.sessions.end("default", cookie.partition(".")[0])
        with pytest.raises(CallError) as caught:
            await receive_all(receive)
        assert caught.value.status == "UNAUTHENTICATED"
