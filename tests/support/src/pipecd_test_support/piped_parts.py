# SPDX-License-Identifier: Apache-2.0
"""Stand-ins for what planning and running ask: plugins, sources, a control plane's memory.

The state, the outbox, the planner, the controller and the choice of plugins are the real ones.
"""

import asyncio
import json
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from google.protobuf.message import Message

from pipecd_model.errors import NotFoundError, PipecdError
from pipecd_piped.controlplane.lease import Lease
from pipecd_piped.controlplane.state import ControlPlaneState, StateChange
from pipecd_piped.facts import Facts
from pipecd_piped.git import NoCommitError
from pipecd_piped.plan.planner import Planner
from pipecd_piped.plugins.choose import choose
from pipecd_piped.plugins.state import Phase, PluginState
from pipecd_piped.report.commands import CommandInbox
from pipecd_piped.report.journal import Journal
from pipecd_piped.report.outbox import Outbox
from pipecd_piped.report.statuses import StatusReporter
from pipecd_piped.schedule.controller import Controller
from pipecd_piped.schedule.gate import DeploymentGate
from pipecd_piped.schedule.run import DeploymentRun
from pipecd_piped.schedule.services import RunServices
from pipecd_piped.schedule.turns import StageTurns
from pipecd_wire.model import deployment_pb2 as pb
from pipecd_wire.model.application_pb2 import Application, ApplicationDeploymentReference
from pipecd_wire.model.command_pb2 import Command
from pipecd_wire.model.common_pb2 import ApplicationGitPath, ApplicationGitRepository
from pipecd_wire.pipecd.plugin import plugin_pb2
from pipecd_wire.plugin.common.common_pb2 import DeploymentSource
from pipecd_wire.plugin.deploymentapi import api_pb2 as api

LIMIT = 20
"""Seconds after which a test that waits has failed."""

Behaviour = Callable[[api.ExecutePluginInput], Awaitable[api.ExecuteStageResponse]]

StageEntry = Mapping[str, Any] | str
"""A stage in an application's file: all of it, or its name."""


def git_path(path: str = "apps/web") -> ApplicationGitPath:
    return ApplicationGitPath(
        repo=ApplicationGitRepository(id="repo", remote="file:///repo", branch="main"),
        path=path,
        config_filename="app.pipecd.yaml",
    )


def trigger(commit: str = "c1", message: str = "change it", **more: Any) -> pb.DeploymentTrigger:
    return pb.DeploymentTrigger(
        commit=pb.Commit(
            hash=commit, message=message, author="Ada", branch="main", created_at=1_700_000_000
        ),
        timestamp=1_700_000_100,
        **more,
    )


def deployment(id: str = "d1", application_id: str = "web", **more: Any) -> pb.Deployment:
    made = pb.Deployment(
        id=id,
        application_id=application_id,
        application_name=application_id,
        piped_id="piped",
        project_id="project",
        git_path=git_path(),
        trigger=trigger(),
        created_at=1_700_000_100,
        updated_at=1_700_000_100,
    )
    made.MergeFrom(pb.Deployment(**more))
    return made


def cancel(deployment_id: str = "d1", by: str = "alice", **flags: bool) -> Command:
    return Command(
        id=f"cancel-{deployment_id}",
        piped_id="piped",
        type=Command.CANCEL_DEPLOYMENT,
        commander=by,
        application_id="web",
        deployment_id=deployment_id,
        cancel_deployment=Command.CancelDeployment(deployment_id=deployment_id, **flags),
        created_at=1,
        updated_at=1,
    )


def application_file(stages: Iterable[StageEntry], **spec: Any) -> str:
    entries = [{"name": stage} if isinstance(stage, str) else dict(stage) for stage in stages]
    document = {
        "apiVersion": "pipecd.dev/v1beta1",
        "kind": "Application",
        "spec": {"name": "web", "pipeline": {"stages": entries}, **spec},
    }
    return json.dumps(document)


def done(status: int = pb.STAGE_SUCCESS, message: str = "") -> api.ExecuteStageResponse:
    return api.ExecuteStageResponse(status=status, message=message)  # type: ignore[arg-type]


