# SPDX-License-Identifier: Apache-2.0
"""A plugin that behaves as its configuration says, well or badly, without the SDK.

`config.manners` is how it presents itself, the name of a stage is how that stage runs. What it saw
is appended to the file `config.record`, one JSON list a line.
"""

import asyncio
import contextlib
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from pipecd_wire.model.deployment_pb2 import STAGE_FAILURE, STAGE_RUNNING, STAGE_SUCCESS
from pipecd_wire.model.logblock_pb2 import LogBlock
from pipecd_wire.pipecd.plugin import plugin_pb2, plugin_pb2_grpc
from pipecd_wire.plugin.deploymentapi import api_pb2 as pb
from pipecd_wire.pluginservice import service_pb2, service_pb2_grpc
from pipecd_wire.rpc import (
    CallError,
    Endpoints,
    Metadata,
    Method,
    Server,
    StatusError,
    call,
    connect,
    rpc,
    stream,
    wait_until_ready,
)

TOKEN = os.environ.pop("PIPECD_PLUGIN_TOKEN", "")
PIPED_TOKEN = os.environ.pop("PIPECD_PIPED_TOKEN", "")


class Facts:
    """What happened, in a file that the test reads."""

    def __init__(self, config: dict[str, Any]) -> None:
        self._path = Path(config["record"])

    def add(self, *fact: object) -> None:
        with self._path.open("a") as record:
            record.write(json.dumps(fact) + "\n")


class DeploymentApi:
    """Plans nothing, and runs stages as their names say."""

    def __init__(self, config: dict[str, Any], piped: Any, management: Any, facts: Facts) -> None:
        self._config = config
        self._piped = piped
        self._management = management
        self._facts = facts
        self._asked = 0

    @rpc("FetchDefinedStages")
    async def stages(
        self, _: Any, _request: pb.FetchDefinedStagesRequest
    ) -> pb.FetchDefinedStagesResponse:
        if self._config.get("manners") == "mute":
            await asyncio.sleep(3600)
        FETCHED.set()
        self._facts.add("asked for stages")
        self._asked += 1
        if self._config.get("manners") == "every other answer":
            if self._asked % 2 == 0:
                await asyncio.sleep(3600)
            raise StatusError("UNIMPLEMENTED", "there are no stages")
        return pb.FetchDefinedStagesResponse(stages=self._config.get("stages", ["SUCCEED"]))

    @rpc("DetermineVersions")
    async def versions(
        self, _: Any, request: pb.DetermineVersionsRequest
    ) -> pb.DetermineVersionsResponse:
        self._facts.add("versions", request.input.deployment.id)
        return pb.DetermineVersionsResponse()

    @rpc("DetermineStrategy")
    async def strategy(
        self, _: Any, _request: pb.DetermineStrategyRequest
    ) -> pb.DetermineStrategyResponse:
        await asyncio.sleep(3600)
        return pb.DetermineStrategyResponse()

    @rpc("BuildPipelineSyncStages")
    async def pipeline(
        self, _: Any, _request: pb.BuildPipelineSyncStagesRequest
    ) -> pb.BuildPipelineSyncStagesResponse:
        # More than the receiver takes.
        response = pb.BuildPipelineSyncStagesResponse()
        response.stages.add(desc="x" * (11 * 1024 * 1024))
        return response

    @rpc("BuildQuickSyncStages")
    async def quick(
        self, _: Any, _request: pb.BuildQuickSyncStagesRequest
    ) -> pb.BuildQuickSyncStagesResponse:
        if "answer" not in self._config:
            raise StatusError("INTERNAL", "no cluster to ask")
        response = pb.BuildQuickSyncStagesResponse()
        response.stages.add(desc="x" * (self._config["answer"] * 1024 * 1024))
        return response

    @rpc("ExecuteStage")
    async def execute(self, _: Any, request: pb.ExecuteStageRequest) -> pb.ExecuteStageResponse:
        stage = request.input.stage
        self._facts.add("stage", stage.name, os.getpid())
        run = getattr(self, f"_{stage.name.lower()}")
        answer: pb.ExecuteStageResponse = await run(request.input)
        return answer

    async def _succeed(self, _: pb.ExecutePluginInput) -> pb.ExecuteStageResponse:
        return pb.ExecuteStageResponse(status=STAGE_SUCCESS)

    async def _die(self, _: pb.ExecutePluginInput) -> pb.ExecuteStageResponse:
        say("cannot go on")
        os._exit(9)

    async def _freeze(self, _: pb.ExecutePluginInput) -> pb.ExecuteStageResponse:
        os.kill(os.getpid(), signal.SIGSTOP)
        return pb.ExecuteStageResponse(status=STAGE_SUCCESS)

    async def _run_on(self, _: pb.ExecutePluginInput) -> pb.ExecuteStageResponse:
        return pb.ExecuteStageResponse(status=STAGE_RUNNING)

    async def _leave(self, _: pb.ExecutePluginInput) -> pb.ExecuteStageResponse:
        raise StatusError("UNAVAILABLE", "plugin is stopping")

    async def _vanish(self, _: pb.ExecutePluginInput) -> pb.ExecuteStageResponse:
        raise StatusError("UNAVAILABLE", "the connection broke")

    async def _wait(self, _: pb.ExecutePluginInput) -> pb.ExecuteStageResponse:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            await asyncio.sleep(0.5)
            self._facts.add("cleaned up")
            CLEANED_UP.set()
            raise
        return pb.ExecuteStageResponse(status=STAGE_SUCCESS)

    async def _hang(self, _: pb.ExecutePluginInput) -> pb.ExecuteStageResponse:
        while True:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(3600)

    async def _until_told(self, _: pb.ExecutePluginInput) -> pb.ExecuteStageResponse:
        await STOPPED.wait()
        return pb.ExecuteStageResponse(status=STAGE_FAILURE)

    async def _ask(self, given: pb.ExecutePluginInput) -> pb.ExecuteStageResponse:
        """Use everything that piped offers to a stage."""
        ids = {"deployment_id": given.deployment.id, "stage_id": given.stage.id}
        await call(
            self._piped.PutStageMetadata,
            service_pb2.PutStageMetadataRequest(**ids, key="a", value="1"),
        )
        got = await call(
            self._piped.GetStageMetadata, service_pb2.GetStageMetadataRequest(**ids, key="a")
        )
        self._facts.add("metadata", got.value, got.found)
        block = LogBlock(index=1, log="hello", created_at=int(time.time()))
        await call(
            self._piped.ReportStageLogsFromLastCheckpoint,
            service_pb2.ReportStageLogsFromLastCheckpointRequest(
                deployment_id=given.deployment.id,
                stage_id=given.stage.id,
                blocks=[block],
                completed=True,
            ),
        )
        return pb.ExecuteStageResponse(status=STAGE_SUCCESS)

    async def _watch(self, given: pb.ExecutePluginInput) -> pb.ExecuteStageResponse:
        """End with the first command."""
        request = plugin_pb2.WatchStageCommandsRequest(
            deployment_id=given.deployment.id, stage_id=given.stage.id
        )
        async for answer in stream(self._management.WatchStageCommands, request):
            self._facts.add("command", answer.command.id)
            return pb.ExecuteStageResponse(status=STAGE_SUCCESS)
        return pb.ExecuteStageResponse(status=STAGE_FAILURE)


