# SPDX-License-Identifier: Apache-2.0
"""A plugin over the bare wire that breaks exactly one promise: `broken_plugin.py FAULT start …`.

Or has a habit that is none: it needs a tool, has no platform, insists on its log, or lets its
stage finish before it ends.
"""

import argparse
import asyncio
import contextlib
import json
import os
import signal
import sys
import time

from pipecd_wire.model import deployment_pb2 as model
from pipecd_wire.model.application_live_state_pb2 import ApplicationLiveState, ResourceState
from pipecd_wire.model.common_pb2 import SyncStrategy
from pipecd_wire.model.logblock_pb2 import LogBlock
from pipecd_wire.pipecd.plugin import plugin_pb2 as management
from pipecd_wire.plugin.deploymentapi import api_pb2 as pb
from pipecd_wire.plugin.livestateapi import api_pb2 as live
from pipecd_wire.plugin.planpreviewapi import api_pb2 as preview
from pipecd_wire.pluginservice import service_pb2 as piped
from pipecd_wire.pluginservice.service_pb2_grpc import PluginServiceStub
from pipecd_wire.rpc import (
    CallError,
    Channel,
    Endpoints,
    StatusError,
    admit_all,
    call,
    connect,
    rpc,
    serving,
)

NOW = int(time.time())


class Deployment:
    def __init__(self, fault: str, agent: Channel) -> None:
        self.fault = fault
        self.agent = PluginServiceStub(agent)
        self.plans = 0

    @rpc("FetchDefinedStages")
    async def stages(
        self, _caller: object, _request: pb.FetchDefinedStagesRequest
    ) -> pb.FetchDefinedStagesResponse:
        doubled = self.fault == "doubled-stage"
        return pb.FetchDefinedStagesResponse(stages=["WORK", "WORK"] if doubled else ["WORK"])

    @rpc("DetermineVersions")
    async def versions(
        self, _caller: object, _request: pb.DetermineVersionsRequest
    ) -> pb.DetermineVersionsResponse:
        return pb.DetermineVersionsResponse()

    @rpc("DetermineStrategy")
    async def strategy(
        self, _caller: object, _request: pb.DetermineStrategyRequest
    ) -> pb.DetermineStrategyResponse:
        return pb.DetermineStrategyResponse(sync_strategy=SyncStrategy.PIPELINE)

    @rpc("BuildQuickSyncStages")
    async def quick(
        self, _caller: object, request: pb.BuildQuickSyncStagesRequest
    ) -> pb.BuildQuickSyncStagesResponse:
        rollback = request.rollback or self.fault == "rollback-in-quick-sync"
        return pb.BuildQuickSyncStagesResponse(
            stages=[
                self.stage("WORK", 0),
                *([self.stage("WORK_ROLLBACK", 0, rollback=True)] if rollback else []),
            ]
        )

    @rpc("BuildPipelineSyncStages")
    async def pipeline(
        self, _caller: object, request: pb.BuildPipelineSyncStagesRequest
    ) -> pb.BuildPipelineSyncStagesResponse:
        self.plans += 1
        shift = {"counts-from-zero": -2, "other-plan": self.plans % 2}.get(self.fault, 0)
        made = [self.stage(each.name, each.index + shift) for each in request.stages]
        if request.rollback or self.fault == "rollback-unasked":
            index = 99 if self.fault == "own-rollback-index" else request.stages[0].index
            made.append(self.stage("WORK_ROLLBACK", index, rollback=True))
        return pb.BuildPipelineSyncStagesResponse(stages=made)

    def stage(self, name: str, index: int, rollback: bool = False) -> model.PipelineStage:
        return model.PipelineStage(
            id="mine" if self.fault == "own-id" else "",
            name=name,
            index=index,
            rollback=rollback,
            created_at=0 if self.fault == "no-times" else NOW,
            updated_at=NOW,
            available_operation=model.MANUAL_OPERATION_NONE,
        )

    @rpc("ExecuteStage")
    async def execute(
        self, _caller: object, request: pb.ExecuteStageRequest
    ) -> pb.ExecuteStageResponse:
        given = request.input
        if given.stage.name != "WORK" and self.fault != "runs-anything":
            raise StatusError("INVALID_ARGUMENT", f"no stage {given.stage.name!r}")
        try:
            options = json.loads(given.stage_config or b"{}")
        except ValueError:
            if self.fault == "dies-of-garbage":
                os._exit(3)
            raise StatusError("INVALID_ARGUMENT", "not JSON") from None
        if options.get("seconds", 0) == "soon" and self.fault != "takes-wrong-options":
            return pb.ExecuteStageResponse(status=model.STAGE_FAILURE)
        if options.get("seconds") == 600 and self.fault == "blocks":
            time.sleep(600)  # noqa: ASYNC251 - the fault
        if isinstance(options.get("seconds", 0), int):
            await asyncio.sleep(options.get("seconds", 0))
        await self.log(given)
        ended = model.STAGE_RUNNING if self.fault == "never-final" else model.STAGE_SUCCESS
        return pb.ExecuteStageResponse(status=ended)

    async def log(self, given: pb.ExecutePluginInput) -> None:
        created = 0 if self.fault == "log-without-time" else NOW
        report = piped.ReportStageLogsRequest(
            deployment_id=given.deployment.id,
            stage_id=given.stage.id,
            blocks=[LogBlock(index=n, log=f"line {n}", created_at=created) for n in (1, 2)],
        )
        while self.fault == "insists":
            with contextlib.suppress(CallError):
                await call(self.agent.ReportStageLogs, report)
                break
            await asyncio.sleep(0.1)  # as a sender with a backoff does
        with contextlib.suppress(CallError):
            await call(self.agent.ReportStageLogs, report)
        if self.fault != "log-left-open":
            done = piped.ReportStageLogsFromLastCheckpointRequest(
                deployment_id=given.deployment.id, stage_id=given.stage.id, completed=True
            )
            await call(self.agent.ReportStageLogsFromLastCheckpoint, done)


