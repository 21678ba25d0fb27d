# SPDX-License-Identifier: Apache-2.0
"""Every stream ends at once with the right of its caller, and tells nothing of what came after.

The streams are found in the protos: one that is not looked at here fails.
"""

import importlib
import time
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import pipecd_wire
from pipecd_controlplane.auth.recheck import subject_of
from pipecd_controlplane.store.stage_logs import LogKey
from pipecd_controlplane.usecases import api_keys, pipeds, sessions
from pipecd_controlplane.usecases.project import ProjectSettings
from pipecd_test_support.controlplane_server import ServedControlPlane
from pipecd_test_support.waiting import Soon
from pipecd_wire.model import apikey_pb2, deployment_pb2, piped_pb2, project_pb2
from pipecd_wire.options import rights_pb2
from pipecd_wire.pipecd.api import access_pb2, api_pb2
from pipecd_wire.pipecd.push import push_pb2
from pipecd_wire.rpc import CallError, connect, stream
from pipecd_wire.rpc.handlers import Method, describe

Resource = project_pb2.ProjectRBACResource
Policy = project_pb2.ProjectRBACPolicy
Via = access_pb2.Session.Via

SESSION, API_KEY, PIPED = rights_pb2.SESSION, rights_pb2.API_KEY, rights_pb2.PIPED

MARK = "written-after-the-loss"


def served_streams() -> dict[str, Method]:
    """Every streaming RPC that takes a caller with a credential, by its path."""
    found: dict[str, Method] = {}
    root = Path(pipecd_wire.__path__[0])
    for file in root.rglob("*_pb2.py"):
        name = ".".join(file.relative_to(root.parent).with_suffix("").parts)
        for service in importlib.import_module(name).DESCRIPTOR.services_by_name.values():
            if {SESSION, API_KEY, PIPED} & set(service.GetOptions().Extensions[rights_pb2.callers]):
                methods = [describe(each) for each in service.methods]
                found |= {each.path: each for each in methods if each.streams}
    return found


STREAMS = served_streams()


