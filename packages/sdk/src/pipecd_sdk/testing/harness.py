# SPDX-License-Identifier: Apache-2.0
"""A plugin's handlers in a test: planned and run as in production, without a process."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

from pipecd_sdk import _execution, _observation, _planning
from pipecd_sdk._observation import Observation
from pipecd_sdk.clock import Clock
from pipecd_sdk.config import OptionFaultsError, read_value
from pipecd_sdk.context import (
    CommandKind,
    Commit,
    Deployment,
    DeployTarget,
    PlanContext,
    Source,
    Sources,
    Stage,
    StageCommand,
    StageContext,
)
from pipecd_sdk.details import Details, DetailsContext, ResourceDetails, ResourceGoneError
from pipecd_sdk.livestate import Drift, LiveContext, LiveState, Resource
from pipecd_sdk.plugin import DeploymentPlugin, PlannedStage, StagePlugin, Strategy, Version
from pipecd_sdk.preview import PlanPreview, Preview, PreviewContext
from pipecd_sdk.results import StageFailedError, StageResult
from pipecd_sdk.secrets import Secrets
from pipecd_sdk.stage_log import Severity, StageLog
from pipecd_sdk.testing.clock import NOON, FakeClock
from pipecd_sdk.testing.in_memory import InMemoryMetadata, InMemoryObjects, InMemoryTools

P = TypeVar("P", bound=StagePlugin)

APPLICATION_FILE: Final = "app.pipecd.yaml"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLine:
    """One line of the stage log.

    Example:
        assert harness.log[-1] == LogLine(severity=Severity.SUCCESS, text="done")
    """

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
        running_directory: Path | None = None,
        options: Mapping[str, Any] | None = None,
        running_options: Mapping[str, Any] | None = None,
        secrets: Mapping[str, str] | None = None,
        shared_config_directory: Path | None = None,
        targets: Sequence[DeployTarget] = (),
    ) -> None:
        self.plugin = plugin
        self.clock = clock or FakeClock()
        self.deployment = deployment or example_deployment()
        self.metadata = InMemoryMetadata()
        """Of the stage; a test may fill it before a run and read it after."""
        self.deployment_metadata = InMemoryMetadata()
        self.deployment_shared = InMemoryMetadata()
        """What piped itself keeps with the deployment."""
        self.shared = InMemoryObjects()
        self.tools = InMemoryTools()
        self.secrets = dict(secrets or {})
        """Of the application, by name, open."""
        self.log: list[LogLine] = []
        """All lines of all runs."""
        self.is_ending = False
        self.is_handed_over = False
        self.targets = targets
        self.directory = directory
        """The files to deploy; an application file `app.pipecd.yaml` among them is read too."""
        self.running_directory = running_directory
        """The files that run now; None on a first deployment."""
        self.shared_config_directory = shared_config_directory
        """What a repository holds for all its applications, its folder `.pipe`."""
        self.options = options or {}
        """The plugin's part of the application file."""
        self.running_options = running_options
        """The same of the commit that runs now; None means that it has not changed."""
        self._commands: asyncio.Queue[StageCommand] = asyncio.Queue()
        self._sent = 0
        self._logged = asyncio.Event()
        if (kind := plugin.config_type()) is not None:
            vars(plugin)["config"] = read_value(kind, dict(config or {}), path=("config",))[0]

    @property
    def text(self) -> str:
        """Returns the whole log as one text."""
        return "\n".join(line.text for line in self.log)

    async def run(
        self,
        stage: str,
        options: Mapping[str, Any] | None = None,
        *,
        index: int = 0,
        retried_count: int = 0,
    ) -> StageResult:
        """Runs a stage to its end and returns its result; without options as in a quick sync."""
        definition = self.plugin.stages[stage]
        text = b"" if options is None else json.dumps(options).encode()
        ctx = self._context(definition.name, index, options is None, retried_count)
        return await _execution.execute(self.plugin, definition, text, ctx)

    def plan(
        self, *stages: tuple[str, Mapping[str, Any]], rollback: bool = True
    ) -> list[PlannedStage]:
        """Returns the planned stages of a pipeline of these stages and options.

        Raises OptionFaultsError with all faults of the options.
        """
        return _planning.plan_pipeline(self.plugin, _requests(stages), rollback=rollback)

    def quick_sync(self, *, rollback: bool = True) -> list[PlannedStage]:
        """Returns the planned stages of a deployment without a pipeline."""
        assert isinstance(self.plugin, DeploymentPlugin), "only a platform has one"  # noqa: S101
        return list(self.plugin.quick_sync(rollback=rollback))

    async def versions(self) -> Sequence[Version]:
        """Returns the versions that the plugin determines."""
        assert isinstance(self.plugin, DeploymentPlugin), "only a platform has some"  # noqa: S101
        return await self.plugin.versions(self._plan_context())

    async def strategy(self) -> Strategy:
        """Returns the strategy that the plugin determines."""
        assert isinstance(self.plugin, DeploymentPlugin), "only a platform has one"  # noqa: S101
        return await self.plugin.strategy(self._plan_context())

    async def live_state(self) -> Observation:
        """Returns what runs, and whether it is what `directory` holds."""
        plugin: StagePlugin = self.plugin
        assert isinstance(plugin, LiveState | Drift), "it has no such interface"  # noqa: S101
        ctx = LiveContext(
            application_id=self.deployment.application_id,
            application_name=self.deployment.application_name,
            piped_id=self.deployment.piped_id,
            source=self._sources().target,
            targets=self.targets,
            clock=self.clock,
            tools=self.tools,
            shared=self.shared,
        )
        return await _observation.observe(plugin, ctx)

    async def open_resource(
        self, resource: str | Resource, *, container: str = "", log_lines: int = 100
    ) -> Details:
        """Returns the details of a resource, which is named by its id in the live state.

        Raises ResourceGoneError when the live state does not have it: piped asks for no other. A
        `Resource` is asked for of the first target, as piped does that knows an older live state.
        """
        plugin: StagePlugin = self.plugin
        assert isinstance(plugin, ResourceDetails), "it has no such interface"  # noqa: S101
        if isinstance(resource, str):
            seen = (await self.live_state()).resources
            found = next((each for each in seen if each[1].id == resource), None)
            if found is None:
                raise ResourceGoneError(f"there is no resource {resource!r}")
            target, resource = found
        else:
            target = self.targets[0]
        ctx = DetailsContext(
            application_id=self.deployment.application_id,
            application_name=self.deployment.application_name,
            piped_id=self.deployment.piped_id,
            source=self._sources().target,
            targets=[target],
            clock=self.clock,
            tools=self.tools,
            shared=self.shared,
            container=container,
            log_lines=log_lines,
        )
        return await plugin.open_resource(ctx, target, resource)

    async def plan_preview(self) -> dict[str, Preview]:
        """Returns what deploying `directory` would change, by deploy target."""
        plugin: StagePlugin = self.plugin
        assert isinstance(plugin, PlanPreview), "it has no such interface"  # noqa: S101
        ctx = PreviewContext(
            application_id=self.deployment.application_id,
            application_name=self.deployment.application_name,
            piped_id=self.deployment.piped_id,
            source=self._sources(),
            targets=self.targets,
            clock=self.clock,
            tools=self.tools,
            shared=self.shared,
        )
        found = await _observation.preview(plugin, ctx)
        return {target.name: preview for target, preview in found}

    def faults(self, *stages: tuple[str, Mapping[str, Any]]) -> list[str]:
        """Returns the faults in the options of these stages, as their author sees them."""
        try:
            self.plan(*stages)
        except OptionFaultsError as error:
            return [str(fault) for fault in error.faults]
        return []

    def send(self, kind: CommandKind, *, by: str) -> None:
        """Sends a command to the running stage, or to the next one that runs."""
        self._sent += 1
        self._commands.put_nowait(StageCommand(id=f"command-{self._sent}", kind=kind, commander=by))

    async def wait_logged(self, text: str, *, exact: bool = False, limit: float = 30) -> None:
        """Waits until a line of the log contains this text, or is exactly it.

        Raises TimeoutError after `limit` seconds.
        """
        async with asyncio.timeout(limit):
            while not any(text == line.text if exact else text in line.text for line in self.log):
                self._logged.clear()
                await self._logged.wait()

    def append(self, severity: Severity, line: str) -> None:
        """Adds a line to the log; the stage calls it."""
        self.log.append(LogLine(severity=severity, text=line))
        self._logged.set()

    def set_next_index(self, index: int, at: float | None) -> None:
        """Does nothing: a list has its own order."""

    async def drain(self) -> None:
        """Lets other tasks run; a list is never too full."""
        await asyncio.sleep(0)

    def _context(self, name: str, index: int, quick_sync: bool, retried_count: int) -> StageContext:
        stage = Stage(
            id=f"stage-{index}",
            name=name,
            index=index,
            rollback=self.plugin.stages[name].rollback,
            retried_count=retried_count,
        )
        return StageContext(
            deployment=self.deployment,
            stage=stage,
            source=self._sources(),
            targets=self.targets,
            log=StageLog(self),
            metadata=self.metadata,
            deployment_metadata=self.deployment_metadata,
            commands=self._read_commands(),
            clock=self.clock,
            tools=self.tools,
            shared=self.shared,
            deployment_shared=self.deployment_shared.get,
            secrets=Secrets(self._open),
            quick_sync=quick_sync,
            is_handed_over=lambda: self.is_handed_over,
            is_ending=lambda: self.is_ending,
        )

    async def _open(self, name: str) -> str:
        if name not in self.secrets:
            raise StageFailedError(f"there is no secret {name!r}")
        return self.secrets[name]

    def _plan_context(self) -> PlanContext:
        return PlanContext(
            deployment=self.deployment,
            source=self._sources(),
            targets=self.targets,
            tools=self.tools,
        )

    def _sources(self) -> Sources:
        running = None
        if self.running_directory is not None:
            commit = self.deployment.running_commit or "running"
            options = self.options if self.running_options is None else self.running_options
            running = self._source(commit, self.running_directory, options)
        return Sources(
            target=self._source(self.deployment.commit.hash, self.directory, self.options),
            running=running,
        )

    def _source(self, commit: str, directory: Path | None, options: Mapping[str, Any]) -> Source:
        kind = self.plugin.application_config
        return Source(
            commit_hash=commit,
            application_directory=str(directory) if directory else "",
            config_filename=APPLICATION_FILE,
            config=_read_config(directory),
            shared_config_directory=str(self.shared_config_directory or ""),
            read_options=cache(lambda: read_value(kind, dict(options), path=())[0]),
        )

    async def _read_commands(self) -> AsyncIterator[StageCommand]:
        while True:
            yield await self._commands.get()


def _read_config(directory: Path | None) -> bytes:
    file = directory / APPLICATION_FILE if directory is not None else None
    return file.read_bytes() if file is not None and file.is_file() else b""


def example_deployment() -> Deployment:
    """Returns a deployment with every field filled.

    Example:
        harness = StageHarness(Wait(), deployment=replace(example_deployment(), id="d1"))
    """
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


def deploy_target(
    plugin: StagePlugin | type[StagePlugin],
    name: str,
    config: Mapping[str, Any] | None = None,
    *,
    labels: Mapping[str, str] | None = None,
) -> DeployTarget:
    """Returns a deploy target as the piped file has it, its options decoded.

    Raises OptionFaultsError when the options are wrong.

    Example:
        harness = StageHarness(Files(), targets=[deploy_target(Files, "a", {"path": "/srv/a"})])
    """
    decoded, _ = read_value(plugin.target_config, dict(config or {}), path=("config",))
    return DeployTarget(name=name, labels=labels or {}, config=decoded)


def _requests(stages: Sequence[tuple[str, Mapping[str, Any]]]) -> list[_planning.StageRequest]:
    return [
        _planning.StageRequest(name=name, index=index, config=json.dumps(options).encode())
        for index, (name, options) in enumerate(stages)
    ]
