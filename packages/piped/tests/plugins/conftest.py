# SPDX-License-Identifier: Apache-2.0
"""A host of real plugin processes, and a control plane that only remembers."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from pipecd_model.config import PluginConfig
from pipecd_runtime.ports import pick_port
from pipecd_test_support.web_server import WebServer
from pipecd_wire.model.command_pb2 import Command
from pipecd_wire.model.deployment_pb2 import Deployment, PipelineStage
from pipecd_wire.pipedservice import service_pb2 as pb
from pipecd_wire.plugin.deploymentapi.api_pb2 import ExecutePluginInput
from pipecd_wire.rpc import Endpoints, StatusError, admit_all, connect, rpc, serving
from piped.controlplane.client import ControlPlane
from piped.plugins import Limits, PluginBackend, PluginHost, Tools
from piped.report.logs import StageLogs
from piped.report.metadata import MetadataStores

SERVICE = pb.DESCRIPTOR.services_by_name["PipedService"]
PROGRAM = Path(__file__).parent / "programs" / "odd_plugin.py"


class Remembering:
    """The part of the control plane that plugins reach through piped."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.saved: list[Any] = []
        self.objects: dict[str, bytes] = {}

    @rpc("ReportStageLogs")
    async def logs(self, _: Any, request: pb.ReportStageLogsRequest) -> pb.ReportStageLogsResponse:
        self.lines += [block.log for block in request.blocks]
        return pb.ReportStageLogsResponse()

    @rpc("ReportStageLogsFromLastCheckpoint")
    async def checkpoint(
        self, _: Any, request: pb.ReportStageLogsFromLastCheckpointRequest
    ) -> pb.ReportStageLogsFromLastCheckpointResponse:
        self.lines += [block.log for block in request.blocks]
        return pb.ReportStageLogsFromLastCheckpointResponse()

    @rpc("SaveStageMetadata")
    async def save_stage(
        self, _: Any, request: pb.SaveStageMetadataRequest
    ) -> pb.SaveStageMetadataResponse:
        self.saved.append(request)
        return pb.SaveStageMetadataResponse()

    @rpc("SaveDeploymentPluginMetadata")
    async def save_plugin(
        self, _: Any, request: pb.SaveDeploymentPluginMetadataRequest
    ) -> pb.SaveDeploymentPluginMetadataResponse:
        self.saved.append(request)
        return pb.SaveDeploymentPluginMetadataResponse()

    @rpc("GetApplicationSharedObject")
    async def get_object(
        self, _: Any, request: pb.GetApplicationSharedObjectRequest
    ) -> pb.GetApplicationSharedObjectResponse:
        if request.key not in self.objects:
            raise StatusError("NOT_FOUND", "no such object")
        return pb.GetApplicationSharedObjectResponse(object=self.objects[request.key])

    @rpc("PutApplicationSharedObject")
    async def put_object(
        self, _: Any, request: pb.PutApplicationSharedObjectRequest
    ) -> pb.PutApplicationSharedObjectResponse:
        self.objects[request.key] = request.object
        return pb.PutApplicationSharedObjectResponse()

    def endpoints(self) -> Endpoints:
        mine = {getattr(each, "__rpc_name__", "") for each in vars(type(self)).values()}
        endpoints = Endpoints(admit=admit_all)
        endpoints.add(SERVICE, self, unimplemented=set(SERVICE.methods_by_name) - mine)
        return endpoints


class GivenCommands:
    """The commands that a test gives to stages."""

    def __init__(self) -> None:
        self._commands: list[Command] = []
        self._changed = asyncio.Event()

    def give(self, command: Command) -> None:
        self._commands.append(command)
        self._changed.set()

    def stage_commands(self, deployment_id: str, stage_id: str) -> Sequence[Command]:
        return [
            c for c in self._commands if (c.deployment_id, c.stage_id) == (deployment_id, stage_id)
        ]

    async def watch_stage_commands(
        self, deployment_id: str, stage_id: str
    ) -> AsyncGenerator[Command, None]:
        told = 0
        while True:
            self._changed.clear()
            for command in self.stage_commands(deployment_id, stage_id)[told:]:
                told += 1
                yield command
            await self._changed.wait()


