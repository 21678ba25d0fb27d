# SPDX-License-Identifier: Apache-2.0
"""Deployments under random failures, cancels, stops and crashes: what must hold in every case.

The scripts behave as the script plugin's do: one that was begun by a process that is gone says that
it was interrupted, and never runs again.
"""

import asyncio
from dataclasses import dataclass, field

from google.protobuf.message import Message
from hypothesis import given, settings
from hypothesis import strategies as st

from pipecd_model import deployment as deployments
from pipecd_model import stage as stages
from pipecd_piped.plugins.errors import PluginLostError
from pipecd_test_support.piped_parts import (
    LIMIT,
    FakePlugin,
    FakePlugins,
    FakeSources,
    Memory,
    World,
    application_file,
    cancel,
    deployment,
    done,
)
from pipecd_wire.model import deployment_pb2 as pb
from pipecd_wire.plugin.deploymentapi import api_pb2 as api

KINDS = ("PLATFORM", "SCRIPT_RUN")


@dataclass
class Case:
    """A pipeline, and what happens to it. Numbers count the calls of ExecuteStage."""

    pipeline: list[str]
    fails: set[int]
    """Indexes of forward stages that fail."""
    cancel_at: int | None
    crash_at: set[int]
    stop_at: set[int]
    auto_rollback: bool


@st.composite
def cases(draw: st.DrawFn) -> Case:
    pipeline = draw(st.lists(st.sampled_from(KINDS), min_size=1, max_size=5))
    calls = st.integers(0, 8)
    return Case(
        pipeline=pipeline,
        fails=draw(st.sets(st.integers(0, len(pipeline) - 1), max_size=1)),
        cancel_at=draw(st.none() | calls),
        crash_at=draw(st.sets(calls, max_size=2)),
        stop_at=draw(st.sets(calls, max_size=2)),
        auto_rollback=draw(st.booleans()),
    )


@dataclass
class Outside:
    """What outlives a piped: what plugins did, and what the control plane was told."""

    case: Case
    stored: pb.Deployment = field(default_factory=deployment)
    calls: int = 0
    effects: list[str] = field(default_factory=list)
    marks: set[str] = field(default_factory=set)
    cancelled: bool = False

    def take(self, method: str, request: object) -> None:
        """Keep a report as a control plane does: no status ever goes back."""
        stored = self.stored
        if isinstance(request, api.ExecuteStageRequest):
            return
        match method:
            case "ReportDeploymentPlanned":
                assert deployments.can_become(stored.status, pb.DEPLOYMENT_PLANNED)
                stored.status = pb.DEPLOYMENT_PLANNED
                stored.trigger.sync_strategy = request.sync_strategy  # type: ignore[attr-defined]
                del stored.stages[:]
                stored.stages.extend(request.stages)  # type: ignore[attr-defined]
            case "ReportDeploymentStatusChanged" | "ReportDeploymentCompleted":
                new = request.status  # type: ignore[attr-defined]
                assert deployments.can_become(stored.status, new), (stored.status, new)
                stored.status = new
                stored.status_reason = request.status_reason  # type: ignore[attr-defined]
            case "ReportStageStatusChanged":
                stage = deployments.stage(stored, request.stage_id)  # type: ignore[attr-defined]
                new_status = request.status  # type: ignore[attr-defined]
                assert stages.can_become(stage.status, new_status), (stage.name, new_status)
                stage.status = new_status
                stage.status_reason = request.status_reason  # type: ignore[attr-defined]


class MemoryUntilDeath(Memory):
    """Nothing is delivered any more once the piped has died."""

    def __init__(self, outside: Outside, died: asyncio.Event) -> None:
        super().__init__()
        self._outside = outside
        self._died = died

    async def deliver(self, method: str, request: Message) -> None:
        if not self._died.is_set():
            self._outside.take(method, request)
            await super().deliver(method, request)


