# SPDX-License-Identifier: Apache-2.0
"""One plugin process under the kit: started as piped starts a file, and spoken to as piped does."""

import asyncio
import signal
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from typing import Any, Final

import msgspec

from pipecd_sdk.conformance.case import CaseFileError, CaseStep
from pipecd_sdk.conformance.checks import failure
from pipecd_sdk.conformance.profile import Profile
from pipecd_sdk.conformance.requests import build
from pipecd_sdk.testing.piped import FakePiped
from pipecd_sdk.testing.process import LaunchMode, PluginProcess, StartError, start_plugin
from pipecd_wire.pipecd.plugin import plugin_pb2, plugin_pb2_grpc
from pipecd_wire.plugin.deploymentapi import api_pb2, api_pb2_grpc
from pipecd_wire.plugin.livestateapi import api_pb2 as livestate_pb2
from pipecd_wire.plugin.livestateapi import api_pb2_grpc as livestate_grpc
from pipecd_wire.plugin.planpreviewapi import api_pb2 as preview_pb2
from pipecd_wire.plugin.planpreviewapi import api_pb2_grpc as preview_grpc
from pipecd_wire.rpc import CallError, call

BEGIN_SECONDS: Final = 1.0
"""Seconds that a stage gets to begin before it is cancelled or killed."""

_SILENCE: Final = frozenset({"UNAVAILABLE", "DEADLINE_EXCEEDED"})

_SERVICES: Final[Sequence[tuple[Any, str, Any]]] = (
    (api_pb2, "DeploymentService", api_pb2_grpc.DeploymentServiceStub),
    (livestate_pb2, "LivestateService", livestate_grpc.LivestateServiceStub),
    (preview_pb2, "PlanPreviewService", preview_grpc.PlanPreviewServiceStub),
    (plugin_pb2, "PluginConfigService", plugin_pb2_grpc.PluginConfigServiceStub),
    (plugin_pb2, "PluginStageService", plugin_pb2_grpc.PluginStageServiceStub),
    (plugin_pb2, "PluginDetailsService", plugin_pb2_grpc.PluginDetailsServiceStub),
)


class BrokenPromiseError(Exception):
    """The plugin did not do what the case asks; the message says what it did."""


