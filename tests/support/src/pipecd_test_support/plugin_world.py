# SPDX-License-Identifier: Apache-2.0
"""Hosts of real plugin processes, and a control plane that only remembers."""

import asyncio
import json
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from pipecd_model.config import PluginConfig
from pipecd_piped.plugins import Plugin, PluginBackend, PluginError, PluginHost, PluginLimits
from pipecd_piped.programs.download import DownloadLimits
from pipecd_wire.model.command_pb2 import Command
from pipecd_wire.model.common_pb2 import ApplicationGitPath, ApplicationGitRepository
from pipecd_wire.model.deployment_pb2 import (
    Commit,
    Deployment,
    DeploymentTrigger,
    PipelineStage,
)
from pipecd_wire.pipedservice import service_pb2 as pb
from pipecd_wire.plugin.deploymentapi.api_pb2 import ExecutePluginInput
from pipecd_wire.rpc import Endpoints, StatusError, admit_all, rpc

T = TypeVar("T")

SERVICE = pb.DESCRIPTOR.services_by_name["PipedService"]


class PluginControlPlane:
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


class PluginWorld:
    """Everything around a host."""

    def __init__(
        self,
        folder: Path,
        program: Path,
        backend: PluginBackend,
        control_plane: PluginControlPlane,
        commands: GivenCommands,
    ) -> None:
        """`program`: the source of the odd plugin."""
        self.folder = folder
        self.program = program
        self.backend = backend
        self.control_plane = control_plane
        self.commands = commands

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
        path.write_text(f"#!{sys.executable}\n{self.program.read_text()}")
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

    def host(
        self,
        *configs: PluginConfig,
        limits: PluginLimits | None = None,
        download: DownloadLimits | None = None,
        grace_seconds: float = 30,
        on_change: Callable[[Plugin], None] | None = None,
    ) -> PluginHost:
        """A host of these plugins on the data folder of the world."""
        return PluginHost(
            configs,
            data_dir=self.folder / "data",
            backend=self.backend,
            limits=limits,
            download=download,
            grace_seconds=grace_seconds,
            on_change=on_change,
        )

    def run_input(self, stage: str, deployment_id: str = "d1") -> ExecutePluginInput:
        """A request that a Go plugin would accept too."""
        return stage_input(stage, deployment_id)


def stage_input(stage: str, deployment_id: str = "d1") -> ExecutePluginInput:
    """A request to run a stage that a Go plugin would accept too."""
    now = 1_700_000_000
    the_stage = PipelineStage(id=f"s-{stage}", name=stage, created_at=now, updated_at=now)
    deployment = Deployment(
        id=deployment_id,
        application_id="a1",
        application_name="app",
        piped_id="p1",
        project_id="pr1",
        git_path=ApplicationGitPath(repo=ApplicationGitRepository(id="r1"), path="apps/one"),
        trigger=DeploymentTrigger(
            timestamp=now,
            commit=Commit(
                hash="abc", message="a change", author="Ada", branch="main", created_at=now
            ),
        ),
        stages=[the_stage],
    )
    return ExecutePluginInput(deployment=deployment, stage=the_stage)


async def wait_for(holds: Callable[[], object], limit_seconds: float = 30) -> None:
    """Wait until something holds that other processes bring about."""
    async with asyncio.timeout(limit_seconds):
        while not holds():  # noqa: ASYNC110 - what is waited for happens in other processes
            await asyncio.sleep(0.01)


async def outcome_of(answer: Awaitable[T]) -> T | PluginError:
    """Wait for an answer, or for the PluginError in its place."""
    try:
        return await answer
    except PluginError as error:
        return error