@dataclass
class Stage:
    """A control plane with one deployment of one piped, and somebody who has the right to it."""

    plane: ServedControlPlane
    piped_id: str = ""
    piped_key: str = ""
    session_id: str = ""
    key_id: str = ""

    @property
    def stores(self) -> Any:
        return self.plane.stores

    @property
    def settings(self) -> ProjectSettings:
        return ProjectSettings(self.stores)

    def now(self) -> int:
        return int(time.time())

    async def prepare(self) -> None:
        agent = await self.plane.agent()
        self.piped_id, self.piped_key = agent.id, agent.key
        application_id = await self.plane.application(agent)
        await self.plane.deployment(
            agent, application_id, "d1", self.plane.build.stage("s1"), labels={"team": "a"}
        )
        await self.settings.add_role("default", "Watcher", policies())
        await self.settings.add_group("default", "watchers", "Watcher")
        await self.append_log("line 0")

    async def append_log(self, text: str) -> None:
        key = LogKey(deployment_id="d1", stage_id="s1", retried_count=0)
        blocks = self.plane.build.blocks(time.time_ns() // 1000)
        blocks[0].log = text
        await self.stores.stage_logs.append("default", key, blocks, completed=False)

    async def edit_deployment(self, edit: Callable[[deployment_pb2.Deployment], None]) -> None:
        await self.stores.deployments.update("default", "d1", edit)

    async def person(
        self, *, via: Any = Via.OIDC, expires_in: int = 3600, **identity: Any
    ) -> list[tuple[str, str]]:
        cookie = await sessions.start(
            self.stores,
            "default",
            sessions.UserIdentity(subject="ada", via=via, **identity),
            now=lambda: self.now() - 3600 + expires_in,
            hours=1,
        )
        self.session_id = cookie.partition(".")[0]
        return [("cookie", f"token={cookie}")]

    async def program(self, *, expires_in: int = 0) -> list[tuple[str, str]]:
        key = await api_keys.generate(
            self.stores,
            "default",
            name="robot",
            role=apikey_pb2.APIKey.READ_ONLY,
            creator="x",
            now=self.now,
            expires_at=self.now() + expires_in if expires_in else 0,
        )
        self.key_id = key.partition(".")[0]
        return [("authorization", f"API-KEY {key}")]

    async def piped(self) -> list[tuple[str, str]]:
        return [("authorization", f"PIPED-TOKEN default,{self.piped_id},{self.piped_key}")]


def policies(**labels: str) -> list[project_pb2.ProjectRBACPolicy]:
    return [
        Policy(resources=[Resource(type=Resource.DEPLOYMENT, labels=labels)], actions=[Policy.GET]),
        Policy(resources=[Resource(type=Resource.PROJECT)], actions=[Policy.GET]),
    ]


# How each stream is asked for, and what makes it say something that holds the mark.
async def mark_deployment(stage: Stage) -> None:
    def edit(deployment: deployment_pb2.Deployment) -> None:
        deployment.status_reason = MARK

    await stage.edit_deployment(edit)


async def mark_log(stage: Stage) -> None:
    await stage.append_log(MARK)


async def mark_command(stage: Stage) -> None:
    command = stage.plane.build.command(id=MARK, piped_id=stage.piped_id, project_id="default")
    await stage.stores.commands.add(command)


ASKED: dict[str, tuple[Any, Callable[[Stage], Awaitable[None]]]] = {
    "/pipecd.api.v1.DeploymentService/WatchDeployment": (
        api_pb2.WatchDeploymentRequest(deployment_id="d1"),
        mark_deployment,
    ),
    "/pipecd.api.v1.DeploymentService/FollowStageLog": (
        api_pb2.FollowStageLogRequest(deployment_id="d1", stage_id="s1"),
        mark_log,
    ),
    "/pipecd.api.v1.ProjectService/WatchChanges": (api_pb2.WatchChangesRequest(), mark_command),
    "/pipecd.push.v1.PushService/Watch": (
        push_pb2.WatchRequest(instance_id="i", data_folder_id="f"),
        mark_command,
    ),
}


@dataclass(frozen=True)
class Loss:
    """A way to lose a right: who it is first, and what is done to them."""

    kind: int
    enter: Callable[[Stage], Awaitable[list[tuple[str, str]]]]
    lose: Callable[[Stage], Awaitable[object]]
    status: str
    sentence: str
    labels: bool = False
    """Only for what is about a thing with labels."""


async def nothing(_stage: Stage) -> None:
    """Time does it."""


async def by_group(stage: Stage) -> list[tuple[str, str]]:
    return await stage.person(groups=("watchers",))


async def by_older_group(stage: Stage) -> list[tuple[str, str]]:
    await stage.settings.set_older_groups("default", project_pb2.ProjectRBACConfig(viewer="old"))
    return await stage.person(groups=("old",))


async def by_label(stage: Stage) -> list[tuple[str, str]]:
    await stage.settings.update_role("default", "Watcher", policies(team="a"))
    return await stage.person(groups=("watchers",))


async def as_static_admin(stage: Stage) -> list[tuple[str, str]]:
    return await stage.person(via=Via.STATIC_ADMIN, roles=("Admin",))


async def change_labels(stage: Stage) -> None:
    def edit(deployment: deployment_pb2.Deployment) -> None:
        deployment.labels["team"] = "b"

    await stage.edit_deployment(edit)


async def rotate_key(stage: Stage) -> None:
    await pipeds.add_key(
        stage.stores, "default", stage.piped_id, creator="x", now=lambda: stage.now() + 10
    )
    await pipeds.delete_old_keys(stage.stores, "default", stage.piped_id)


async def edit_piped(stage: Stage, edit: Callable[[piped_pb2.Piped], None]) -> None:
    await stage.stores.pipeds.update("default", stage.piped_id, edit)


async def switch_static_admin_off(stage: Stage) -> None:
    def edit(project: project_pb2.Project) -> None:
        project.static_admin_disabled = True

    await stage.stores.projects.update("default", edit)


def disable(entity: Any) -> None:
    entity.disabled = True


def drop_keys(piped: piped_pb2.Piped) -> None:
    del piped.keys[:]


OVER = "the session is over (sign in again)"
WRONG_KEY = "unknown piped or wrong piped key"

LOSSES = {
    "session ended": Loss(
        SESSION,
        by_group,
        lambda stage: stage.stores.sessions.end("default", stage.session_id),
        "UNAUTHENTICATED",
        OVER,
    ),
    "session expired": Loss(
        SESSION,
        lambda stage: stage.person(groups=("watchers",), expires_in=3),
        nothing,
        "UNAUTHENTICATED",
        OVER,
    ),
    "group without a role": Loss(
        SESSION,
        by_group,
        lambda stage: stage.settings.delete_group("default", "watchers"),
        "PERMISSION_DENIED",
        "your roles do not allow",
    ),
    "group of the older form without a role": Loss(
        SESSION,
        by_older_group,
        lambda stage: stage.settings.set_older_groups("default", project_pb2.ProjectRBACConfig()),
        "PERMISSION_DENIED",
        "your roles do not allow",
    ),
    "role changed": Loss(
        SESSION,
        by_group,
        lambda stage: stage.settings.update_role(
            "default",
            "Watcher",
            [Policy(resources=[Resource(type=Resource.EVENT)], actions=[Policy.LIST])],
        ),
        "PERMISSION_DENIED",
        "your roles do not allow",
    ),
    "role limited to a label": Loss(
        SESSION,
        by_group,
        lambda stage: stage.settings.update_role("default", "Watcher", policies(team="b")),
        "PERMISSION_DENIED",
        "your roles do not reach the deployment 'd1' any more",
        labels=True,
    ),
    "label of the role changed": Loss(
        SESSION,
        by_label,
        lambda stage: stage.settings.update_role("default", "Watcher", policies(team="b")),
        "PERMISSION_DENIED",
        "your roles do not reach the deployment 'd1' any more",
        labels=True,
    ),
    "label of the deployment changed": Loss(
        SESSION,
        by_label,
        change_labels,
        "PERMISSION_DENIED",
        "your roles do not reach the deployment 'd1' any more",
        labels=True,
    ),
    "static admin switched off": Loss(
        SESSION, as_static_admin, switch_static_admin_off, "UNAUTHENTICATED", OVER
    ),
    "static admin's password changed": Loss(
        SESSION,
        as_static_admin,
        lambda stage: stage.settings.set_static_admin("default", "boss", "something else"),
        "UNAUTHENTICATED",
        OVER,
    ),
    "API key disabled": Loss(
        API_KEY,
        lambda stage: stage.program(),
        lambda stage: api_keys.disable(stage.stores, "default", stage.key_id),
        "UNAUTHENTICATED",
        "the API key 'robot' is disabled",
    ),
    "API key expired": Loss(
        API_KEY,
        lambda stage: stage.program(expires_in=3),
        nothing,
        "UNAUTHENTICATED",
        "the API key 'robot' has expired",
    ),
    "piped disabled": Loss(
        PIPED,
        lambda stage: stage.piped(),
        lambda stage: edit_piped(stage, disable),
        "UNAUTHENTICATED",
        "the piped 'agent' is disabled",
    ),
    "piped key rotated": Loss(
        PIPED, lambda stage: stage.piped(), rotate_key, "UNAUTHENTICATED", WRONG_KEY
    ),
    "piped key deleted": Loss(
        PIPED,
        lambda stage: stage.piped(),
        lambda stage: edit_piped(stage, drop_keys),
        "UNAUTHENTICATED",
        WRONG_KEY,
    ),
}

CASES = [
    pytest.param(path, name, id=f"{path.rpartition('/')[2]}, {name}")
    for path, method in STREAMS.items()
    for name, loss in LOSSES.items()
    if loss.kind in method.callers and (not loss.labels or subject_of(method.request()) is not None)
]


@pytest.fixture
async def stage(plane: ServedControlPlane) -> Stage:
    made = Stage(plane=plane)
    await made.prepare()
    return made


async def open_stream(stage: Stage, path: str, metadata: list[tuple[str, str]]) -> Any:
    method = STREAMS[path]
    channel = await stage.plane.opened.enter_async_context(connect(stage.plane.address))
    rpc = channel.unary_stream(
        path,
        request_serializer=method.request.SerializeToString,
        response_deserializer=method.response.FromString,
    )
    return stream(rpc, ASKED[path][0], metadata=metadata)


async def wait_for_mark(messages: Any) -> None:
    async for message in messages:
        if MARK.encode() in message.SerializeToString():
            return
    pytest.fail("the stream ended without an error")


def test_every_stream_that_is_served_is_looked_at() -> None:
    assert STREAMS.keys() == ASKED.keys()
    looked_at = {(case.values[0], LOSSES[str(case.values[1])].kind) for case in CASES}
    assert looked_at == {
        (path, kind) for path, method in STREAMS.items() for kind in method.callers
    }


@pytest.mark.parametrize("path", STREAMS)
async def test_a_stream_goes_on_while_its_right_lasts(stage: Stage, path: str, soon: Soon) -> None:
    """Otherwise the tests below would prove nothing; and what is unlike a loss ends no stream."""
    callers = STREAMS[path].callers
    metadata = await (by_group(stage) if SESSION in callers else stage.piped())
    async with aclosing(await open_stream(stage, path, metadata)) as messages:
        await soon(anext(messages))
        await stage.settings.add_group("default", "others", "Viewer")
        await stage.settings.update_role("default", "Watcher", policies(team="a")[:1] + policies())
        await edit_piped(stage, lambda piped: setattr(piped, "desc", "described"))
        await ASKED[path][1](stage)

        await soon(wait_for_mark(messages))


@pytest.mark.parametrize(("path", "name"), CASES)
async def test_a_stream_ends_with_the_right_of_its_caller(
    stage: Stage, path: str, name: str, soon: Soon
) -> None:
    loss = LOSSES[name]
    metadata = await loss.enter(stage)
    async with aclosing(await open_stream(stage, path, metadata)) as messages:
        await soon(anext(messages))

        await loss.lose(stage)

        if loss.lose is not nothing:
            await ASKED[path][1](stage)  # must not be told any more
        with pytest.raises(CallError) as caught:
            await soon(wait_for_mark(messages))
    assert caught.value.status == loss.status
    assert caught.value.message.startswith(loss.sentence)


async def test_what_a_label_hides_is_as_if_it_were_not_there(stage: Stage, soon: Soon) -> None:
    await stage.settings.update_role("default", "Watcher", policies(team="b"))
    metadata = await by_group(stage)
    for path in STREAMS:
        if "DeploymentService" in path:
            with pytest.raises(CallError) as caught:
                await soon(anext(await open_stream(stage, path, metadata)))
            assert (caught.value.status, caught.value.message) == (
                "NOT_FOUND",
                "there is no deployment 'd1'",
            )


async def test_a_session_of_a_static_admin_that_is_off_does_not_count(
    stage: Stage, soon: Soon
) -> None:
    """One that was opened in the moment of the switching, too."""
    await switch_static_admin_off(stage)
    metadata = await as_static_admin(stage)

    opened = await open_stream(stage, "/pipecd.api.v1.ProjectService/WatchChanges", metadata)

    with pytest.raises(CallError) as caught:
        await soon(anext(opened))

    assert caught.value.status == "UNAUTHENTICATED"