class FakePlugin:
    """A plugin that builds what it is asked for and behaves as it is told."""

    def __init__(
        self,
        name: str,
        *stages: str,
        rollback: str = "",
        rollback_each: str = "",
        quick: Iterable[str] = (),
        strategy: api.DetermineStrategyResponse | PipecdError | None = None,
        behave: Mapping[str, Behaviour] | None = None,
    ) -> None:
        self.name = name
        self.checks: Callable[[Any], plugin_pb2.CheckConfigResponse] | None = None
        self.stages = frozenset(stages)
        self.stages_without_files: frozenset[str] = frozenset()
        self.was_ready = True
        self.state = PluginState(phase=Phase.READY, sentence="ready")
        self._rollback = rollback
        self._rollback_each = rollback_each
        self._quick = tuple(quick)
        self.strategy = strategy or api.DetermineStrategyResponse(unsupported=True)
        self.behave = dict(behave or {})
        self.asked: list[str] = []
        self.planned_with: list[api.PlanPluginInput] = []
        self.executed: list[api.ExecutePluginInput] = []
        self.record: list[str] = []
        """`NAME index` of every stage it ran, in order."""

    async def wait_ready(self, limit: float) -> None:
        pass

    async def determine_versions(self, ask: api.PlanPluginInput) -> api.DetermineVersionsResponse:
        self.asked.append("versions")
        self.planned_with.append(ask)
        return api.DetermineVersionsResponse()

    async def determine_strategy(self, ask: api.PlanPluginInput) -> api.DetermineStrategyResponse:
        self.asked.append("strategy")
        if isinstance(self.strategy, PipecdError):
            raise self.strategy
        return self.strategy

    async def build_pipeline_sync_stages(
        self, request: api.BuildPipelineSyncStagesRequest
    ) -> api.BuildPipelineSyncStagesResponse:
        self.asked.append("pipeline")
        stages = [self._stage(each.name, each.index) for each in request.stages]
        if request.rollback and self._rollback:
            lowest = min(each.index for each in request.stages)
            stages.append(self._stage(self._rollback, lowest, rollback=True))
        if self._rollback_each:
            # As upstream's script plugin does, whether it was asked to or not.
            stages += [
                self._stage(self._rollback_each, each.index, rollback=True)
                for each in request.stages
            ]
        return api.BuildPipelineSyncStagesResponse(stages=stages)

    async def build_quick_sync_stages(
        self, request: api.BuildQuickSyncStagesRequest
    ) -> api.BuildQuickSyncStagesResponse:
        self.asked.append("quick")
        stages = [self._stage(name, 0) for name in self._quick]
        if request.rollback and self._rollback and stages:
            stages.append(self._stage(self._rollback, 0, rollback=True))
        return api.BuildQuickSyncStagesResponse(stages=stages)

    async def check_config(
        self, request: plugin_pb2.CheckConfigRequest
    ) -> plugin_pb2.CheckConfigResponse | None:
        return self.checks(request) if self.checks is not None else None

    async def execute_stage(self, run: api.ExecutePluginInput) -> api.ExecuteStageResponse:
        kept = api.ExecutePluginInput()
        kept.CopyFrom(run)
        self.executed.append(kept)
        place = f"{run.stage.name} {run.stage.index}"
        self.record.append(place)
        behave = self.behave.get(place) or self.behave.get(run.stage.name)
        return await behave(run) if behave is not None else done()

    def _stage(self, name: str, index: int, *, rollback: bool = False) -> pb.PipelineStage:
        return pb.PipelineStage(
            name=name,
            index=index,
            rollback=rollback,
            created_at=1,
            updated_at=1,
            available_operation=pb.MANUAL_OPERATION_NONE,
        )


class FakePlugins:
    """Some plugins, chosen by the real rule."""

    def __init__(self, *plugins: FakePlugin) -> None:
        self.plugins = {plugin.name: plugin for plugin in plugins}
        record: list[str] = []
        for plugin in plugins:
            plugin.record = record
        self.record = record

    async def wait_settled(self, limit: float) -> None:
        pass

    def choose(self, stage: str, *, wanted: str | None, declared: Collection[str]) -> Any:
        return choose(self.plugins, stage, wanted=wanted, declared=declared)  # type: ignore[arg-type]


