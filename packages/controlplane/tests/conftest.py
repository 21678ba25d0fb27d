# SPDX-License-Identifier: Apache-2.0
"""What the tests of the control plane share: builders, a database, a served control plane."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from pipecd_controlplane.app import ControlPlane, Settings, control_plane
from pipecd_controlplane.store.changes import Change
from pipecd_controlplane.store.database import Database, Transaction
from pipecd_controlplane.store.open import SqliteFolder, open_database
from pipecd_controlplane.store.stores import Stores, stores
from pipecd_controlplane.usecases.keys import hash_of, new_api_key
from pipecd_model.ids import new_id
from pipecd_wire.apiservice import service_pb2 as apiservice
from pipecd_wire.apiservice import service_pb2_grpc as apiservice_grpc
from pipecd_wire.model import (
    apikey_pb2,
    application_pb2,
    command_pb2,
    common_pb2,
    deployment_pb2,
    logblock_pb2,
    piped_pb2,
    project_pb2,
)
from pipecd_wire.pipecd.api import api_pb2_grpc
from pipecd_wire.pipecd.push import push_pb2_grpc
from pipecd_wire.pipedservice import service_pb2 as pipedservice
from pipecd_wire.pipedservice import service_pb2_grpc as pipedservice_grpc
from pipecd_wire.rpc import call, connect

LIMIT = 20.0
"""Seconds that any one wait of a test may take, on the slowest machine."""

PROCESS_LIMIT = 60.0
"""The same for a process that has to start or to end."""


class Build:
    """Messages that keep their rules; a test says only what it is about."""

    NOON = 1_700_000_000

    def git_path(self, path: str = "apps/hello") -> common_pb2.ApplicationGitPath:
        return common_pb2.ApplicationGitPath(
            repo=common_pb2.ApplicationGitRepository(id="repo"), path=path
        )

    def trigger(self, commit: str = "c0ffee") -> deployment_pb2.DeploymentTrigger:
        return deployment_pb2.DeploymentTrigger(
            commit=deployment_pb2.Commit(
                hash=commit, message="change", author="a", branch="main", created_at=self.NOON
            ),
            timestamp=self.NOON,
        )

    def piped(self, **fields: Any) -> piped_pb2.Piped:
        defaults = {"id": "piped", "name": "agent", "project_id": "ours"}
        times = {"created_at": self.NOON, "updated_at": self.NOON}
        return piped_pb2.Piped(**{**defaults, **times, **fields})

    def application(self, **fields: Any) -> application_pb2.Application:
        defaults = {
            "id": "app",
            "name": "hello",
            "piped_id": "piped",
            "project_id": "ours",
            "git_path": self.git_path(),
            "created_at": self.NOON,
            "updated_at": self.NOON,
        }
        return application_pb2.Application(**{**defaults, **fields})

    def stage(self, stage_id: str = "s1", **fields: Any) -> deployment_pb2.PipelineStage:
        defaults = {
            "id": stage_id,
            "name": "SCRIPT_RUN",
            "created_at": self.NOON,
            "updated_at": self.NOON,
        }
        return deployment_pb2.PipelineStage(**{**defaults, **fields})

    def deployment(self, **fields: Any) -> deployment_pb2.Deployment:
        defaults = {
            "id": "d1",
            "application_id": "app",
            "application_name": "hello",
            "piped_id": "piped",
            "project_id": "ours",
            "git_path": self.git_path(),
            "trigger": self.trigger(),
            "created_at": self.NOON,
            "updated_at": self.NOON,
        }
        return deployment_pb2.Deployment(**{**defaults, **fields})

    def command(self, **fields: Any) -> command_pb2.Command:
        defaults = {"id": "c1", "piped_id": "piped", "project_id": "ours", "commander": "me"}
        times = {"created_at": self.NOON, "updated_at": self.NOON}
        return command_pb2.Command(**{**defaults, **times, **fields})

    def blocks(self, *indexes: int) -> list[logblock_pb2.LogBlock]:
        return [
            logblock_pb2.LogBlock(index=index, log=f"line {index}", created_at=self.NOON)
            for index in indexes
        ]

    def planned(
        self, deployment_id: str, *stages: deployment_pb2.PipelineStage, **fields: Any
    ) -> pipedservice.ReportDeploymentPlannedRequest:
        return pipedservice.ReportDeploymentPlannedRequest(
            deployment_id=deployment_id, stages=stages, **fields
        )

    def stage_report(
        self, deployment_id: str, stage_id: str, status: int, **fields: Any
    ) -> pipedservice.ReportStageStatusChangedRequest:
        defaults = {"completed_at": self.NOON}
        return pipedservice.ReportStageStatusChangedRequest(
            deployment_id=deployment_id,
            stage_id=stage_id,
            status=deployment_pb2.StageStatus.Name(status),
            **{**defaults, **fields},
        )


@pytest.fixture
def build() -> Build:
    return Build()


@pytest.fixture
def told() -> list[Change]:
    """Every change that was committed, in its order."""
    return []


@pytest.fixture(params=["sqlite"])
async def database(
    request: pytest.FixtureRequest, tmp_path: Path, told: list[Change]
) -> AsyncIterator[Database]:
    """Each database that we support: all of them make the same promises."""
    async with open_database(
        SqliteFolder(folder=tmp_path / "data", repeat_units=True), on_commit=told.extend
    ) as opened:
        yield opened


@pytest.fixture
def kept(database: Database) -> Stores:
    return stores(database, lambda: Build.NOON + 60)


@dataclass
class Agent:
    """A piped as its control plane sees it: calls with its token."""

    id: str
    key: str
    service: Any
    push: Any
    channel: Any


@dataclass
class User:
    """Somebody with an API key."""

    project_id: str
    key: str
    api: Any
    deployments: Any
    pipeds: Any
    project: Any
    channel: Any


@dataclass
class Plane:
    """A served control plane, and ways to call it."""

    running: ControlPlane
    opened: AsyncExitStack
    build: Build
    admin: User = field(init=False)

    @property
    def address(self) -> str:
        return self.running.address

    @property
    def stores(self) -> Stores:
        return self.running.stores

    async def user(self, key: str, *, project_id: str = "default", extra: Any = ()) -> User:
        pairs = [("authorization", f"API-KEY {key}"), *extra]
        channel = await self.opened.enter_async_context(
            connect(self.address, metadata=lambda: pairs)
        )
        return User(
            project_id=project_id,
            key=key,
            api=apiservice_grpc.APIServiceStub(channel),
            deployments=api_pb2_grpc.DeploymentServiceStub(channel),
            pipeds=api_pb2_grpc.PipedServiceStub(channel),
            project=api_pb2_grpc.ProjectServiceStub(channel),
            channel=channel,
        )

    async def new_key(
        self, name: str, *, project_id: str = "default", role: int = apikey_pb2.APIKey.READ_WRITE
    ) -> str:
        key_id = new_id()
        key = new_api_key(key_id)
        record = apikey_pb2.APIKey(
            id=key_id,
            name=name,
            key_hash=await hash_of(key),
            project_id=project_id,
            role=apikey_pb2.APIKey.Role.Name(role),
            creator="test",
            created_at=Build.NOON,
            updated_at=Build.NOON,
        )
        await self.stores.api_keys.add(record)
        return key

    async def other_project(self, project_id: str = "theirs") -> User:
        async def work(transaction: Transaction) -> None:
            await self.stores.projects.add_in(transaction, project_pb2.Project(id=project_id))

        await self.stores.database.write(work)
        return await self.user(
            await self.new_key("theirs", project_id=project_id), project_id=project_id
        )

    async def agent(self, user: User | None = None, *, name: str = "agent") -> Agent:
        """A registered piped that has reported a repository."""
        user = user or self.admin
        made = await call(user.api.RegisterPiped, apiservice.RegisterPipedRequest(name=name))
        agent = await self.agent_with(user.project_id, made.id, made.key)
        await call(
            agent.service.ReportPipedMeta,
            pipedservice.ReportPipedMetaRequest(
                version="v1.0.0",
                repositories=[
                    common_pb2.ApplicationGitRepository(
                        id="repo", remote="git@github.com:org/name.git", branch="main"
                    )
                ],
            ),
        )
        return agent

    async def agent_with(self, project_id: str, piped_id: str, key: str) -> Agent:
        pairs = [("authorization", f"PIPED-TOKEN {project_id},{piped_id},{key}")]
        channel = await self.opened.enter_async_context(
            connect(self.address, metadata=lambda: pairs)
        )
        return Agent(
            id=piped_id,
            key=key,
            service=pipedservice_grpc.PipedServiceStub(channel),
            push=push_pb2_grpc.PushServiceStub(channel),
            channel=channel,
        )

    async def application(
        self, agent: Agent, user: User | None = None, *, name: str = "hello", **fields: Any
    ) -> str:
        user = user or self.admin
        made = await call(
            user.api.AddApplication,
            apiservice.AddApplicationRequest(
                name=name, piped_id=agent.id, git_path=self.build.git_path(), **fields
            ),
        )
        return str(made.application_id)

    async def deployment(
        self,
        agent: Agent,
        application_id: str,
        deployment_id: str = "d1",
        *stages: deployment_pb2.PipelineStage,
        **fields: Any,
    ) -> str:
        """A deployment that is running its stages; one that is pending without any."""
        fields = {"project_id": "default", **fields}
        await call(
            agent.service.CreateDeployment,
            pipedservice.CreateDeploymentRequest(
                deployment=self.build.deployment(
                    id=deployment_id,
                    application_id=application_id,
                    piped_id=agent.id,
                    **fields,
                )
            ),
        )
        if stages:
            await call(
                agent.service.ReportDeploymentPlanned, self.build.planned(deployment_id, *stages)
            )
            await call(
                agent.service.ReportDeploymentStatusChanged,
                pipedservice.ReportDeploymentStatusChangedRequest(
                    deployment_id=deployment_id, status=deployment_pb2.DEPLOYMENT_RUNNING
                ),
            )
        return deployment_id

    async def kept(self, deployment_id: str = "d1") -> deployment_pb2.Deployment:
        answer = await call(
            self.admin.api.GetDeployment,
            apiservice.GetDeploymentRequest(deployment_id=deployment_id),
        )
        deployment: deployment_pb2.Deployment = answer.deployment
        return deployment


Serve = Callable[[Path], Any]


@pytest.fixture
def serve(plane_of: Callable[..., Any]) -> Serve:
    """Serve a folder: `async with serve(path) as plane`."""

    @asynccontextmanager
    async def serving(folder: Path) -> AsyncIterator[Plane]:
        async with AsyncExitStack() as opened:
            running = await opened.enter_async_context(
                control_plane(Settings(data_dir=folder, grace=1, repeat_units=True))
            )
            yield await plane_of(running, opened)

    return serving


@pytest.fixture
def plane_of(build: Build) -> Callable[..., Any]:
    """Ways to call a control plane that the test has started itself."""

    async def make(running: ControlPlane, opened: AsyncExitStack) -> Plane:
        clients = await opened.enter_async_context(AsyncExitStack())
        plane = Plane(running=running, opened=clients, build=build)
        plane.admin = await plane.user(running.admin_key_file.read_text().strip())
        return plane

    return make


@pytest.fixture
async def plane(serve: Serve, tmp_path: Path) -> AsyncIterator[Plane]:
    async with serve(tmp_path / "data") as served:
        yield served


@dataclass
class ServerProcess:
    """A control plane that is a process of its own."""

    process: asyncio.subprocess.Process
    address: str
    lines: list[str]

    async def ended(self) -> int:
        async with asyncio.timeout(PROCESS_LIMIT):
            return await self.process.wait()


@pytest.fixture
def server() -> Callable[..., Any]:
    """Run `pipecd server`: `async with server(folder, "--flag", env={…}) as running`."""

    @asynccontextmanager
    async def running(
        folder: Path, *flags: str, env: Mapping[str, str] | None = None
    ) -> AsyncIterator[ServerProcess]:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            "from pipecd_controlplane.cli import main; main()",
            "server",
            "--data-dir",
            str(folder),
            "--listen",
            "127.0.0.1:0",
            *flags,
            env={**os.environ, **(env or {})},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            assert process.stdout is not None
            async with asyncio.timeout(PROCESS_LIMIT):
                lines = [(await process.stdout.readline()).decode().rstrip() for _ in range(3)]
            yield ServerProcess(process, lines[0].rpartition(" ")[2], lines)
        finally:
            if process.returncode is None:
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()

    return running


@pytest.fixture
def soon() -> Callable[[Any], Any]:
    """Wait for something that must happen, but not for ever."""

    async def wait(awaitable: Any) -> Any:
        async with asyncio.timeout(LIMIT):
            return await awaitable

    return wait
