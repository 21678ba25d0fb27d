# SPDX-License-Identifier: Apache-2.0
"""A plugin that behaves as one made with the Go SDK does: the stage of a script, and nothing more.

Plain gRPC, without our SDK. It takes the Go agent's command line, ignores piped's invitation (no
Ready, no ping, no token), and has the habits that make such a plugin hard to run well:

* a script is a child in the plugin's own process group; nothing ends it with its stage, and no
  record of it survives the plugin: a second ExecuteStage starts the script again;
* log lines are numbered from the Unix second at which the stage began, and leave on a tick;
* the end of a stage is answered only when its log has left, and after SIGTERM no log leaves any
  more: a stage that is told to stop is never answered, and the server waits for it for 30 seconds;
* each call is told on stderr.

The plugin's `config` (all optional):

    stage        the name of the stage, SCRIPT_RUN if it is not said
    tick         seconds between two looks at what is to be sent, 5 if it is not said
    grace        seconds that the server waits for running calls after SIGTERM, 30
    record       a file in which each fact of its life becomes a line of JSON

The options of a stage (`with`): `run`, the script; `onRollback`, the one that undoes it.
"""

import argparse
import asyncio
import json
import os
import signal
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from pipecd_wire.model.deployment_pb2 import STAGE_FAILURE, STAGE_SUCCESS, ManualOperation
from pipecd_wire.model.logblock_pb2 import LogBlock, LogSeverity
from pipecd_wire.plugin.deploymentapi import api_pb2 as pb
from pipecd_wire.plugin.deploymentapi import api_pb2_grpc
from pipecd_wire.pluginservice import service_pb2, service_pb2_grpc

TICK = 5.0
CHECKPOINT = 120.0
"""Seconds between two checkpoints of a log; the first one is due at the first tick."""
LAST_LINES = 60.0
"""Seconds that the end of a stage waits for its log to leave."""
GRACE = 30.0


@dataclass
class StageLog:
    """The lines of one stage, and which of them have left."""

    deployment_id: str
    stage_id: str
    next_index: int = field(default_factory=lambda: int(time.time()) + 1)
    blocks: list[LogBlock] = field(default_factory=list)
    sent: int = 0
    checkpoint_at: float = float("-inf")
    is_completed: bool = False
    left: asyncio.Event = field(default_factory=asyncio.Event)

    def add(self, line: str, severity: LogSeverity.ValueType = LogSeverity.INFO) -> None:
        now = int(time.time())
        block = LogBlock(index=self.next_index, log=line, severity=severity, created_at=now)
        self.blocks.append(block)
        self.next_index += 1

    async def flush(self, piped: Any) -> None:
        """Send new lines, or at a checkpoint and at the end all lines since the last one."""
        if self.left.is_set():
            return
        if self.is_completed or time.monotonic() - self.checkpoint_at > CHECKPOINT:
            self.checkpoint_at = time.monotonic()
            await self.flush_from_last_checkpoint(piped)
        elif blocks := self.blocks[self.sent :]:
            request = service_pb2.ReportStageLogsRequest(
                deployment_id=self.deployment_id, stage_id=self.stage_id, blocks=blocks
            )
            with suppress(grpc.RpcError):
                await piped.ReportStageLogs(request)
                self.sent += len(blocks)

    async def flush_from_last_checkpoint(self, piped: Any) -> None:
        blocks, is_completed = list(self.blocks), self.is_completed
        if blocks:
            request = service_pb2.ReportStageLogsFromLastCheckpointRequest(
                deployment_id=self.deployment_id,
                stage_id=self.stage_id,
                blocks=blocks,
                completed=is_completed,
            )
            try:
                await piped.ReportStageLogsFromLastCheckpoint(request)
            except grpc.RpcError as error:
                say("error", "failed to report stage logs", error=str(error))
                return
            del self.blocks[: len(blocks)]
            self.sent = 0
        if is_completed:
            self.left.set()