class LiveState:
    def __init__(self, fault: str) -> None:
        self.fault = fault

    @rpc("GetLivestate")
    async def get(
        self, _caller: object, request: live.GetLivestateRequest
    ) -> live.GetLivestateResponse:
        if self.fault == "no-platform" and request.deploy_targets:
            raise StatusError("INTERNAL", "connection refused")
        known = request.deploy_targets == ["here"]
        if not known and self.fault != "any-target":
            raise StatusError("INVALID_ARGUMENT", "which deploy target?")
        answer = live.GetLivestateResponse(
            application_live_state=ApplicationLiveState(
                resources=[ResourceState(id="1", name="one", created_at=NOW, updated_at=NOW)]
            )
        )
        if self.fault != "no-sync-state":
            answer.sync_state.SetInParent()
        return answer


class Preview:
    def __init__(self, fault: str) -> None:
        self.fault = fault

    @rpc("GetPlanPreview")
    async def get(
        self, _caller: object, request: preview.GetPlanPreviewRequest
    ) -> preview.GetPlanPreviewResponse:
        if request.deploy_targets != ["here"]:
            raise StatusError("INVALID_ARGUMENT", "which deploy target?")
        targets = [] if self.fault == "no-preview-result" else request.deploy_targets
        return preview.GetPlanPreviewResponse(
            results=[
                preview.PlanPreviewResult(deploy_target=each, summary="nothing") for each in targets
            ]
        )


class Details:
    def __init__(self, fault: str) -> None:
        self.fault = fault

    @rpc("OpenResource")
    async def open(
        self, _caller: object, request: management.OpenResourceRequest
    ) -> management.OpenResourceResponse:
        if request.deploy_target != "here":
            raise StatusError("INVALID_ARGUMENT", "which deploy target?")
        if request.resource.id != "1" and self.fault != "shows-anything":
            raise StatusError("NOT_FOUND", "there is no such thing")
        return management.OpenResourceResponse()


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("fault")
    parser.add_argument("start")
    parser.add_argument("--piped-plugin-service")
    parser.add_argument("--config")
    given = parser.parse_args()
    if given.fault == "does-not-start":
        sys.exit("no license found")
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    ignore = given.fault in {"ignores-term", "finishes-first"}
    loop.add_signal_handler(signal.SIGTERM, (lambda: None) if ignore else stop.set)
    endpoints = Endpoints(admit=admit_all)
    async with connect(given.piped_plugin_service) as agent:
        if given.fault == "needs-a-tool":
            wanted = piped.InstallToolRequest(
                name="tool", version="1", install_script="pwd > here && cp here {{ .OutPath }}"
            )
            await call(PluginServiceStub(agent).InstallTool, wanted)
        services = pb.DESCRIPTOR.services_by_name["DeploymentService"]
        endpoints.add(services, Deployment(given.fault, agent))
        endpoints.add(live.DESCRIPTOR.services_by_name["LivestateService"], LiveState(given.fault))
        endpoints.add(
            preview.DESCRIPTOR.services_by_name["PlanPreviewService"], Preview(given.fault)
        )
        endpoints.add(
            management.DESCRIPTOR.services_by_name["PluginDetailsService"], Details(given.fault)
        )
        port = json.loads(given.config)["port"]
        async with serving(endpoints, f"127.0.0.1:{port}", grace_seconds=0):
            await stop.wait()


asyncio.run(main())