class Life:
    """One piped, from its start to its end or its death."""

    def __init__(self, facts: Outside) -> None:
        self.facts = facts
        self.died = asyncio.Event()
        self.stopped = asyncio.Event()
        behave = dict.fromkeys((*KINDS, "ROLL", "SCRIPT_RUN_ROLLBACK"), self.execute)
        plugins = FakePlugins(
            FakePlugin("platform", "PLATFORM", "ROLL", rollback="ROLL", behave=behave),
            FakePlugin(
                "scriptrun",
                "SCRIPT_RUN",
                "SCRIPT_RUN_ROLLBACK",
                rollback_each="SCRIPT_RUN_ROLLBACK",
                behave=behave,
            ),
        )
        case = facts.case
        file = application_file(case.pipeline, planner={"autoRollback": case.auto_rollback})
        memory = MemoryUntilDeath(facts, self.died)
        self.world = World(plugins, FakeSources({"c1": file}), memory=memory)

    async def execute(self, run: api.ExecutePluginInput) -> api.ExecuteStageResponse:
        facts, case = self.facts, self.facts.case
        call, facts.calls = facts.calls, facts.calls + 1
        place = f"{run.stage.name} {run.stage.index}"
        if run.stage.name.startswith("SCRIPT"):
            if place in facts.marks:
                return done(pb.STAGE_FAILURE, "interrupted")
            await self.world.reports.wait_delivered(run.deployment.id)
            facts.marks.add(place)
        facts.effects.append(place)
        if call in case.crash_at:
            self.died.set()
            await asyncio.Event().wait()
        if call in case.stop_at:
            self.stopped.set()
            self.world.controller.stop()
            if run.stage.name == "PLATFORM":
                raise PluginLostError("stopping")
        if call == case.cancel_at and not facts.cancelled:
            facts.cancelled = True
            self.world.push(cancel())
            if not run.stage.rollback and not self.stopped.is_set():
                await asyncio.Event().wait()
        failing = not run.stage.rollback and run.stage.index in case.fails
        return done(pb.STAGE_FAILURE, "broken") if failing else done()

    async def live(self) -> None:
        async with self.world.running():
            given = pb.Deployment()
            given.CopyFrom(self.facts.stored)
            commands = [cancel()] if self.facts.cancelled else []
            self.world.state.replace(applications=[], deployments=[given], commands=commands)
            memory = self.world.memory
            waiting = {
                asyncio.ensure_future(each)
                for each in (memory.until_completed(), self.died.wait(), self.stopped.wait())
            }
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for each in waiting:
                each.cancel()
            if self.died.is_set():
                self.world.outbox._lanes.clear()
            elif self.stopped.is_set():
                await self.world.controller.wait_settled()
                await self.world.outbox.wait_delivered("web")


async def play(case: Case) -> Outside:
    facts = Outside(case)
    async with asyncio.timeout(LIMIT):
        for _ in range(6):
            await Life(facts).live()
            if deployments.is_completed(facts.stored.status):
                return facts
    raise AssertionError(f"not completed: {facts}")


@settings(max_examples=150, deadline=None)
@given(cases())
def test_every_deployment_ends_and_keeps_its_promises(case: Case) -> None:
    facts = asyncio.run(play(case))

    stored, effects = facts.stored, facts.effects
    forward = [effect for effect in effects if not effect.startswith(("ROLL", "SCRIPT_RUN_ROLL"))]
    # One whose end nobody had heard of before a crash may be continued once more.
    indexes = [int(effect.split()[1]) for effect in dict.fromkeys(forward)]
    assert indexes == sorted(indexes), "stages run in the order of the pipeline"
    scripts = [effect for effect in effects if effect.startswith("SCRIPT")]
    assert len(scripts) == len(set(scripts)), "no script runs twice, nor its rollback"
    undone = [int(it.split()[1]) for it in effects if it.startswith("SCRIPT_RUN_ROLLBACK")]
    assert undone == sorted(undone), "rollbacks run in the order of the pipeline"
    begun = {int(it.split()[1]) for it in effects if it.startswith("SCRIPT_RUN ")}
    assert set(undone) <= begun, "only what had started is undone"
    if not case.auto_rollback or stored.status == pb.DEPLOYMENT_SUCCESS:
        assert not undone
        assert not any(effect.startswith("ROLL") for effect in effects)
    elif undone and "PLATFORM" in case.pipeline:
        platform = [at for at, effect in enumerate(effects) if effect.startswith("ROLL ")]
        first = min(at for at, it in enumerate(effects) if it.startswith("SCRIPT_RUN_ROLLBACK"))
        assert platform
        assert platform[0] < first, "the platform is rolled back before the scripts"
    if stored.status == pb.DEPLOYMENT_SUCCESS:
        assert all(stage.status == pb.STAGE_SUCCESS for stage in stages.forward_stages(stored))
    elif stored.status != pb.DEPLOYMENT_SUCCESS and case.auto_rollback and begun:
        rolled = {stage.index for stage in stored.stages if _was_rolled_back(stage)}
        assert begun <= rolled, "every script that had started is accounted for"
    assert stored.status_reason


def _was_rolled_back(stage: pb.PipelineStage) -> bool:
    return stage.name == "SCRIPT_RUN_ROLLBACK" and stages.is_completed(stage.status)
