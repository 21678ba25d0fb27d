# SPDX-License-Identifier: Apache-2.0
"""What a plugin can call on its private port, over real gRPC."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar

import pytest
from google.protobuf.message import Message

from pipecd_piped.plugins.management import (
    ManagementApi,
    PluginSession,
    authenticator_of,
    endpoints_of,
)
from pipecd_piped.plugins.running import RunningStages
from pipecd_piped.programs.port import private_port
from pipecd_piped.report.metadata import PLUGIN
from pipecd_piped.secrets import OpenedSecrets
from pipecd_test_support.plugin_world import PluginWorld
from pipecd_wire.model.command_pb2 import Command
from pipecd_wire.model.deployment_pb2 import Deployment
from pipecd_wire.model.logblock_pb2 import LogBlock
from pipecd_wire.pipecd.plugin import plugin_pb2
from pipecd_wire.pipecd.plugin.plugin_pb2_grpc import PluginManagementServiceStub
from pipecd_wire.pluginservice import service_pb2 as pb
from pipecd_wire.pluginservice.service_pb2_grpc import PluginServiceStub
from pipecd_wire.rpc import CallError, call, connect, stream

if TYPE_CHECKING:
    from grpc.aio import UnaryUnaryMultiCallable

    from pipecd_wire.pipecd.plugin.plugin_pb2_grpc import PluginManagementServiceAsyncStub
    from pipecd_wire.pluginservice.service_pb2_grpc import PluginServiceAsyncStub

Request = TypeVar("Request", bound=Message)
Response = TypeVar("Response", bound=Message)

TOKEN = [("pipecd-plugin-token", "right")]


class StageIds(TypedDict):
    """What every request about a stage names."""

    deployment_id: str
    stage_id: str


STAGE: StageIds = {"deployment_id": "d1", "stage_id": "s-WAIT"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Private:
    """A private port, seen from its plugin."""

    session: PluginSession
    running: RunningStages
    service: "PluginServiceAsyncStub"
    management: "PluginManagementServiceAsyncStub"
    announced: list[tuple[str, list[str]]]


@pytest.fixture
async def private(world: PluginWorld) -> AsyncIterator[Private]:
    session, running = PluginSession(token="right", port=7001), RunningStages()  # noqa: S106
    announced: list[tuple[str, list[str]]] = []
    backend = replace(
        world.backend,
        announce_live_states=lambda plugin, ids: announced.append((plugin, list(ids))),
    )
    management = ManagementApi(
        session, ping_interval_seconds=2.5, running=running, backend=backend, plugin="odd"
    )
    async with AsyncExitStack() as opened:
        opened.enter_context(world.backend.metadata.opened(world.run_input("WAIT").deployment))
        port = await opened.enter_async_context(
            private_port(
                endpoints_of("odd", session, management, world.backend),
                authenticator_of("odd", session),
            )
        )
        channel = await opened.enter_async_context(connect(f"localhost:{port}"))
        yield Private(
            session=session,
            running=running,
            service=PluginServiceStub(channel),
            management=PluginManagementServiceStub(channel),
            announced=announced,
        )


async def refusal(
    method: "UnaryUnaryMultiCallable[Request, Response]",
    request: Request,
    metadata: Sequence[tuple[str, str]] = (),
) -> CallError:
    with pytest.raises(CallError) as raised:
        await call(method, request, metadata=metadata)
    return raised.value


async def test_a_value_of_a_stage_is_kept_and_found(private: Private, world: PluginWorld) -> None:
    put = pb.PutStageMetadataRequest(**STAGE, key="a", value="1")
    await call(private.service.PutStageMetadata, put)
    several = pb.PutStageMetadataMultiRequest(**STAGE, metadata={"b": "2", "c": ""})
    await call(private.service.PutStageMetadataMulti, several)

    found = [
        await call(private.service.GetStageMetadata, pb.GetStageMetadataRequest(**STAGE, key=key))
        for key in ("a", "c", "d")
    ]

    assert [(answer.value, answer.found) for answer in found] == [
        ("1", True),
        ("", True),
        ("", False),
    ]
    assert [dict(saved.metadata) for saved in world.control_plane.saved] == [
        {"a": "1"},
        {"a": "1", "b": "2", "c": ""},
    ]


async def test_a_plugin_writes_to_its_own_stages_only(private: Private, world: PluginWorld) -> None:
    deployment = Deployment(id="d2", application_id="a2")
    for name in ("odd", "other"):
        deployment.stages.add(id=name, metadata={PLUGIN: name})
    mine: StageIds = {"deployment_id": "d2", "stage_id": "odd"}
    theirs: StageIds = {"deployment_id": "d2", "stage_id": "other"}
    block = LogBlock(index=1, log="hello", created_at=1)
    calls: dict[UnaryUnaryMultiCallable[Any, Any], Callable[..., Message]] = {
        private.service.PutStageMetadata: partial(pb.PutStageMetadataRequest, key="a", value="1"),
        private.service.PutStageMetadataMulti: partial(
            pb.PutStageMetadataMultiRequest, metadata={"a": "1"}
        ),
        private.service.ReportStageLogs: partial(pb.ReportStageLogsRequest, blocks=[block]),
        private.service.ReportStageLogsFromLastCheckpoint: partial(
            pb.ReportStageLogsFromLastCheckpointRequest, blocks=[block], completed=True
        ),
    }
    with world.backend.metadata.opened(deployment) as store:
        for method, request in calls.items():
            error = await refusal(method, request(**theirs))
            assert error.status == "PERMISSION_DENIED"
            assert "'other', not by 'odd'" in error.message
            await call(method, request(**mine))

        assert store.get_stage("other", "a") is None
        assert store.get_stage("odd", "a") == "1"


async def test_values_of_a_plugin_are_its_own_when_it_gives_no_name(private: Private) -> None:
    service = private.service
    await call(
        service.PutDeploymentPluginMetadata,
        pb.PutDeploymentPluginMetadataRequest(
            deployment_id="d1", plugin_name="odd", key="a", value="mine"
        ),
    )
    await call(
        service.PutDeploymentPluginMetadataMulti,
        pb.PutDeploymentPluginMetadataMultiRequest(
            deployment_id="d1", plugin_name="other", metadata={"a": "theirs"}
        ),
    )

    values = [
        (
            await call(
                service.GetDeploymentPluginMetadata,
                pb.GetDeploymentPluginMetadataRequest(
                    deployment_id="d1", plugin_name=name, key="a"
                ),
            )
        ).value
        for name in ("", "odd", "other")
    ]

    assert values == ["mine", "mine", "theirs"]


async def test_shared_metadata_is_read(private: Private, world: PluginWorld) -> None:
    deployment = world.run_input("WAIT", "d2").deployment
    deployment.metadata_v2.shared.keyValues["DeploymentNotification"] = "{}"

    with world.backend.metadata.opened(deployment):
        answer = await call(
            private.service.GetDeploymentSharedMetadata,
            pb.GetDeploymentSharedMetadataRequest(deployment_id="d2", key="DeploymentNotification"),
        )

    assert (answer.value, answer.found) == ("{}", True)


async def test_a_deployment_that_does_not_run_is_a_clear_error(private: Private) -> None:
    """Upstream answers UNKNOWN, which looks as if a second try could help."""
    request = pb.GetStageMetadataRequest(deployment_id="gone", stage_id="s", key="a")

    error = await refusal(private.service.GetStageMetadata, request)

    assert error.status == "FAILED_PRECONDITION"
    assert "piped does not run the deployment 'gone'" in error.message


async def test_a_request_without_an_id_is_refused(private: Private) -> None:
    error = await refusal(private.service.GetStageMetadata, pb.GetStageMetadataRequest(key="a"))

    assert error.status == "INVALID_ARGUMENT"
    assert "deployment_id" in error.message


async def test_log_lines_reach_the_control_plane(private: Private, world: PluginWorld) -> None:
    def blocks(*lines: str) -> list[LogBlock]:
        return [LogBlock(index=n, log=line, created_at=1) for n, line in enumerate(lines)]

    await call(
        private.service.ReportStageLogs,
        pb.ReportStageLogsRequest(**STAGE, blocks=blocks("one", "two")),
    )
    await call(
        private.service.ReportStageLogsFromLastCheckpoint,
        pb.ReportStageLogsFromLastCheckpointRequest(
            **STAGE, blocks=blocks("three"), completed=True
        ),
    )

    assert world.control_plane.lines == ["one", "two", "three"]


async def test_an_empty_log_line_is_a_blank_one(private: Private, world: PluginWorld) -> None:
    """A plugin of the Go SDK would send its batch again for ever, and wait for it at the end."""
    lines = [LogBlock(index=n, log=line, created_at=1) for n, line in enumerate(("one", "", "x"))]

    await call(private.service.ReportStageLogs, pb.ReportStageLogsRequest(**STAGE, blocks=lines))
    await call(
        private.service.ReportStageLogsFromLastCheckpoint,
        pb.ReportStageLogsFromLastCheckpointRequest(
            **STAGE, blocks=[LogBlock(index=3, log="", created_at=1)], completed=True
        ),
    )

    assert world.control_plane.lines == ["one", " ", "x", " "]


async def test_shared_objects_are_forwarded(private: Private) -> None:
    names = {"application_id": "a1", "plugin_name": "odd", "key": "k"}
    get = pb.GetApplicationSharedObjectRequest(**names)
    error = await refusal(private.service.GetApplicationSharedObject, get)

    put = pb.PutApplicationSharedObjectRequest(**names, object=b"\x00kept")
    await call(private.service.PutApplicationSharedObject, put)
    answer = await call(private.service.GetApplicationSharedObject, get)

    assert error.status == "NOT_FOUND"
    assert answer.object == b"\x00kept"


async def test_a_tool_is_installed(private: Private, world: PluginWorld) -> None:
    script = "printf 'tool {{ .Version }}' > {{ .OutPath }}"

    answer = await call(
        private.service.InstallTool,
        pb.InstallToolRequest(name="tool", version="1.2", install_script=script),
    )

    path = world.folder / "tools" / "tool-1.2"
    assert answer.installed_path == str(path)
    assert path.read_text() == "tool 1.2"


async def test_commands_of_a_stage_are_listed_until_it_ends(
    private: Private, world: PluginWorld
) -> None:
    world.commands.give(Command(id="c1", **STAGE))

    lists = [
        await call(private.service.ListStageCommands, pb.ListStageCommandsRequest(**STAGE))
        for _ in range(2)
    ]

    assert [[command.id for command in answer.commands] for answer in lists] == [["c1"], ["c1"]]


async def test_changed_applications_are_announced_under_the_name_of_the_plugin(
    private: Private,
) -> None:
    request = plugin_pb2.AnnounceLiveStatesRequest(application_ids=["a1", "a2"])
    await call(private.management.AnnounceLiveStates, request, metadata=TOKEN)

    assert private.announced == [("odd", ["a1", "a2"])]


@pytest.mark.parametrize("ids", [[], [""], [f"a{number}" for number in range(1_001)]])
async def test_an_announcement_names_between_one_and_a_thousand_applications(
    private: Private, ids: list[str]
) -> None:
    request = plugin_pb2.AnnounceLiveStatesRequest(application_ids=ids)
    error = await refusal(private.management.AnnounceLiveStates, request, TOKEN)

    assert (error.status, private.announced) == ("INVALID_ARGUMENT", [])


async def test_nobody_but_the_plugin_announces(private: Private) -> None:
    request = plugin_pb2.AnnounceLiveStatesRequest(application_ids=["a1"])
    error = await refusal(private.management.AnnounceLiveStates, request)

    assert (error.status, private.announced) == ("UNAUTHENTICATED", [])


async def test_a_command_is_pushed_to_its_stage(private: Private, world: PluginWorld) -> None:
    world.commands.give(Command(id="before", **STAGE))
    request = plugin_pb2.WatchStageCommandsRequest(**STAGE)
    seen = []

    with private.running.enter("d1", "s-WAIT"):
        watching = stream(private.management.WatchStageCommands, request, metadata=TOKEN)
        async with asyncio.timeout(10), aclosing(watching) as answers:
            async for answer in answers:
                seen.append(answer.command.id)
                if answer.command.id == "now":
                    break
                world.commands.give(Command(id="now", **STAGE))

    assert seen == ["before", "now"]


async def test_the_watch_of_commands_ends_with_the_stage(
    private: Private, world: PluginWorld
) -> None:
    world.commands.give(Command(id="c1", **STAGE))
    request = plugin_pb2.WatchStageCommandsRequest(**STAGE)
    watching = stream(private.management.WatchStageCommands, request, metadata=TOKEN)

    async with asyncio.timeout(10), aclosing(watching) as answers:
        with private.running.enter("d1", "s-WAIT"):
            first = await anext(answers)
        rest = [answer async for answer in answers]

    assert first.command.id == "c1"
    assert rest == []


async def test_a_stage_that_does_not_run_has_no_commands_to_watch(
    private: Private, world: PluginWorld
) -> None:
    world.commands.give(Command(id="c1", **STAGE))
    request = plugin_pb2.WatchStageCommandsRequest(**STAGE)

    watching = stream(private.management.WatchStageCommands, request, deadline=10, metadata=TOKEN)

    assert [answer async for answer in watching] == []


async def test_a_secret_is_for_a_deployment_that_the_plugin_runs(
    private: Private, world: PluginWorld
) -> None:
    request = plugin_pb2.DecryptSecretRequest(deployment_id="d1", name="password")
    unknown = plugin_pb2.DecryptSecretRequest(deployment_id="d1", name="other")
    known = world.backend.secrets
    deployment = world.run_input("WAIT").deployment
    with known.opened(deployment):
        known.learn(deployment.git_path, "abc", OpenedSecrets(values={"password": "hunter22"}))

        other = await refusal(private.management.DecryptSecret, request, metadata=TOKEN)
        with private.running.enter("d1", "s-WAIT"):
            own = await call(private.management.DecryptSecret, request, metadata=TOKEN)
            missing = await refusal(private.management.DecryptSecret, unknown, metadata=TOKEN)
            stolen = await refusal(private.management.DecryptSecret, request, metadata=[])
        after = await refusal(private.management.DecryptSecret, request, metadata=TOKEN)

    assert other.status == after.status == "PERMISSION_DENIED"
    assert own.value == "hunter22"
    assert "there is no secret 'other'" in missing.message
    assert stolen.status == "UNAUTHENTICATED"


async def test_metadata_holds_no_secret(private: Private, world: PluginWorld) -> None:
    deployment = world.run_input("WAIT").deployment
    known = world.backend.secrets
    with known.opened(deployment), world.backend.metadata.opened(deployment):
        known.learn(deployment.git_path, "abc", OpenedSecrets(values={"password": "hunter22"}))
        await call(
            private.service.PutStageMetadata,
            pb.PutStageMetadataRequest(**STAGE, key="said", value="it is hunter22"),
            metadata=TOKEN,
        )
        await call(
            private.service.PutDeploymentPluginMetadataMulti,
            pb.PutDeploymentPluginMetadataMultiRequest(
                deployment_id="d1", plugin_name="odd", metadata={"said": "hunter22!"}
            ),
            metadata=TOKEN,
        )

        store = world.backend.metadata.get("d1")
        assert store.get_stage(STAGE["stage_id"], "said") == "it is ***"
        assert store.get_plugin("odd", "said") == "***!"


@pytest.mark.parametrize("metadata", [[], [("pipecd-plugin-token", "wrong")]])
async def test_management_needs_the_token(
    private: Private, metadata: list[tuple[str, str]]
) -> None:
    error = await refusal(private.management.Ping, plugin_pb2.PingRequest(), metadata=metadata)

    assert error.status == "UNAUTHENTICATED"


def ready(port: int = 7001) -> plugin_pb2.ReadyRequest:
    return plugin_pb2.ReadyRequest(name="odd", port=port, pid=1)


async def test_ready_may_be_repeated(private: Private) -> None:
    answers = [await call(private.management.Ready, ready(), metadata=TOKEN) for _ in range(2)]

    assert answers[0].ping_interval.ToTimedelta().total_seconds() == 2.5
    assert answers[0] == answers[1]
    assert private.session.ready.result() == ready()


async def test_a_process_that_was_given_up_is_told_to_exit(private: Private) -> None:
    private.session.given_up = True

    error = await refusal(private.management.Ready, ready(), metadata=TOKEN)

    assert error.status == "FAILED_PRECONDITION"
    assert not private.session.ready.done()


async def test_a_plugin_that_serves_on_another_port_than_it_was_told_is_refused(
    private: Private,
) -> None:
    error = await refusal(private.management.Ready, ready(port=7002), metadata=TOKEN)

    assert error.status == "INVALID_ARGUMENT"
    assert "serves on port 7002, not on 7001" in error.message


async def test_after_ready_nobody_else_on_the_machine_can_use_the_port(private: Private) -> None:
    """W5: InstallTool runs a script, so a port without a lock is a way in for every local user."""
    await call(private.management.Ready, ready(), metadata=TOKEN)
    request = pb.ListStageCommandsRequest(**STAGE)

    stranger = await refusal(private.service.ListStageCommands, request)
    await call(private.service.ListStageCommands, request, metadata=TOKEN)

    assert stranger.status == "UNAUTHENTICATED"


async def test_a_message_as_large_as_the_limit_allows_gets_through(
    private: Private, world: PluginWorld
) -> None:
    value = "x" * (6 * 1024 * 1024)

    await call(
        private.service.PutStageMetadata,
        pb.PutStageMetadataRequest(**STAGE, key="big", value=value),
    )

    assert world.control_plane.saved[0].metadata["big"] == value
