# SPDX-License-Identifier: Apache-2.0
"""What is kept with a deployment, over real gRPC to a control plane that may refuse."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.message import Message

from pipecd_model.errors import ConfigError, StateError
from pipecd_piped.controlplane.client import ControlPlane
from pipecd_piped.report.metadata import MetadataStores
from pipecd_wire.model.deployment_pb2 import Deployment, DeploymentMetadata, PipelineStage
from pipecd_wire.pipedservice import service_pb2 as pb
from pipecd_wire.rpc import Endpoints, StatusError, admit_all, connect, rpc, serving

SERVICE = pb.DESCRIPTOR.services_by_name["PipedService"]


class Saver:
    """Takes what is saved, and refuses on request."""

    def __init__(self) -> None:
        self.saved: list[Any] = []
        self.refusals: list[str] = []
        self.pauses: list[float] = []

    @rpc("SaveStageMetadata")
    async def stage(
        self, _: object, request: pb.SaveStageMetadataRequest
    ) -> pb.SaveStageMetadataResponse:
        await self._take(request)
        return pb.SaveStageMetadataResponse()

    @rpc("SaveDeploymentPluginMetadata")
    async def plugin(
        self, _: object, request: pb.SaveDeploymentPluginMetadataRequest
    ) -> pb.SaveDeploymentPluginMetadataResponse:
        await self._take(request)
        return pb.SaveDeploymentPluginMetadataResponse()

    async def _take(self, request: Any) -> None:
        if self.pauses:
            await asyncio.sleep(self.pauses.pop(0))
        if self.refusals:
            raise StatusError(self.refusals.pop(0), "refused by the test")
        self.saved.append(request)


@pytest.fixture
def saver() -> Saver:
    return Saver()


@pytest.fixture
async def control(saver: Saver, tmp_path: Path) -> AsyncIterator[ControlPlane]:
    endpoints = Endpoints(admit=admit_all)
    mine = {getattr(each, "__rpc_name__", "") for each in vars(Saver).values()}
    endpoints.add(SERVICE, saver, unimplemented=set(SERVICE.methods_by_name) - mine)
    address = f"unix:{tmp_path}/control-plane"
    async with serving(endpoints, address, grace_seconds=0), connect(address) as channel:
        yield ControlPlane(channel)


async def never(application_id: str, _method: str, request: Message) -> None:
    raise AssertionError(f"{application_id} was kept for later: {request}")


def deployment() -> Deployment:
    return Deployment(
        id="d1",
        application_id="a1",
        stages=[PipelineStage(id="s1", metadata={"startTime": "100"}), PipelineStage(id="s2")],
        metadata_v2=DeploymentMetadata(
            shared=DeploymentMetadata.KeyValues(keyValues={"DeploymentNotification": "{}"}),
            plugins={"scriptrun": DeploymentMetadata.KeyValues(keyValues={"started-0": "_"})},
        ),
    )


async def test_a_store_begins_with_what_the_deployment_has(control: ControlPlane) -> None:
    """A restarted piped goes on with what the last one kept."""
    with MetadataStores(control, never).opened(deployment()) as store:
        assert store.get_stage("s1", "startTime") == "100"
        assert store.get_stage("s2", "startTime") is None
        assert store.get_plugin("scriptrun", "started-0") == "_"
        assert store.get_plugin("wait", "started-0") is None
        assert store.get_shared("DeploymentNotification") == "{}"


async def test_the_whole_map_is_saved_before_the_put_returns(
    control: ControlPlane, saver: Saver
) -> None:
    with MetadataStores(control, never).opened(deployment()) as store:
        await store.put_stage("s1", {"a": "1"})
        await store.put_plugin("scriptrun", {"started-1": "_"})

    stage, plugin = saver.saved
    assert (stage.deployment_id, stage.stage_id) == ("d1", "s1")
    assert stage.metadata == {"startTime": "100", "a": "1"}
    assert (plugin.plugin_name, plugin.metadata) == (
        "scriptrun",
        {"started-0": "_", "started-1": "_"},
    )


async def test_a_value_that_could_not_be_saved_is_not_kept(
    control: ControlPlane, saver: Saver
) -> None:
    """Upstream keeps it, and a plugin then acts on what the next piped does not know."""
    saver.refusals = ["INVALID_ARGUMENT"]
    with MetadataStores(control, never).opened(deployment()) as store:
        with pytest.raises(ConfigError):
            await store.put_stage("s1", {"a": "1"})

        assert store.get_stage("s1", "a") is None
        await store.put_stage("s1", {"b": "2"})
    assert saver.saved[0].metadata == {"startTime": "100", "b": "2"}


async def test_a_control_plane_that_is_away_for_a_moment_is_waited_for(
    control: ControlPlane, saver: Saver
) -> None:
    saver.refusals = ["UNAVAILABLE", "INTERNAL"]

    with MetadataStores(control, never).opened(deployment()) as store:
        await store.put_stage("s1", {"a": "1"})

        assert store.get_stage("s1", "a") == "1"


async def test_what_a_control_plane_that_is_away_cannot_take_is_kept_for_later(
    control: ControlPlane, saver: Saver
) -> None:
    saver.refusals = ["UNAVAILABLE"] * 1000
    kept: list[tuple[str, str, Message]] = []

    async def keep(application_id: str, method: str, request: Message) -> None:
        kept.append((application_id, method, request))

    stores = MetadataStores(control, keep, patience_seconds=0.2)
    with stores.opened(deployment()) as store:
        await store.put_plugin("scriptrun", {"started-1": "_"})

        assert store.get_plugin("scriptrun", "started-1") == "_"
    [(application_id, method, request)] = kept
    assert (application_id, method) == ("a1", "SaveDeploymentPluginMetadata")
    assert isinstance(request, pb.SaveDeploymentPluginMetadataRequest)
    assert dict(request.metadata) == {"started-0": "_", "started-1": "_"}


async def test_a_save_never_overtakes_the_one_before(control: ControlPlane, saver: Saver) -> None:
    saver.pauses = [0.3, 0.0]

    with MetadataStores(control, never).opened(deployment()) as store:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(store.put_stage("s2", {"a": "1"}))
            tasks.create_task(store.put_stage("s2", {"b": "2"}))

    assert [dict(saved.metadata) for saved in saver.saved] == [{"a": "1"}, {"a": "1", "b": "2"}]


async def test_a_stage_that_was_planned_later_can_keep_values(
    control: ControlPlane, saver: Saver
) -> None:
    with MetadataStores(control, never).opened(deployment()) as store:
        await store.put_stage("rollback", {"a": "1"})

        assert store.get_stage("rollback", "a") == "1"


async def test_a_deployment_that_nobody_opened_is_an_error(control: ControlPlane) -> None:
    stores = MetadataStores(control, never)
    with stores.opened(deployment()):
        pass

    with pytest.raises(StateError, match="piped does not run the deployment 'd1'"):
        stores.get("d1")


async def test_a_store_stays_until_all_who_opened_it_are_done(control: ControlPlane) -> None:
    """The scheduler opens it while the planner still has it."""
    stores = MetadataStores(control, never)
    first = stores.open(deployment())
    with stores.opened(deployment()) as second:
        stores.close("d1")

        assert stores.get("d1") is first is second
