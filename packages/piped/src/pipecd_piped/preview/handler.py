# SPDX-License-Identifier: Apache-2.0
"""Handles plan preview commands: a few at a time, each with a time limit.

A newer push to a branch ends the preview of an older commit of it: nobody reads that one any more.
"""

import asyncio
from dataclasses import dataclass
from typing import Final, Protocol

from pipecd_model import gojson
from pipecd_model.errors import PipecdError
from pipecd_piped.controlplane.state import ControlPlaneState
from pipecd_piped.report.commands import CommandInbox, CommandOutcome
from pipecd_runtime.logs import logger
from pipecd_wire.model.command_pb2 import Command
from pipecd_wire.model.planpreview_pb2 import (
    ApplicationPlanPreviewResult,
    PlanPreviewCommandResult,
)

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


@dataclass(slots=True)
class OpenPreview:
    """A preview that is asked for and not finished."""

    command: Command
    task: asyncio.Task[None] | None = None

    def is_replaced_by(self, newer: Command, *, in_order: bool) -> bool:
        """Returns whether a command asks for a newer commit of the same branch.

        `in_order`: it came later; else only its time says so.
        """
        old, new = self.command.build_plan_preview, newer.build_plan_preview
        is_later = self.command.created_at < newer.created_at or (
            in_order and self.command.created_at == newer.created_at
        )
        return is_later and old.head_commit != new.head_commit and _branch(old) == _branch(new)


def _branch(wanted: Command.BuildPlanPreview) -> tuple[str, str, str]:
    return wanted.repository_id, wanted.head_branch, wanted.base_branch


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
        self._open: dict[str, OpenPreview] = {}

    async def run(self) -> None:
        """Handle commands until cancelled; unfinished ones are started again by the next piped."""
        self._taken.clear()
        self._open.clear()
        async with asyncio.TaskGroup() as tasks:
            async for change in self._state.changes():
                for command in sorted(change.commands, key=lambda each: each.created_at):
                    if command.type == Command.BUILD_PLAN_PREVIEW and command.id not in self._taken:
                        self._taken.add(command.id)
                        self._replace_older(command, in_order=not change.snapshot)
                        preview = self._open[command.id] = OpenPreview(command)
                        preview.task = tasks.create_task(
                            self._handle(command), name=f"preview {command.id}"
                        )

    def _replace_older(self, newer: Command, *, in_order: bool) -> None:
        """End the previews of older commits of the same branch; some may not have begun."""
        for preview in list(self._open.values()):
            if not preview.is_replaced_by(newer, in_order=in_order):
                continue
            del self._open[preview.command.id]
            if preview.task is not None:
                preview.task.cancel()
            commit = newer.build_plan_preview.head_commit[:7]
            branch = newer.build_plan_preview.head_branch
            result = PlanPreviewCommandResult(
                command_id=preview.command.id,
                piped_id=self._piped_id,
                error=f"ended, because the newer commit {commit} was pushed to {branch}: see the"
                " preview of that one",
            )
            self._finish(preview.command, result)

    async def _handle(self, command: Command) -> None:
        result = PlanPreviewCommandResult(command_id=command.id, piped_id=self._piped_id)
        await self._build(command, result)
        if self._open.pop(command.id, None) is not None:
            self._finish(command, result)

    async def _build(self, command: Command, result: PlanPreviewCommandResult) -> None:
        wanted = command.build_plan_preview
        limit = min(float(wanted.timeout) or USUAL_SECONDS, LONGEST_SECONDS)
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

    def _finish(self, command: Command, result: PlanPreviewCommandResult) -> None:
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