class FakeSources:
    """Application files by commit; each open source has a folder of its own."""

    def __init__(self, files: Mapping[str, str], changed: Iterable[str] = ()) -> None:
        self.files = dict(files)
        self.changed = list(changed)
        self.open_now = 0
        self.opened: list[str] = []

    async def read(
        self, path: ApplicationGitPath, commit: str, *, config_filename: str
    ) -> DeploymentSource:
        if commit not in self.files:
            raise NoCommitError(f"the commit {commit!r} is not in the repository 'repo'")
        return DeploymentSource(
            commit_hash=commit,
            application_config=self.files[commit].encode(),
            application_config_filename=config_filename,
        )

    @asynccontextmanager
    async def open(
        self, path: ApplicationGitPath, commit: str, *, config_filename: str
    ) -> AsyncIterator[DeploymentSource]:
        source = await self.read(path, commit, config_filename=config_filename)
        self.open_now += 1
        self.opened.append(commit)
        source.application_directory = f"/trees/{len(self.opened)}/{path.path}"
        try:
            yield source
        finally:
            self.open_now -= 1

    @asynccontextmanager
    async def reserve(
        self, path: ApplicationGitPath, commits: Sequence[str]
    ) -> AsyncIterator["FakeSources"]:
        yield self

    async def list_changed_paths(self, path: ApplicationGitPath, old: str, new: str) -> list[str]:
        return self.changed


class Memory:
    """What a control plane would remember of all reports."""

    def __init__(self) -> None:
        self.reports: list[tuple[str, Any]] = []
        self.refuse: dict[str, PipecdError] = {}
        self.listens = asyncio.Event()
        """Cleared while nothing is taken."""
        self.listens.set()
        self.deployments: dict[str, pb.Deployment] = {}
        self.changed = asyncio.Condition()

    async def deliver(self, method: str, request: Message) -> None:
        await self.listens.wait()
        if method in self.refuse:
            raise self.refuse[method]
        self.reports.append((method, request))
        async with self.changed:
            self.changed.notify_all()

    def of(self, method: str) -> list[Any]:
        return [request for name, request in self.reports if name == method]

    def completed(self, deployment_id: str = "d1") -> Any:
        """The one report of the end."""
        [found] = [
            request
            for request in self.of("ReportDeploymentCompleted")
            if request.deployment_id == deployment_id
        ]
        return found

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(LIMIT), self.changed:
            await self.changed.wait_for(holds)

    async def until_completed(self, deployment_id: str = "d1") -> Any:
        await self.until(
            lambda: any(
                request.deployment_id == deployment_id
                for request in self.of("ReportDeploymentCompleted")
            )
        )
        return self.completed(deployment_id)


class FakeScripts:
    """What lives of each stage, by its id, whoever started it."""

    def __init__(self, record: list[str]) -> None:
        self.record = record
        """Shared with the plugins: `ended <stage>` among the stages that ran."""
        self.alive: set[str] = set()
        self.ended: set[str] = set()

    def stop(self, deployment_id: str, stage_id: str) -> bool:
        return stage_id in self.alive | self.ended

    async def end(
        self, deployment_id: str, *, only: str | None = None, but: str | None = None
    ) -> int:
        ending = {each for each in self.alive if only in {None, each} and each != but}
        self.alive -= ending
        self.ended |= ending
        self.record += [f"ended {each}" for each in sorted(ending)]
        return len(ending)


class FakeSuccesses:
    def __init__(self) -> None:
        self.known: dict[str, ApplicationDeploymentReference] = {}
        self.faults: list[PipecdError] = []
        """What the next questions end with."""

    async def get(self, application_id: str) -> ApplicationDeploymentReference | None:
        if self.faults:
            raise self.faults.pop(0)
        return self.known.get(application_id)

    def remember(self, application_id: str, success: ApplicationDeploymentReference) -> None:
        self.known[application_id] = success


class FakeScope:
    def __init__(self) -> None:
        self.opened: set[str] = set()

    @contextmanager
    def open(self, deployment: pb.Deployment) -> Iterator[None]:
        self.opened.add(deployment.id)
        yield
        self.opened.discard(deployment.id)