class WaitApi:
    """Says when the handlers of stages have ended; here: when they have cleaned up."""

    @rpc("WaitStage")
    async def wait(
        self, _: Any, _request: plugin_pb2.WaitStageRequest
    ) -> plugin_pb2.WaitStageResponse:
        await CLEANED_UP.wait()
        return plugin_pb2.WaitStageResponse()


STOPPED = asyncio.Event()
FETCHED = asyncio.Event()
CLEANED_UP = asyncio.Event()


async def serve(service: str, entry: dict[str, Any], *, is_package: bool) -> None:
    config = entry["config"]
    manners = config.get("manners", "managed")
    facts = Facts(config)

    def stop() -> None:
        facts.add("SIGTERM")
        STOPPED.set()

    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop)
    token = "guessed" if manners == "wrong token" else TOKEN
    metadata = [] if manners == "go" else [("pipecd-plugin-token", token)]
    async with connect(service, metadata=lambda: metadata) as channel:
        await wait_until_ready(channel, limit=10)  # as a Go plugin, which dials before all else
        facts.add("reached piped")
        piped = service_pb2_grpc.PluginServiceStub(channel)
        management = plugin_pb2_grpc.PluginManagementServiceStub(channel)

        async def admit(method: Method, metadata: Metadata) -> None:
            if not PIPED_TOKEN or metadata.get("pipecd-piped-token") != PIPED_TOKEN:
                facts.add("unproved call", method.name)

        endpoints = Endpoints(admit=admit)
        if manners != "livestate only":
            endpoints.add(
                pb.DESCRIPTOR.services_by_name["DeploymentService"],
                DeploymentApi(config, piped, management, facts),
            )
        if manners != "go":
            endpoints.add(plugin_pb2.DESCRIPTOR.services_by_name["PluginStageService"], WaitApi())
        server = Server(endpoints)
        port = server.listen("127.0.0.1:0" if is_package else f"[::]:{entry['port']}")
        await server.start()
        await live(manners, config, facts, management, port, server)
        await server.stop(0.5)


async def live(
    manners: str, config: dict[str, Any], facts: Facts, management: Any, port: int, server: Server
) -> None:
    if manners == "flood":
        asyncio.get_running_loop().run_in_executor(None, flood)
    if manners == "deaf":
        await FETCHED.wait()
        await server.stop(1)
        await asyncio.sleep(3600)
    if manners in {"go", "mute", "livestate only", "every other answer"}:
        await STOPPED.wait()
        await asyncio.sleep(config.get("dawdle", 0))
        return
    ready = plugin_pb2.ReadyRequest(
        name="odd", version="1.2.3", port=port, pid=os.getpid(), stages_without_files=["SUCCEED"]
    )
    try:
        answer = await call(management.Ready, ready)
    except CallError as error:
        say(str(error))
        os._exit(4)
    facts.add("ping interval", answer.ping_interval.ToTimedelta().total_seconds())
    while manners != "no pings" and not STOPPED.is_set():
        await call(management.Ping, plugin_pb2.PingRequest())
        try:
            async with asyncio.timeout(answer.ping_interval.ToTimedelta().total_seconds()):
                await STOPPED.wait()
        except TimeoutError:
            continue
    await STOPPED.wait()
    await asyncio.sleep(config.get("dawdle", 0))


def say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def flood() -> None:
    line = "x" * 70 + "\n"
    while True:
        os.write(1, (line * 1000).encode())


def main() -> None:
    arguments = sys.argv[1:]
    is_package = "--config-fd" in arguments
    value = arguments[arguments.index("--config-fd" if is_package else "--config") + 1]
    entry = json.loads(os.fdopen(int(value)).read() if is_package else value)
    config = entry["config"]
    Facts(config).add("started", arguments, bool(TOKEN), os.getpid(), sys.argv[0])
    if config.get("manners") == "exit":
        say("no such\nbucket")
        sys.exit(3)
    if config.get("manners") == "sleep":
        time.sleep(3600)
    service = arguments[arguments.index("--piped-plugin-service") + 1]
    asyncio.run(serve(service, entry, is_package=is_package))


main()