class World:
    """Everything around a host."""

    def __init__(self, folder: Path, backend: PluginBackend, control_plane: Remembering) -> None:
        self.folder = folder
        self.backend = backend
        self.control_plane = control_plane
        self.commands = backend.commands

    def odd(self, name: str = "odd", *, port: int = 0, **config: Any) -> PluginConfig:
        """The odd plugin as a local file."""
        return PluginConfig(
            name=name,
            url=str(self.executable(name)),
            port=port,
            config={"record": str(self.record(name)), **config},
        )

    def executable(self, name: str) -> Path:
        path = self.folder / f"{name}-plugin"
        path.write_text(f"#!{sys.executable}\n{PROGRAM.read_text()}")
        path.chmod(0o755)
        return path

    def record(self, name: str) -> Path:
        return self.folder / f"{name}.record"

    def facts(self, name: str = "odd", about: str = "") -> list[list[Any]]:
        """What the odd plugin has seen."""
        path = self.record(name)
        facts = (
            [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        )
        return [fact for fact in facts if not about or fact[0] == about]

    def host(self, *configs: PluginConfig, **options: Any) -> PluginHost:
        return PluginHost(configs, data_dir=self.folder / "data", backend=self.backend, **options)

    def run_input(self, stage: str, deployment_id: str = "d1") -> ExecutePluginInput:
        """A request that a Go plugin would accept too."""
        now = 1_700_000_000
        the_stage = PipelineStage(id=f"s-{stage}", name=stage, created_at=now, updated_at=now)
        deployment = Deployment(
            id=deployment_id,
            application_id="a1",
            application_name="app",
            piped_id="p1",
            project_id="pr1",
            git_path={"repo": {"id": "r1"}, "path": "apps/one"},
            trigger={
                "timestamp": now,
                "commit": {
                    "hash": "abc",
                    "message": "a change",
                    "author": "Ada",
                    "branch": "main",
                    "created_at": now,
                },
            },
            stages=[the_stage],
        )
        return ExecutePluginInput(deployment=deployment, stage=the_stage)


async def _kept(_application_id: str, _request: Any) -> None:
    """Keep nothing: the control plane of these tests is never away."""


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    control_plane = Remembering()
    async with AsyncExitStack() as opened:
        port = await opened.enter_async_context(
            serving(control_plane.endpoints(), "127.0.0.1:0", grace_seconds=0)
        )
        control = ControlPlane(await opened.enter_async_context(connect(f"127.0.0.1:{port}")))
        logs = await opened.enter_async_context(StageLogs(control).open())
        backend = PluginBackend(
            logs=logs,
            metadata=MetadataStores(control, _kept),
            commands=GivenCommands(),
            control=control,
            tools=Tools(tmp_path / "tools"),
        )
        yield World(tmp_path, backend, control_plane)


@pytest.fixture
def quick() -> Limits:
    """Limits for plugins that fail, so that failing does not take long."""
    return Limits(
        ready=15,
        planning=1,
        first_pause=0.05,
        longest_pause=0.2,
        ping_interval=0.2,
        channel=0.5,
        hurry=0.5,
    )


async def until(holds: Callable[[], object], limit: float = 30) -> None:
    """Wait until something holds; every look is one turn of the loop apart."""
    async with asyncio.timeout(limit):
        while not holds():  # noqa: ASYNC110 - what is waited for happens in other processes
            await asyncio.sleep(0.01)


@pytest.fixture(name="until")
def until_fixture() -> Callable[..., Any]:
    return until


@pytest.fixture
def on_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Path, str], None]:
    """Install an executable under a name."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")

    def install(executable: Path, name: str) -> None:
        (folder / name).symlink_to(executable)

    return install


@pytest.fixture
def server() -> Iterator[WebServer]:
    """A web server that plugins come from."""
    with WebServer() as serving:
        yield serving


@pytest.fixture
def free_port() -> int:
    return pick_port()