class ConformanceSession:
    """A plugin that can be called, killed and started again."""

    def __init__(
        self,
        command: Sequence[str],
        profile: Profile,
        piped: FakePiped,
        environment: Mapping[str, str],
        patience_factor: float,
    ) -> None:
        self._patience_factor = patience_factor
        self._command = command
        self._environment = environment
        self._profile = profile
        self.piped = piped
        self._process: PluginProcess | None = None
        self._life = AsyncExitStack()
        self._begun: asyncio.Task[Any] | None = None
        self._begun_stage = ("", "")

    async def start(self) -> None:
        """Starts the plugin unless it runs. Raises BrokenPromiseError when it does not come up."""
        if self._process is not None and self._process.process.returncode is None:
            return
        await self.close()
        try:
            self._process = await self._life.enter_async_context(
                start_plugin(
                    self.piped,
                    self._command,
                    name=self._profile.name,
                    mode=LaunchMode.COMMAND_LINE,
                    entry=self._profile.entry,
                    flags=self._profile.flags,
                    environment=self._environment,
                )
            )
        except (StartError, OSError, TimeoutError, CallError) as error:
            raise BrokenPromiseError(str(error) or "it did not serve within 30 s") from None

    async def close(self) -> None:
        """Ends the process, in whatever state it is."""
        if self._begun is not None:
            self._begun.cancel()
            await asyncio.wait([self._begun])
            self._begun = None
        await self._life.aclose()
        self._process = None

    @property
    def _running(self) -> PluginProcess:
        if self._process is None:
            raise CaseFileError("a step needs a plugin that was started")
        return self._process

    @property
    def _begun_call(self) -> asyncio.Task[Any]:
        if self._begun is None:
            raise CaseFileError("a step needs a call that was begun")
        return self._begun

    async def walk(self, steps: Sequence[CaseStep], known: dict[str, Any]) -> None:
        """Carries out the steps of a case. Raises BrokenPromiseError."""
        await self.start()
        try:
            for step in steps:
                within = step.within * self._patience_factor
                await self._do(msgspec.structs.replace(step, within=within), known)
        finally:
            if self._begun is not None:
                self._begun.cancel()
                await asyncio.wait([self._begun])
                self._begun = None

    async def _do(self, step: CaseStep, known: dict[str, Any]) -> None:
        match step.do:
            case "call":
                self._judge(step, await self._call(step, known), known)
            case "begin":
                self._begin(step, known)
            case "cancel":
                await self._cancel(step)
            case "end":
                self._judge(step, await self._end(step), known)
            case "kill":
                await self._signal(signal.SIGKILL, step.within)
            case "stop":
                await self._signal(signal.SIGTERM, step.within)
            case "start":
                await self.start()
            case "log":
                stage_id = known["stage"]["id"]
                self._judge(step, (self._log(stage_id), "OK", ""), known)
            case "ready":
                self._judge(step, (await self._introduction(step.within), "OK", ""), known)

    async def _call(self, step: CaseStep, known: Mapping[str, Any]) -> tuple[Any, str, str]:
        method, request = self._rpc(step, known)
        if step.rpc == "ExecuteStage":
            self.piped.reopen_log(request.input.stage.id)
        try:
            return await call(method, request, deadline=step.within), "OK", ""
        except CallError as error:
            return None, error.status, error.message

    def _rpc(self, step: CaseStep, known: Mapping[str, Any]) -> tuple[Any, Any]:
        for module, service, stub in _SERVICES:
            descriptor = module.DESCRIPTOR.services_by_name[service]
            if step.rpc in descriptor.methods_by_name:
                request_type = getattr(module, descriptor.methods_by_name[step.rpc].input_type.name)
                request = build(request_type, step.request, known)
                return getattr(stub(self._running.channel), step.rpc), request
        raise CaseFileError(f"no plugin offers an RPC {step.rpc!r}")

    def _begin(self, step: CaseStep, known: Mapping[str, Any]) -> None:
        method, request = self._rpc(step, known)
        self._begun_stage = (request.input.deployment.id, request.input.stage.id)
        self.piped.reopen_log(request.input.stage.id)
        self._begun = asyncio.create_task(call(method, request, deadline=None))

    async def _cancel(self, step: CaseStep) -> None:
        begun = self._begun_call
        await asyncio.wait([begun], timeout=BEGIN_SECONDS)
        if begun.done():
            raise BrokenPromiseError("the stage ended by itself before it was cancelled")
        begun.cancel()
        await asyncio.wait([begun])
        self._begun = None
        deployment_id, stage_id = self._begun_stage
        request = {"deploymentId": deployment_id, "stageId": stage_id}
        method, message = self._rpc(CaseStep(do="call", rpc="WaitStage", request=request), {})
        try:
            await call(method, message, deadline=step.within)
        except CallError as error:
            if error.status != "UNIMPLEMENTED":  # upstream's plugins have no such call
                raise BrokenPromiseError(
                    f"its handler did not end within {step.within:g} s of the cancellation: {error}"
                ) from None

    async def _end(self, step: CaseStep) -> tuple[Any, str, str]:
        begun = self._begun_call
        await asyncio.wait([begun], timeout=step.within)
        if not begun.done():
            raise BrokenPromiseError(f"ExecuteStage did not answer within {step.within:g} s")
        self._begun = None
        try:
            return begun.result(), "OK", ""
        except CallError as error:
            return None, error.status, error.message

    async def _signal(self, number: signal.Signals, within: float) -> None:
        if self._begun is not None:
            await asyncio.wait([self._begun], timeout=BEGIN_SECONDS)
        process = self._running.process
        if process.returncode is not None:
            raise BrokenPromiseError(f"it has ended by itself, with code {process.returncode}")
        process.send_signal(number)
        try:
            async with asyncio.timeout(within):
                await process.wait()
        except TimeoutError:
            raise BrokenPromiseError(f"it lived on for {within:g} s after {number.name}") from None

    def _log(self, stage_id: str) -> dict[str, Any]:
        kept = self.piped.log(stage_id)
        return {
            "blocks": [kept.blocks[index] for index in kept.blocks],
            "sealed": kept.sealed,
            "wrong_calls": list(self.piped.wrong_calls),
        }

    async def _introduction(self, within: float) -> dict[str, Any]:
        running = self._running
        with suppress(TimeoutError):
            await self.piped.wait_until(lambda: self.piped.calls["Ping"] > 0, limit=within)
        return {
            "ready": [each for each in self.piped.ready if each.pid == running.process.pid],
            "port": running.port,
            "pings": self.piped.calls["Ping"],
        }

    def _judge(self, step: CaseStep, got: tuple[Any, str, str], known: dict[str, Any]) -> None:
        answer, status, message = got
        answered = "ANSWERED" in step.status and status not in _SILENCE
        if status not in step.status and not answered:
            wanted = " or ".join(step.status)
            told = f": {message}" if message else ""
            raise BrokenPromiseError(
                f"{step.rpc or step.do} must answer {wanted}, and answered {status}{told}"
            )
        if status != "OK":
            return
        for check in step.check:
            if wrong := failure(check, answer, known):
                raise BrokenPromiseError(wrong)
        if step.keep:
            known[step.keep] = answer
