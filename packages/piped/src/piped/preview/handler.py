# SPDX-License-Identifier: Apache-2.0
"""Handles plan preview commands: a few at a time, each with a time limit."""

import asyncio
from typing import Final, Protocol

from pipecd_model import gojson
from pipecd_model.errors import PipecdError
from pipecd_runtime.logs import logger
from pipecd_wire.model.command_pb2 import Command
from pipecd_wire.model.planpreview_pb2 import (
    ApplicationPlanPreviewResult,
    PlanPreviewCommandResult,
)
from piped.controlplane.state import ControlPlaneState
from piped.report.commands import CommandInbox, CommandOutcome

log = logger(__name__)

AT_ONCE: Final = 3
USUAL_SECONDS: Final = 300.0
"""Seconds that a preview may take when the command does not say."""
LONGEST_SECONDS: Final = 3600.0
"""Seconds that it may take whatever the command says: other previews wait for it."""

MOST_OUTPUT: Final = 8 * 1024 * 1024
"""Bytes of a result; a larger one would be refused, and the client would wait in vain."""
CUT: Final = b"\n... the rest is left out, because the preview is too large\n"


class Builder(Protocol):
    """Builds previews."""

    async def build(
        self, wanted: Command.BuildPlanPreview, /
    ) -> list[ApplicationPlanPreviewResult]:
        """Returns the previews of all applications that a merge would deploy.

        Raises PipecdError.
        """


class PlanPreviewHandler:
    """Builds previews for commands in the control plane's state, and queues the results."""

    def __init__(
        self,
        *,
        piped_id: str,
        state: ControlPlaneState,
        builder: Builder,
        commands: CommandInbox,
    ) -> None:
        self._piped_id = piped_id
        self._state = state
        self._builder = builder
        self._commands = commands
        self._places = asyncio.Semaphore(AT_ONCE)
        self._taken: set[str] = set()

    async def run(self) -> None:
        """Handle commands until cancelled; unfinished ones are started again by the next piped."""
        self._taken.clear()
        async with asyncio.TaskGroup() as tasks:
            async for change in self._state.changes():
                for command in change.commands:
                    if command.type == Command.BUILD_PLAN_PREVIEW and command.id not in self._taken:
                        self._taken.add(command.id)
                        tasks.create_task(self._handle(command), name=f"preview {command.id}")

    async def _handle(self, command: Command) -> None:
        wanted = command.build_plan_preview
        limit = min(float(wanted.timeout) or USUAL_SECONDS, LONGEST_SECONDS)
        result = PlanPreviewCommandResult(command_id=command.id, piped_id=self._piped_id)
        async with self._places:
            try:
                async with asyncio.timeout(limit):
                    result.results.extend(await self._builder.build(wanted))
            except TimeoutError:
                result.error = f"the preview took longer than {limit:g}s"
            except PipecdError as error:
                result.error = error.with_hint()
            except Exception:  # noqa: BLE001 - the one who asked waits for an answer
                log.bug("preview.failed", command_id=command.id)
                result.error = "piped has a bug; its log has the details"
        output = encode(result)
        log.info(
            "preview.built",
            command_id=command.id,
            applications=len(result.results),
            reason=result.error,
        )
        self._commands.finish(command, CommandOutcome(succeeded=not result.error, output=output))


def encode(result: PlanPreviewCommandResult) -> bytes:
    """Returns a result as JSON; plans are truncated when it is too large."""
    output = _to_json(result)
    if len(output) <= MOST_OUTPUT:
        return output
    plans = [plan for each in result.results for plan in each.plugin_plan_results]
    share = MOST_OUTPUT // 4 // max(len(plans), 1)
    for plan in plans:
        for text in ("plan_details", "plan_summary"):
            if len(getattr(plan, text)) > share:
                setattr(plan, text, getattr(plan, text)[:share] + CUT)
    output = _to_json(result)
    if len(output) <= MOST_OUTPUT:
        return output
    del result.results[:]
    result.error = "the preview is too large to be told"
    return _to_json(result)


def _to_json(result: PlanPreviewCommandResult) -> bytes:
    return gojson.dumps(gojson.to_value(result)).encode()
