# SPDX-License-Identifier: Apache-2.0
"""The SDK's fake of piped, and what a test keeps in memory, promise what the real piped does."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
from google.protobuf.message import Message

from pipecd_piped.controlplane.client import ControlPlane
from pipecd_piped.plugins import PluginBackend, ToolsFolder
from pipecd_piped.plugins.management import (
    ManagementApi,
    PluginSession,
    authenticator_of,
    endpoints_of,
)
from pipecd_piped.plugins.running import RunningStages
from pipecd_piped.programs.port import private_port
from pipecd_piped.report.logs import SpooledStageLogs
from pipecd_piped.report.metadata import MetadataStores
from pipecd_piped.secrets import KnownSecrets, OpenedSecrets
from pipecd_sdk import CommandKind, Metadata, SharedObjects
from pipecd_sdk._glue.piped import (
    ApplicationObjects,
    DeploymentMetadata,
    PipedClient,
    StageMetadata,
)
from pipecd_sdk.testing import InMemoryMetadata, InMemoryObjects
from pipecd_sdk.testing.piped import FakePiped
from pipecd_test_support.plugin_service_contract import (
    APPLICATION,
    DEPLOYMENT,
    PING_INTERVAL_SECONDS,
    PLUGIN,
    PORT,
    SECRETS,
    STAGE,
    MetadataContract,
    PipedUnderTest,
    PluginServiceContract,
    SharedObjectsContract,
)
from pipecd_test_support.plugin_world import GivenCommands, PluginControlPlane, stage_input
from pipecd_wire.headers import PLUGIN_TOKEN_HEADER
from pipecd_wire.model.command_pb2 import Command
from pipecd_wire.rpc import connect, serving


async def keep_nothing(_application_id: str, _method: str, _request: Message) -> None:
    """The control plane of these tests is never away."""


@asynccontextmanager
async def connected(address: str, token: str) -> AsyncIterator[PipedClient]:
    """The client of a plugin that has this token."""
    proof = [(PLUGIN_TOKEN_HEADER, token)]
    async with connect(address, metadata=lambda: proof) as channel:
        yield PipedClient(channel, plugin=PLUGIN, managed=True, poll_interval_seconds=0.02)


@asynccontextmanager
async def fake_piped(folder: Path) -> AsyncIterator[PipedUnderTest]:
    async with AsyncExitStack() as opened:
        fake = await opened.enter_async_context(
            FakePiped(ping_interval_seconds=PING_INTERVAL_SECONDS)
        )
        fake.secrets = dict(SECRETS)
        fake.tools = folder

        async def send(kind: CommandKind, by: str) -> None:
            await fake.send(kind, STAGE, by=by)

        client = await opened.enter_async_context(connected(fake.address, fake.token))
        yield PipedUnderTest(
            client=client,
            stranger=await opened.enter_async_context(connect(fake.address)),
            send=send,
            read_lines=lambda: fake.log(STAGE).lines,
        )


@asynccontextmanager
async def real_piped(folder: Path) -> AsyncIterator[PipedUnderTest]:
    control_plane, commands, secrets = PluginControlPlane(), GivenCommands(), KnownSecrets()
    deployment = stage_input("WAIT").deployment
    session, running = PluginSession(token="right", port=PORT), RunningStages()  # noqa: S106
    async with AsyncExitStack() as opened:
        upstream = await opened.enter_async_context(
            serving(control_plane.endpoints(), "127.0.0.1:0", grace_seconds=0)
        )
        control = ControlPlane(await opened.enter_async_context(connect(f"127.0.0.1:{upstream}")))
        backend = PluginBackend(
            logs=await opened.enter_async_context(SpooledStageLogs(control).open()),
            metadata=MetadataStores(control, keep_nothing),
            commands=commands,
            control=control,
            tools=ToolsFolder(folder),
            secrets=secrets,
        )
        opened.enter_context(secrets.opened(deployment))
        secrets.learn(
            deployment.git_path,
            deployment.trigger.commit.hash,
            OpenedSecrets(values=dict(SECRETS)),
        )
        opened.enter_context(backend.metadata.opened(deployment))
        opened.enter_context(running.enter(DEPLOYMENT, STAGE))
        management = ManagementApi(
            session, ping_interval_seconds=PING_INTERVAL_SECONDS, running=running, backend=backend
        )
        port = await opened.enter_async_context(
            private_port(
                endpoints_of(PLUGIN, session, management, backend),
                authenticator_of(PLUGIN, session),
            )
        )

        async def send(kind: CommandKind, by: str) -> None:
            commands.give(
                Command(
                    id=f"command-{by}",
                    deployment_id=DEPLOYMENT,
                    stage_id=STAGE,
                    commander=by,
                    type=Command.Type.ValueType(kind),
                )
            )

        address = f"localhost:{port}"
        client = await opened.enter_async_context(connected(address, "right"))
        yield PipedUnderTest(
            client=client,
            stranger=await opened.enter_async_context(connect(address)),
            send=send,
            read_lines=lambda: control_plane.lines,
        )


class TestFakePiped(PluginServiceContract):
    @pytest.fixture
    async def piped(self, tmp_path: Path) -> AsyncIterator[PipedUnderTest]:
        async with fake_piped(tmp_path) as piped:
            yield piped


class TestRealPiped(PluginServiceContract):
    @pytest.fixture
    async def piped(self, tmp_path: Path) -> AsyncIterator[PipedUnderTest]:
        async with real_piped(tmp_path) as piped:
            yield piped


class TestInMemoryMetadata(MetadataContract):
    @pytest.fixture
    def metadata(self) -> Metadata:
        return InMemoryMetadata()


class TestStageMetadataOfFakePiped(MetadataContract):
    @pytest.fixture
    async def metadata(self, tmp_path: Path) -> AsyncIterator[Metadata]:
        async with fake_piped(tmp_path) as piped:
            yield StageMetadata(piped.client, DEPLOYMENT, STAGE)


class TestStageMetadataOfRealPiped(MetadataContract):
    @pytest.fixture
    async def metadata(self, tmp_path: Path) -> AsyncIterator[Metadata]:
        async with real_piped(tmp_path) as piped:
            yield StageMetadata(piped.client, DEPLOYMENT, STAGE)


class TestPluginMetadataOfFakePiped(MetadataContract):
    @pytest.fixture
    async def metadata(self, tmp_path: Path) -> AsyncIterator[Metadata]:
        async with fake_piped(tmp_path) as piped:
            yield DeploymentMetadata(piped.client, DEPLOYMENT)


class TestPluginMetadataOfRealPiped(MetadataContract):
    @pytest.fixture
    async def metadata(self, tmp_path: Path) -> AsyncIterator[Metadata]:
        async with real_piped(tmp_path) as piped:
            yield DeploymentMetadata(piped.client, DEPLOYMENT)


class TestInMemoryObjects(SharedObjectsContract):
    @pytest.fixture
    def objects(self) -> SharedObjects:
        return InMemoryObjects()


class TestSharedObjectsOfFakePiped(SharedObjectsContract):
    @pytest.fixture
    async def objects(self, tmp_path: Path) -> AsyncIterator[SharedObjects]:
        async with fake_piped(tmp_path) as piped:
            yield ApplicationObjects(piped.client, APPLICATION)


class TestSharedObjectsOfRealPiped(SharedObjectsContract):
    @pytest.fixture
    async def objects(self, tmp_path: Path) -> AsyncIterator[SharedObjects]:
        async with real_piped(tmp_path) as piped:
            yield ApplicationObjects(piped.client, APPLICATION)
