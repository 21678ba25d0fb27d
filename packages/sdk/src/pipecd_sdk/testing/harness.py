# SPDX-License-Identifier: Apache-2.0
"""A plugin's handlers in a test: planned and run as in production, with nothing behind them."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Generic, TypeVar

from pipecd_sdk import _execution, _planning
from pipecd_sdk.clock import Clock
from pipecd_sdk.config import ConfigFaultsError, read_value
from pipecd_sdk.context import (
    CommandKind,
    Commit,
    Deployment,
    DeployTarget,
    Source,
    Sources,
    Stage,
    StageCommand,
    StageContext,
)
from pipecd_sdk.metadata import Metadata
from pipecd_sdk.plugin import PlannedStage, StagePlugin
from pipecd_sdk.results import StageResult
from pipecd_sdk.stage_log import Severity, StageLog
from pipecd_sdk.testing.clock import NOON, FakeClock

P = TypeVar("P", bound=StagePlugin)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLine:
    """One line of the stage log."""

    severity: Severity
    text: str


class StageHarness(Generic[P]):
    """Runs the stages of one plugin for one deployment.

    Example:
        harness = StageHarness(Wait())
        result = await harness.run("WAIT", {"duration": "5m"})
        assert result.status is StageStatus.SUCCESS
    """

    def __init__(
        self,
        plugin: P,
        *,
        clock: Clock | None = None,
        config: Mapping[str, Any] | None = None,
        deployment: Deployment | None = None,
        directory: Path | None = None,
        targets: Sequence[DeployTarget] = (),
    ) -> None:
        self.plugin = plugin
        self.clock = clock or FakeClock()
        self.deployment = deployment or example_deployment()
        self.metadata = KeptMetadata()
        """Of the stage; a test may fill it before a run and read it after."""
        self.deployment_metadata = KeptMetadata()
        self.log: list[LogLine] = []
        """All lines of all runs."""
        self.is_ending = False
        self.is_handed_over = False
        self._targets = targets
        self._directory = directory
        self._commands: asyncio.Queue[StageCommand] = asyncio.Queue()
        self._sent = 0
        self._logged = asyncio.Event()
        if (kind := plugin.config_type()) is not None:
            vars(plugin)["config"] = read_value(kind, dict(config or {}), path=("config",))[0]

    @property
    def text(self) -> str:
        """The whole log, a line each."""
        return "\n".join(line.text for line in self.log)

    async def run(
        self, stage: str, options: Mapping[str, Any] | None = None, *, index: int = 0
    ) -> StageResult:
        """Run a stage to its end; without options as in a quick sync. May be cancelled."""
        definition = self.plugin.stages[stage]
        text = b"" if options is None else json.dumps(options).encode()
        return await _execution.execute(
            self.plugin, definition, text, self._context(definition.name, index, options is None)
        )

    def plan(
        self, *stages: tuple[str, Mapping[str, Any]], rollback: bool = True
    ) -> list[PlannedStage]:
        """Plan a pipeline of these stages and options."""
        return _planning.plan_pipeline(self.plugin, _requests(stages), rollback=rollback)

    def faults(self, *stages: tuple[str, Mapping[str, Any]]) -> list[str]:
        """What is wrong in the options of these stages, as their author is told."""
        try:
            self.plan(*stages)
        except ConfigFaultsError as error:
            return [str(fault) for fault in error.faults]
        return []

    def send(self, kind: CommandKind, *, by: str) -> None:
        """Ask something of the running stage, or of the next one that runs."""
        self._sent += 1
        self._commands.put_nowait(StageCommand(id=f"command-{self._sent}", kind=kind, commander=by))

    async def logged(self, text: str, *, exact: bool = False, limit: float = 30) -> None:
        """Wait until a line of the log contains this text, or is exactly it."""
        async with asyncio.timeout(limit):
            while not any(text == line.text if exact else text in line.text for line in self.log):
                self._logged.clear()
                await self._logged.wait()

    def append(self, severity: Severity, line: str) -> None:
        """Take a line of the log; the stage's side of it."""
        self.log.append(LogLine(severity=severity, text=line))
        self._logged.set()

    def place(self, index: int, at: float | None) -> None:
        """A list has its own order."""

    async def drain(self) -> None:
        """Let others run; a list is never too full."""
        await asyncio.sleep(0)

    def _context(self, name: str, index: int, quick_sync: bool) -> StageContext:
        rollback = self.plugin.stages[name].rollback
        directory = str(self._directory) if self._directory else ""
        commit = self.deployment.commit.hash
        return StageContext(
            deployment=self.deployment,
            stage=Stage(id=f"stage-{index}", name=name, index=index, rollback=rollback),
            source=Sources(target=Source(commit_hash=commit, application_directory=directory)),
            targets=self._targets,
            log=StageLog(self),
            metadata=self.metadata,
            deployment_metadata=self.deployment_metadata,
            commands=self._read_commands(),
            clock=self.clock,
            quick_sync=quick_sync,
            is_handed_over=lambda: self.is_handed_over,
            is_ending=lambda: self.is_ending,
        )

    async def _read_commands(self) -> AsyncIterator[StageCommand]:
        while True:
            yield await self._commands.get()


class KeptMetadata(Metadata):
    """Metadata in a dict. A time may be put in as it is: it is kept in Unix seconds."""

    def __init__(self) -> None:
        self.values: dict[str, str] = {}

    def __setitem__(self, key: str, value: str | datetime) -> None:
        if isinstance(value, datetime):
            value = str(int(value.timestamp()))
        self.values[key] = value

    def __getitem__(self, key: str) -> str:
        return self.values[key]

    def __contains__(self, key: object) -> bool:
        return key in self.values

    async def get(self, key: str) -> str | None:
        return self.values.get(key)

    async def put(self, key: str, value: str) -> None:
        self.values[key] = value

    async def put_many(self, values: Mapping[str, str]) -> None:
        self.values.update(values)


def example_deployment() -> Deployment:
    """A deployment with every field filled."""
    return Deployment(
        id="deployment-1",
        application_id="application-1",
        application_name="shop",
        project_id="project-1",
        piped_id="piped-1",
        commit=Commit(
            hash="0123456789abcdef0123456789abcdef01234567",
            message="Sell more",
            author="dev",
            branch="main",
        ),
        created_at=NOON,
        repository_url="https://git.example.com/shop.git",
        summary="Deploy with the pipeline",
        labels={"env": "dev"},
    )


def _requests(stages: Sequence[tuple[str, Mapping[str, Any]]]) -> list[_planning.StageRequest]:
    return [
        _planning.StageRequest(name=name, index=index, config=json.dumps(options).encode())
        for index, (name, options) in enumerate(stages)
    ]