class World:
    """Everything around a scheduler, with the stand-ins in place."""

    def __init__(
        self,
        plugins: FakePlugins,
        sources: FakeSources,
        *,
        journal: Journal | None = None,
        memory: Memory | None = None,
        scripts_at_once: int = 0,
        **options: Any,
    ) -> None:
        self.plugins = plugins
        self.sources = sources
        self.memory = memory or Memory()
        self.state = ControlPlaneState()
        self.outbox = Outbox(self.memory.deliver, journal)
        self.clock = Clock()
        self.facts = Facts()
        self.reports = StatusReporter(self.outbox, self.memory.deliver)
        self.reports.subscribe_to(self.facts)
        self.commands = CommandInbox(self.state, self.outbox, self.clock)
        self.lease_clock = Clock(1000.0)
        self.lease = Lease("instance", clock=self.lease_clock)
        self.lease.apply(None, asked=self.lease_clock.now)  # there are none, unless a test says so
        self.planner = Planner(plugins, sources, self.clock)
        self.successes = FakeSuccesses()
        self.scripts = FakeScripts(plugins.record)
        self.stored: dict[str, pb.Deployment] = {}
        self.stored_faults: list[PipecdError] = []
        """What the next questions for a stored deployment end with."""
        self.gate = DeploymentGate(self.state, self.clock)
        self.turns = StageTurns(self.gate, scripts=scripts_at_once)
        self.services = RunServices(
            planner=self.planner,
            plugins=plugins,
            sources=sources,
            facts=self.facts,
            reports=self.reports,
            commands=self.commands,
            scope=FakeScope(),
            successes=self.successes,
            permit=self.lease,
            scripts=self.scripts,
            turns=self.turns,
            read_deployment=self._read_deployment,
            clock=self.clock,
            state=self.state,
        )
        self.controller = Controller(
            self.state,
            self.reports,
            self.commands,
            self.start,
            self._read_deployment,
            self.lease,
            gate=self.gate,
            **options,
        )
        self.runs: list[DeploymentRun] = []

    async def _read_deployment(self, deployment_id: str) -> pb.Deployment:
        if self.stored_faults:
            raise self.stored_faults.pop(0)
        if deployment_id not in self.stored:
            raise NotFoundError(f"no deployment {deployment_id!r}")
        return self.stored[deployment_id]

    def start(self, deployment: pb.Deployment) -> DeploymentRun:
        run = DeploymentRun(deployment, self.services)
        self.runs.append(run)
        return run

    @asynccontextmanager
    async def running(self) -> AsyncIterator["World"]:
        """The controller and the outbox at work."""
        async with asyncio.timeout(LIMIT), self.outbox.open(drain=LIMIT):
            controller = asyncio.ensure_future(self.controller.run())
            self.state.replace(applications=[], deployments=[], commands=[])
            try:
                yield self
            finally:
                controller.cancel()
                await asyncio.wait([controller])

    def push(self, *things: pb.Deployment | Command | Application) -> None:
        self.state.merge(
            StateChange(
                deployments=tuple(each for each in things if isinstance(each, pb.Deployment)),
                commands=tuple(each for each in things if isinstance(each, Command)),
                applications=tuple(each for each in things if isinstance(each, Application)),
            )
        )

    def success(self, commit: str, config_filename: str = "app.pipecd.yaml") -> None:
        """Have a commit of the application deployed before."""
        self.successes.known["web"] = ApplicationDeploymentReference(
            deployment_id="d0",
            trigger=trigger(commit),
            config_filename=config_filename,
            started_at=1,
        )

    def stage_reports(self) -> list[tuple[str, str, str]]:
        """(stage, status, reason) of every report about a stage, in order."""
        names = {
            stage.id: f"{stage.name} {stage.index}"
            for run in self.runs
            for stage in run.deployment.stages
        }
        return [
            (names[r.stage_id], pb.StageStatus.Name(r.status), r.status_reason)
            for r in self.memory.of("ReportStageStatusChanged")
        ]


class Clock:
    """A clock that stands until it is moved."""

    def __init__(self, now: float = 1_700_000_200.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


class Hold:
    """A stage that runs until it is let go, or is cancelled."""

    def __init__(self, answer: api.ExecuteStageResponse | None = None) -> None:
        self.began = asyncio.Event()
        self.let_go = asyncio.Event()
        self.answer = answer or done()
        self.cancelled = False

    async def __call__(self, run: api.ExecutePluginInput) -> api.ExecuteStageResponse:
        self.began.set()
        try:
            await self.let_go.wait()
        except asyncio.CancelledError:
            self.cancelled = True
            raise
        return self.answer
