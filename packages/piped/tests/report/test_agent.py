# SPDX-License-Identifier: Apache-2.0
"""What piped says about itself, over real gRPC."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest

from pipecd_model.config import load_piped
from pipecd_model.errors import UnauthenticatedError
from pipecd_piped.controlplane.client import ControlPlane, connected
from pipecd_piped.report.agent import PipedMeta, Stats
from pipecd_wire.pipedservice import service_pb2 as pb
from pipecd_wire.rpc import Endpoints, Metadata, Method, rpc, serving

LIMIT = 20
PIPED_SERVICE = pb.DESCRIPTOR.services_by_name["PipedService"]
CONFIG = """
apiVersion: pipecd.dev/v1beta1
kind: Piped
spec:
  projectID: project
  pipedID: piped
  apiAddress: localhost:1
  pipedKeyData: c2VjcmV0LWtleQ==
  repositories:
    - {repoId: web, remote: "https://git.example.com/web", branch: main}
  plugins:
    - name: kubernetes
      config: {password: hunter22}
      deployTargets: [{name: dev}, {name: prod}]
    - name: wait
"""


class Listener:
    def __init__(self) -> None:
        self.meta: list[pb.ReportPipedMetaRequest] = []
        self.stats: asyncio.Queue[str] = asyncio.Queue()

    @rpc("ReportPipedMeta")
    async def meta_(
        self, caller: object, request: pb.ReportPipedMetaRequest
    ) -> pb.ReportPipedMetaResponse:
        self.meta.append(request)
        return pb.ReportPipedMetaResponse(name="one")

    @rpc("ReportStat")
    async def stat(self, caller: object, request: pb.ReportStatRequest) -> pb.ReportStatResponse:
        self.stats.put_nowait(request.piped_stats.decode())
        return pb.ReportStatResponse()


async def admit(method: Method, metadata: Metadata) -> str:
    if "PIPED-TOKEN project,piped,secret-key" not in metadata["authorization"]:
        raise UnauthenticatedError("unknown key")
    return ""


@asynccontextmanager
async def control_plane(listener: Listener, key: str = "secret-key") -> AsyncIterator[ControlPlane]:
    served = Endpoints(admit=admit)
    taken = {"ReportPipedMeta", "ReportStat"}
    unimplemented = [method.name for method in PIPED_SERVICE.methods if method.name not in taken]
    served.add(PIPED_SERVICE, listener, unimplemented=unimplemented)
    async with (
        serving(served, "127.0.0.1:0", grace_seconds=0) as port,
        connected(
            f"127.0.0.1:{port}", project_id="project", piped_id="piped", key=key, tls=None
        ) as control,
    ):
        yield control


@asynccontextmanager
async def running(component: Stats) -> AsyncIterator[None]:
    task = asyncio.ensure_future(component.run())
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def test_piped_introduces_itself_without_its_secrets() -> None:
    config = load_piped(CONFIG, file="piped.yaml").config
    listener = Listener()
    async with control_plane(listener) as control:
        await PipedMeta(control, config, version="1.2.3").introduce()

    [meta] = listener.meta
    assert meta.version == "1.2.3"
    assert [(each.id, each.branch) for each in meta.repositories] == [("web", "main")]
    assert [(each.name, list(each.deploy_targets)) for each in meta.plugins] == [
        ("kubernetes", ["dev", "prod"]),
        ("wait", []),
    ]
    assert meta.secret_encryption.type == "NONE"
    assert "kubernetes" in meta.config
    assert "hunter22" not in meta.config
    assert "c2VjcmV0LWtleQ" not in meta.config


async def test_a_refusal_says_what_to_check() -> None:
    config = load_piped(CONFIG, file="piped.yaml").config
    async with control_plane(Listener(), key="wrong") as control:
        with pytest.raises(UnauthenticatedError, match="refuses this piped: unknown key") as error:
            await PipedMeta(control, config, version="1").introduce()

    assert error.value.hint == "check projectID, pipedID and the piped key"


async def test_a_sign_of_life_carries_the_metrics() -> None:
    listener = Listener()
    async with (
        control_plane(listener) as control,
        running(Stats(control, lambda: "piped_deployments_running 3\n")),
    ):
        text = await asyncio.wait_for(listener.stats.get(), LIMIT)

    assert text == "piped_deployments_running 3\n"
