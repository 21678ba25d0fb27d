# SPDX-License-Identifier: Apache-2.0
"""A small control plane on one port, for clients that are not ours: three services, one page."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from pipecd_controlplane.http.server import CertificateFiles, serve_public
from pipecd_model.errors import NotFoundError, UnauthenticatedError
from pipecd_wire.apiservice import service_pb2 as apiservice
from pipecd_wire.model import application_pb2, logblock_pb2
from pipecd_wire.pipecd.api import api_pb2
from pipecd_wire.pipedservice import service_pb2 as pipedservice
from pipecd_wire.rpc import Endpoints, Metadata, Method, rpc

KEY = "API-KEY interop"


class Applications:
    @rpc("GetApplication")
    async def get_application(
        self, caller: str, request: apiservice.GetApplicationRequest
    ) -> apiservice.GetApplicationResponse:
        if not request.application_id.startswith("app"):
            raise NotFoundError(f"no application {request.application_id!r}", hint="größer?")
        application = application_pb2.Application(
            id=request.application_id, name="payment", labels={"env": "prod"}, created_at=1
        )
        return apiservice.GetApplicationResponse(application=application)


class Versions:
    @rpc("GetDesiredVersion")
    async def get_desired_version(
        self, caller: str, request: pipedservice.GetDesiredVersionRequest
    ) -> pipedservice.GetDesiredVersionResponse:
        return pipedservice.GetDesiredVersionResponse(version="v1.2.3")


class StageLogs:
    @rpc("FollowStageLog")
    async def follow_stage_log(
        self, caller: str, request: api_pb2.FollowStageLogRequest
    ) -> AsyncIterator[api_pb2.FollowStageLogResponse]:
        for index in range(request.from_index, 3):
            block = logblock_pb2.LogBlock(index=index, log=f"line {index}")
            yield api_pb2.FollowStageLogResponse(blocks=[block])
        if request.stage_id == "lost":
            raise NotFoundError("the log is lost")
        yield api_pb2.FollowStageLogResponse(completed=True)


async def admit(_method: Method, metadata: Metadata) -> str:
    if metadata.get("authorization") != KEY:
        raise UnauthenticatedError("who are you?")
    return "interop"


def endpoints() -> Endpoints:
    made = Endpoints(admit=admit)
    for file, name, api, served in (
        (apiservice, "APIService", Applications(), "GetApplication"),
        (pipedservice, "PipedService", Versions(), "GetDesiredVersion"),
        (api_pb2, "DeploymentService", StageLogs(), "FollowStageLog"),
    ):
        service = file.DESCRIPTOR.services_by_name[name]
        made.add(
            service,
            api,
            unimplemented=[each.name for each in service.methods if each.name != served],
        )
    return made


@dataclass(frozen=True, slots=True, kw_only=True)
class InteropServer:
    """Where the control plane is, and what a client must trust to call it."""

    address: str
    roots_file: Path | None

    @property
    def url(self) -> str:
        return f"{'http' if self.roots_file is None else 'https'}://{self.address}"

    @property
    def roots(self) -> bytes | None:
        return None if self.roots_file is None else self.roots_file.read_bytes()


ServeInterop = Callable[[], AbstractAsyncContextManager[InteropServer]]


@asynccontextmanager
async def serving_interop(
    tls: CertificateFiles | None, roots_file: Path | None
) -> AsyncIterator[InteropServer]:
    """Run the control plane while the block runs."""
    pages = Starlette(routes=[Route("/healthz", _healthz)])
    async with serve_public(pages, endpoints(), "127.0.0.1", 0, tls=tls) as address:
        yield InteropServer(address=address, roots_file=roots_file)


async def _healthz(_request: Request) -> PlainTextResponse:
    return PlainTextResponse("ok")
