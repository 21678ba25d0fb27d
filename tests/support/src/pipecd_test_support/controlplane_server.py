# SPDX-License-Identifier: Apache-2.0
"""Serves a control plane on a folder, and calls it as an agent or a program does."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipecd_controlplane.app import RunningServer, control_plane
from pipecd_controlplane.settings import ServerSettings
from pipecd_controlplane.store.database import Transaction
from pipecd_controlplane.store.stores import Stores
from pipecd_controlplane.usecases.keys import hash_of, new_api_key
from pipecd_model.ids import new_id
from pipecd_test_support.chosen_store import find_postgres
from pipecd_test_support.controlplane_messages import MessageBuilder
from pipecd_wire.apiservice import service_pb2 as apiservice
from pipecd_wire.apiservice import service_pb2_grpc as apiservice_grpc
from pipecd_wire.model import apikey_pb2, common_pb2, deployment_pb2, project_pb2
from pipecd_wire.pipecd.api import api_pb2_grpc
from pipecd_wire.pipecd.push import push_pb2_grpc
from pipecd_wire.pipedservice import service_pb2 as pipedservice
from pipecd_wire.pipedservice import service_pb2_grpc as pipedservice_grpc
from pipecd_wire.rpc import call, connect
from pipecd_wire.rpc.channel import Channel, Pairs

if TYPE_CHECKING:  # they are in the stub files only
    from pipecd_wire.apiservice.service_pb2_grpc import APIServiceAsyncStub
    from pipecd_wire.pipecd.api.api_pb2_grpc import (
        DeploymentServiceAsyncStub,
        ProjectServiceAsyncStub,
    )
    from pipecd_wire.pipecd.push.push_pb2_grpc import PushServiceAsyncStub
    from pipecd_wire.pipedservice.service_pb2_grpc import PipedServiceAsyncStub


@dataclass
class AgentClient:
    """A piped as its control plane sees it: calls with its token."""

    id: str
    key: str
    service: "PipedServiceAsyncStub"
    push: "PushServiceAsyncStub"
    channel: Channel


@dataclass
class ProgramClient:
    """Somebody with an API key."""

    project_id: str
    key: str
    api: "APIServiceAsyncStub"
    deployments: "DeploymentServiceAsyncStub"
    applications: "api_pb2_grpc.ApplicationServiceAsyncStub"
    pipeds: "api_pb2_grpc.PipedServiceAsyncStub"
    project: "ProjectServiceAsyncStub"
    channel: Channel


@dataclass
class ServedControlPlane:
    """A served control plane, and ways to call it."""

    running: RunningServer
    opened: AsyncExitStack
    build: MessageBuilder
    admin: ProgramClient = field(init=False)

    @classmethod
    async def of(cls, running: RunningServer, opened: AsyncExitStack) -> "ServedControlPlane":
        """Returns ways to call a control plane that the test has started itself."""
        clients = await opened.enter_async_context(AsyncExitStack())
        plane = cls(running=running, opened=clients, build=MessageBuilder())
        plane.admin = await plane.user(running.admin_key_file.read_text().strip())
        return plane

    @property
    def address(self) -> str:
        return self.running.address

    @property
    def stores(self) -> Stores:
        return self.running.stores

    async def user(
        self, key: str, *, project_id: str = "default", extra: Pairs = ()
    ) -> ProgramClient:
        pairs = [("authorization", f"API-KEY {key}"), *extra]
        channel = await self.opened.enter_async_context(
            connect(self.address, metadata=lambda: pairs)
        )
        return ProgramClient(
            project_id=project_id,
            key=key,
            api=apiservice_grpc.APIServiceStub(channel),
            deployments=api_pb2_grpc.DeploymentServiceStub(channel),
            applications=api_pb2_grpc.ApplicationServiceStub(channel),
            pipeds=api_pb2_grpc.PipedServiceStub(channel),
            project=api_pb2_grpc.ProjectServiceStub(channel),
            channel=channel,
        )

    async def new_key(
        self,
        name: str,
        *,
        project_id: str = "default",
        role: apikey_pb2.APIKey.Role.ValueType = apikey_pb2.APIKey.READ_WRITE,
    ) -> str:
        key_id = new_id()
        key = new_api_key(key_id)
        record = apikey_pb2.APIKey(
            id=key_id,
            name=name,
            key_hash=await hash_of(key),
            project_id=project_id,
            role=role,
            creator="test",
            created_at=MessageBuilder.NOON,
            updated_at=MessageBuilder.NOON,
        )
        await self.stores.api_keys.add(record)
        return key

    async def other_project(self, project_id: str = "theirs") -> ProgramClient:
        async def work(transaction: Transaction) -> None:
            await self.stores.projects.add_in(transaction, project_pb2.Project(id=project_id))

        await self.stores.database.write(work)
        return await self.user(
            await self.new_key("theirs", project_id=project_id), project_id=project_id
        )

    async def agent(self, user: ProgramClient | None = None, *, name: str = "agent") -> AgentClient:
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

    async def agent_with(self, project_id: str, piped_id: str, key: str) -> AgentClient:
        pairs = [("authorization", f"PIPED-TOKEN {project_id},{piped_id},{key}")]
        channel = await self.opened.enter_async_context(
            connect(self.address, metadata=lambda: pairs)
        )
        return AgentClient(
            id=piped_id,
            key=key,
            service=pipedservice_grpc.PipedServiceStub(channel),
            push=push_pb2_grpc.PushServiceStub(channel),
            channel=channel,
        )

    async def application(
        self,
        agent: AgentClient,
        user: ProgramClient | None = None,
        *,
        name: str = "hello",
        **fields: Any,
    ) -> str:
        user = user or self.admin
        made = await call(
            user.api.AddApplication,
            apiservice.AddApplicationRequest(
                name=name, piped_id=agent.id, git_path=self.build.git_path(), **fields
            ),
        )
        return made.application_id

    async def deployment(
        self,
        agent: AgentClient,
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

    async def read_deployment(self, deployment_id: str = "d1") -> deployment_pb2.Deployment:
        """Returns a deployment as it is stored."""
        response = await call(
            self.admin.api.GetDeployment,
            apiservice.GetDeploymentRequest(deployment_id=deployment_id),
        )
        return response.deployment


Serve = Callable[[Path], AbstractAsyncContextManager[ServedControlPlane]]


@asynccontextmanager
async def serving(folder: Path) -> AsyncIterator[ServedControlPlane]:
    """Serve a data folder in this process: `async with serving(path) as plane`."""
    async with AsyncExitStack() as opened:
        settings = ServerSettings(
            data_dir=folder,
            postgres=find_postgres(folder),
            grace_seconds=1,
            repeat_units=True,
            console_dir=folder / "no-console",
        )
        running = await opened.enter_async_context(control_plane(settings))
        yield await ServedControlPlane.of(running, opened)
