# SPDX-License-Identifier: Apache-2.0
"""What plugins answer holds no secret by the time anybody else sees it."""

from collections.abc import AsyncIterator

import pytest

from pipecd_piped.plugins import (
    Phase,
    Plugin,
    PluginError,
    PluginLimits,
    PluginLostError,
    PluginState,
)
from pipecd_piped.plugins.connection import PluginConnection
from pipecd_piped.secrets import KnownSecrets, OpenedSecrets
from pipecd_test_support.plugin_world import stage_input
from pipecd_wire.model.application_live_state_pb2 import ApplicationLiveState, ResourceState
from pipecd_wire.model.common_pb2 import (
    SyncStrategy,
)
from pipecd_wire.model.deployment_pb2 import (
    STAGE_FAILURE,
)
from pipecd_wire.plugin.common.common_pb2 import DeploymentSource
from pipecd_wire.plugin.deploymentapi import api_pb2 as deploymentapi
from pipecd_wire.plugin.livestateapi import api_pb2 as livestateapi
from pipecd_wire.plugin.planpreviewapi import api_pb2 as planpreviewapi
from pipecd_wire.rpc import Endpoints, StatusError, admit_all, connect, rpc, serving

RUN = stage_input("SUCCEED")
DEPLOYMENT = RUN.deployment
PLAN = deploymentapi.PlanPluginInput(
    deployment=DEPLOYMENT, target_deployment_source=DeploymentSource(commit_hash="abc")
)


class TalkativePlanning:
    """Says of a deployment what it should not."""

    @rpc("DetermineVersions")
    async def determine_versions(
        self, _: object, request: deploymentapi.DetermineVersionsRequest
    ) -> deploymentapi.DetermineVersionsResponse:
        answer = deploymentapi.DetermineVersionsResponse()
        answer.versions.add(name="web", version="hunter22", url="https://x/?t=hunter22")
        return answer

    @rpc("DetermineStrategy")
    async def determine_strategy(
        self, _: object, request: deploymentapi.DetermineStrategyRequest
    ) -> deploymentapi.DetermineStrategyResponse:
        return deploymentapi.DetermineStrategyResponse(
            sync_strategy=SyncStrategy.PIPELINE, summary="because of hunter22"
        )

    @rpc("BuildQuickSyncStages")
    async def build_quick_sync_stages(
        self, _: object, request: deploymentapi.BuildQuickSyncStagesRequest
    ) -> deploymentapi.BuildQuickSyncStagesResponse:
        raise StatusError("INTERNAL", "cannot log in with hunter22")

    @rpc("ExecuteStage")
    async def execute_stage(
        self, _: object, request: deploymentapi.ExecuteStageRequest
    ) -> deploymentapi.ExecuteStageResponse:
        return deploymentapi.ExecuteStageResponse(status=STAGE_FAILURE, message="failed: hunter22")


class TalkativeLiveState:
    """Says of a live state what it should not."""

    @rpc("GetLivestate")
    async def get_livestate(
        self, _: object, request: livestateapi.GetLivestateRequest
    ) -> livestateapi.GetLivestateResponse:
        answer = livestateapi.GetLivestateResponse(
            application_live_state=ApplicationLiveState(
                resources=[
                    ResourceState(
                        health_description="no hunter22", resource_metadata={"key": "hunter22"}
                    )
                ]
            )
        )
        answer.sync_state.reason = "hunter22 differs"
        answer.sync_state.short_reason = "hunter22"
        return answer


class TalkativePreview:
    """Says of a preview what it should not."""

    @rpc("GetPlanPreview")
    async def get_plan_preview(
        self, _: object, request: planpreviewapi.GetPlanPreviewRequest
    ) -> planpreviewapi.GetPlanPreviewResponse:
        answer = planpreviewapi.GetPlanPreviewResponse()
        answer.results.add(summary="hunter22 changes", details=b"- hunter22\n+ \xff")
        return answer


def talkative_endpoints() -> Endpoints:
    endpoints = Endpoints(admit=admit_all)
    endpoints.add(
        deploymentapi.DESCRIPTOR.services_by_name["DeploymentService"],
        TalkativePlanning(),
        unimplemented=["FetchDefinedStages", "BuildPipelineSyncStages"],
    )
    endpoints.add(
        livestateapi.DESCRIPTOR.services_by_name["LivestateService"], TalkativeLiveState()
    )
    endpoints.add(
        planpreviewapi.DESCRIPTOR.services_by_name["PlanPreviewService"], TalkativePreview()
    )
    return endpoints


@pytest.fixture
def known() -> KnownSecrets:
    secrets = KnownSecrets()
    with secrets.opened(DEPLOYMENT):
        secrets.learn(DEPLOYMENT.git_path, "abc", OpenedSecrets(values={"login": "hunter22"}))
    return secrets


@pytest.fixture
async def plugin(known: KnownSecrets) -> AsyncIterator[Plugin]:
    limits = PluginLimits()
    plugin = Plugin("lab", limits, lambda _: None, known)
    async with (
        serving(talkative_endpoints(), "127.0.0.1:0", grace_seconds=0) as port,
        connect(f"127.0.0.1:{port}") as channel,
    ):
        plugin.set_connection(PluginConnection("lab", channel, limits))
        yield plugin


async def test_the_reason_of_a_stage_is_masked(plugin: Plugin) -> None:
    answer = await plugin.execute_stage(RUN)

    assert answer.message == "failed: ***"


async def test_versions_are_masked(plugin: Plugin) -> None:
    answer = await plugin.determine_versions(PLAN)

    (version,) = answer.versions
    assert (version.version, version.url) == ("***", "https://x/?t=***")


async def test_the_reason_of_a_strategy_is_masked(plugin: Plugin) -> None:
    answer = await plugin.determine_strategy(PLAN)

    assert answer.summary == "because of ***"


async def test_a_live_state_is_masked(plugin: Plugin) -> None:
    answer = await plugin.get_livestate(livestateapi.GetLivestateRequest(), deadline=60)

    assert answer is not None
    assert (answer.sync_state.reason, answer.sync_state.short_reason) == ("*** differs", "***")
    [resource] = answer.application_live_state.resources
    assert resource.health_description == "no ***"
    assert resource.resource_metadata == {"key": "***"}


async def test_a_plan_preview_is_masked(plugin: Plugin) -> None:
    answer = await plugin.get_plan_preview(planpreviewapi.GetPlanPreviewRequest(), deadline=60)

    assert answer is not None
    [result] = answer.results
    assert result.summary == "*** changes"
    assert result.details.decode() == "- ***\n+ \ufffd"


async def test_an_error_is_masked(plugin: Plugin) -> None:
    with pytest.raises(PluginError, match=r"cannot log in with \*\*\*$"):
        await plugin.build_quick_sync_stages(deploymentapi.BuildQuickSyncStagesRequest())


async def test_an_error_keeps_its_kind(known: KnownSecrets) -> None:
    plugin = Plugin("lab", PluginLimits(), lambda _: None, known)
    plugin.state = PluginState(
        phase=Phase.FAILED, sentence="died of hunter22", last_output=("was it hunter22?",)
    )

    with pytest.raises(PluginLostError) as raised:
        await plugin.wait_ready(0)

    assert str(raised.value) == "the plugin 'lab' is not ready: died of ***"
    assert raised.value.hint == "was it ***?"
