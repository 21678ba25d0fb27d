# SPDX-License-Identifier: Apache-2.0
"""A plugin file of another make that answers in every wrong way; which one is said per application.

The application's first stage has it in its options: `with: {evil: "<call>: <what>"}`.
"""

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

import grpc

from pipecd_wire.model.deployment_pb2 import (
    STAGE_FAILURE,
    STAGE_RUNNING,
    STAGE_SUCCESS,
    PipelineStage,
)
from pipecd_wire.model.logblock_pb2 import LogBlock
from pipecd_wire.plugin.deploymentapi import api_pb2 as pb
from pipecd_wire.plugin.livestateapi import api_pb2 as live
from pipecd_wire.pluginservice import service_pb2, service_pb2_grpc

MIB = 1024 * 1024
NO_TEXT = b"\x12\x02\xff\xfe"
"""The second field of a message, as a text that is none."""


def evil_of(config: bytes) -> str:
    document = json.loads(config or b"{}")
    stages = document.get("spec", {}).get("pipeline", {}).get("stages", [])
    return str(stages[0].get("with", {}).get("evil", "")) if stages else ""


class Hostile(grpc.GenericRpcHandler):
    """Answers calls with bytes."""

    def __init__(self, piped: Any) -> None:
        self._piped = piped
        self._calls: dict[str, Callable[[bytes], Any]] = {
            "FetchDefinedStages": self.fetch,
            "DetermineVersions": self.versions,
            "DetermineStrategy": self.strategy,
            "BuildQuickSyncStages": self.quick,
            "BuildPipelineSyncStages": self.stages,
            "ExecuteStage": self.execute,
            "GetLivestate": self.livestate,
        }

    def service(self, details: Any) -> Any:
        handler = self._calls.get(details.method.rpartition("/")[2])
        if handler is None:
            return None

        async def answer(request: bytes, context: Any) -> bytes:
            try:
                made: bytes = await handler(request)
            except NotImplementedError:
                await context.abort(grpc.StatusCode.UNIMPLEMENTED, "no")
            return made

        return grpc.unary_unary_rpc_method_handler(answer)

    async def fetch(self, _: bytes) -> bytes:
        return pb.FetchDefinedStagesResponse(stages=["EVIL"]).SerializeToString()

    async def versions(self, data: bytes) -> bytes:
        asked = pb.DetermineVersionsRequest.FromString(data)
        evil = evil_of(asked.input.target_deployment_source.application_config)
        return await common("versions", evil) or b""

    async def strategy(self, _: bytes) -> bytes:
        raise NotImplementedError

    async def quick(self, _: bytes) -> bytes:
        now = int(time.time())
        stage = PipelineStage(id="quick", name="EVIL", created_at=now, updated_at=now)
        return pb.BuildQuickSyncStagesResponse(stages=[stage]).SerializeToString()

    async def stages(self, data: bytes) -> bytes:
        asked = pb.BuildPipelineSyncStagesRequest.FromString(data)
        evil = json.loads(asked.stages[0].config).get("evil", "")
        if (made := await common("stages", evil)) is not None:
            return made
        now = int(time.time())
        stages = [
            PipelineStage(
                id="same", name=each.name, index=each.index, created_at=now, updated_at=now
            )
            for each in asked.stages
        ]
        match evil:
            case "stages: foreign index":
                stages[0].index = 99
            case "stages: negative index":
                stages[0].index = -(2**31)
            case "stages: one twice":
                stages.append(stages[0])
            case "stages: without a name":
                stages[0].name = ""
            case "stages: long texts":
                stages[0].desc = "x" * (9 * MIB)
            case "stages: none":
                stages = []
            case "stages: a thousand":
                stages = stages * 1000
        return pb.BuildPipelineSyncStagesResponse(stages=stages).SerializeToString()

    async def execute(self, data: bytes) -> bytes:
        asked = pb.ExecuteStageRequest.FromString(data).input
        options = json.loads(asked.stage_config)
        evil = options.get("evil", "")
        if (made := await common("execute", evil)) is not None:
            return made
        answer = pb.ExecuteStageResponse(status=STAGE_SUCCESS)
        match evil:
            case "execute: no end":
                answer.status = STAGE_RUNNING
            case "execute: unknown status":
                return b"\x08\xe7\x07"
            case "execute: long reason":
                answer.message = "x" * (9 * MIB)
                answer.status = STAGE_FAILURE
            case "execute: long line":
                await self.write_log(asked.deployment.id, asked.stage.id, "x" * (8 * MIB))
            case "execute: odd lines":
                text = "\x1b[2J\x00 <script> \r \N{RIGHT-TO-LEFT OVERRIDE}"
                await self.write_log(asked.deployment.id, asked.stage.id, text)
            case "execute: another's log":
                deployment_id, stage_id = options["theirs"]
                await self.write_log(deployment_id, stage_id, "written by another plugin")
            case "execute: another's metadata":
                deployment_id, stage_id = options["theirs"]
                await self._piped.PutStageMetadata(
                    service_pb2.PutStageMetadataRequest(
                        deployment_id=deployment_id, stage_id=stage_id, key="k", value="another"
                    )
                )
        return answer.SerializeToString()

    async def write_log(self, deployment_id: str, stage_id: str, text: str) -> None:
        block = LogBlock(index=1, log=text, created_at=int(time.time()))
        await self._piped.ReportStageLogs(
            service_pb2.ReportStageLogsRequest(
                deployment_id=deployment_id, stage_id=stage_id, blocks=[block]
            )
        )

    async def livestate(self, data: bytes) -> bytes:
        asked = live.GetLivestateRequest.FromString(data)
        evil = evil_of(asked.deploy_source.application_config)
        if (made := await common("live", evil)) is not None:
            return made
        return live.GetLivestateResponse().SerializeToString()


async def common(call: str, evil: str) -> bytes | None:
    """What can be wrong with every answer; None when it is to be another one."""
    if evil == f"{call}: never":
        await asyncio.Event().wait()
    if evil == f"{call}: the end":
        os._exit(3)
    return {
        f"{call}: huge": b"\x0a\x80\x80\x80\x06" + b"x" * (12 * MIB),
        f"{call}: no message": b"\xff" * 100,
        f"{call}: no text": NO_TEXT,
    }.get(evil)


async def serve(service: str, port: int) -> None:
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    options = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]
    async with grpc.aio.insecure_channel(service, options=options) as channel:
        server = grpc.aio.server(options=options)
        hostile = Hostile(service_pb2_grpc.PluginServiceStub(channel))
        server.add_generic_rpc_handlers((hostile,))
        server.add_insecure_port(f"127.0.0.1:{port}")
        await server.start()
        await stopped.wait()
        await server.stop(0.2)


def main() -> None:
    arguments = sys.argv[1:]
    entry = json.loads(arguments[arguments.index("--config") + 1])
    service = arguments[arguments.index("--piped-plugin-service") + 1]
    asyncio.run(serve(service, entry["port"]))


main()