class Plugin(api_pb2_grpc.DeploymentServiceServicer):
    """The services of a stage plugin."""

    def __init__(self, entry: dict[str, Any], piped: Any) -> None:
        self._name = entry["name"]
        self._config = entry.get("config") or {}
        self._stage = self._config.get("stage", "SCRIPT_RUN")
        self._piped = piped
        self._logs: list[StageLog] = []
        self._told_to_stop = asyncio.Event()

    def note(self, *fact: object) -> None:
        if record := self._config.get("record"):
            with Path(record).open("a") as file:
                file.write(json.dumps(fact) + "\n")

    async def keep_sending(self) -> None:
        """Send lines at each tick, until it is told to stop: then once more, and nobody waits."""
        while not self._told_to_stop.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(self._config.get("tick", TICK)):
                    await self._told_to_stop.wait()
                    break
            for log in self._logs:
                await log.flush(self._piped)
        for log in self._logs:
            if not log.left.is_set():
                await log.flush_from_last_checkpoint(self._piped)

    def stop(self) -> None:
        self.note("told to stop")
        self._told_to_stop.set()

    async def wait_stop(self) -> None:
        await self._told_to_stop.wait()

    async def FetchDefinedStages(  # noqa: N802 - the name on the wire
        self, _request: pb.FetchDefinedStagesRequest, _context: Any
    ) -> pb.FetchDefinedStagesResponse:
        return pb.FetchDefinedStagesResponse(stages=[self._stage, f"{self._stage}_ROLLBACK"])

    async def DetermineVersions(  # noqa: N802
        self, _request: pb.DetermineVersionsRequest, _context: Any
    ) -> pb.DetermineVersionsResponse:
        return pb.DetermineVersionsResponse()

    async def DetermineStrategy(  # noqa: N802
        self, _request: pb.DetermineStrategyRequest, _context: Any
    ) -> pb.DetermineStrategyResponse:
        return pb.DetermineStrategyResponse(unsupported=True)

    async def BuildQuickSyncStages(  # noqa: N802
        self, _request: pb.BuildQuickSyncStagesRequest, _context: Any
    ) -> pb.BuildQuickSyncStagesResponse:
        return pb.BuildQuickSyncStagesResponse()

    async def BuildPipelineSyncStages(  # noqa: N802
        self, request: pb.BuildPipelineSyncStagesRequest, _context: Any
    ) -> pb.BuildPipelineSyncStagesResponse:
        response = pb.BuildPipelineSyncStagesResponse()
        now = int(time.time())
        for given in request.stages:
            about = {"index": given.index, "desc": given.desc, "created_at": now, "updated_at": now}
            none = ManualOperation.MANUAL_OPERATION_NONE
            response.stages.add(name=given.name, available_operation=none, **about)
            if json.loads(given.config or b"{}").get("onRollback"):
                name = f"{self._stage}_ROLLBACK"
                response.stages.add(name=name, rollback=True, available_operation=none, **about)
        return response

    async def ExecuteStage(  # noqa: N802
        self, request: pb.ExecuteStageRequest, _context: Any
    ) -> pb.ExecuteStageResponse:
        given = request.input
        options = json.loads(given.stage_config or b"{}")
        mark = {
            "deployment_id": given.deployment.id,
            "plugin_name": self._name,
            "key": f"started-{given.stage.index}",
        }
        script = options.get("run", "")
        if given.stage.rollback:
            asked = service_pb2.GetDeploymentPluginMetadataRequest(**mark)
            was_started = (await self._piped.GetDeploymentPluginMetadata(asked)).found
            script = options.get("onRollback", "") if was_started else ""
        else:
            put = service_pb2.PutDeploymentPluginMetadataRequest(**mark, value="_")
            await self._piped.PutDeploymentPluginMetadata(put)
        log = StageLog(given.deployment.id, given.stage.id)
        self._logs.append(log)
        status = await self._run(script, given.target_deployment_source.application_directory, log)
        log.is_completed = True
        with suppress(TimeoutError):
            async with asyncio.timeout(LAST_LINES):
                await log.left.wait()
        self._logs.remove(log)
        return pb.ExecuteStageResponse(status=status)

    async def _run(self, script: str, folder: str, log: StageLog) -> Any:
        log.add("Running commands...")
        command = ["/bin/sh", "-l", "-c", script]
        # In the plugin's own group and with its whole environment, as Go's exec.Command does it.
        process = await asyncio.create_subprocess_exec(
            *command,
            cwd=folder or None,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        self.note("script", process.pid, os.getpid())
        assert process.stdout is not None
        ending = asyncio.ensure_future(self._follow(process, log))
        stopping = asyncio.ensure_future(self._told_to_stop.wait())
        try:
            await asyncio.wait({ending, stopping}, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            log.add("cancelled")  # the script goes on, as it does there
            raise
        finally:
            stopping.cancel()
        if not ending.done():
            log.add("cancelled")
            return STAGE_FAILURE
        code = ending.result()
        self.note("script ended", process.pid, code)
        if code:
            log.add(f"failed to exec command: exit status {code}", LogSeverity.ERROR)
        return STAGE_FAILURE if code else STAGE_SUCCESS

    async def _follow(self, process: asyncio.subprocess.Process, log: StageLog) -> int:
        assert process.stdout is not None
        async for line in process.stdout:
            log.add(line.decode(errors="replace").rstrip("\n") or " ")
        return await process.wait()


class TellingCalls(grpc.aio.ServerInterceptor):
    """A line for each call, with the whole name of its method."""

    async def intercept_service(self, continuation: Any, details: Any) -> Any:
        say("info", f"took a call: {details.method}")
        return await continuation(details)


def say(level: str, text: str, **fields: str) -> None:
    sys.stderr.write(json.dumps({"severity": level, "msg": text, **fields}) + "\n")
    sys.stderr.flush()


async def serve(piped_address: str, entry: dict[str, Any]) -> None:
    async with grpc.aio.insecure_channel(piped_address) as channel:
        await channel.channel_ready()  # for as long as it takes, before anything else
        plugin = Plugin(entry, service_pb2_grpc.PluginServiceStub(channel))
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, plugin.stop)
        server = grpc.aio.server(interceptors=[TellingCalls()])
        api_pb2_grpc.add_DeploymentServiceServicer_to_server(plugin, server)
        server.add_insecure_port(f"[::]:{entry['port']}")
        await server.start()
        plugin.note("serving", os.getpid())
        sending = asyncio.ensure_future(plugin.keep_sending())
        await plugin.wait_stop()
        await server.stop((entry.get("config") or {}).get("grace", GRACE))
        await sending
        plugin.note("stopped", os.getpid())


def main() -> None:
    commands = argparse.ArgumentParser()
    start = commands.add_subparsers(required=True).add_parser("start")
    start.add_argument("--piped-plugin-service", required=True)
    start.add_argument("--config", required=True)
    flags = commands.parse_args()
    asyncio.run(serve(flags.piped_plugin_service, json.loads(flags.config)))


if __name__ == "__main__":
    main()
