# SPDX-License-Identifier: Apache-2.0
"""Simulates a deployment: which stages would run, which would roll back, and why.

The order and the choice come from the same functions that the agent runs. Plugins are not asked:
their stages are known from how they describe themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from pipecd_model.config import ApplicationConfig, StageConfig
from pipecd_model.config.schema import find_value
from pipecd_model.errors import ConfigError
from pipecd_model.known_plugins import PluginDescription, find_by_stage, load_known_plugins
from pipecd_model.stage import (
    SCRIPT_RUN,
    SCRIPT_RUN_ROLLBACK,
    forward_stages,
    is_rollback,
    rollback_stages,
    sort_rollback_stages,
)
from pipecd_wire.model import deployment_pb2 as pb

CUSTOM_SYNC = "CUSTOM_SYNC"
CUSTOM_SYNC_ROLLBACK = "CUSTOM_SYNC_ROLLBACK"
Plugins = Mapping[str, PluginDescription]

_UNDO = ("onRollback", "runsOnRollback")


class Stop(Enum):
    """How a deployment comes to a stop on its way."""

    FAILS = "fails"
    IS_CANCELLED = "is cancelled"


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedStep:
    """A stage, what becomes of it, and why."""

    number: int
    """Its place in the pipeline from 1; a rollback has that of the stage that it belongs to."""
    name: str
    runs: bool
    is_rollback: bool = False
    outcome: str
    why: str = ""

    def __str__(self) -> str:
        why = f": {self.why}" if self.why else ""
        if not self.is_rollback:
            return f"{self.number}. {self.name} {self.outcome}{why}"
        of = f" of {self.number}" if self.name == SCRIPT_RUN_ROLLBACK else ""
        return f"rollback: {self.name}{of} {self.outcome}{why}"


def simulate(
    config: ApplicationConfig,
    *,
    stop_at: int | None = None,
    stop: Stop = Stop.FAILS,
    installed: Plugins | None = None,
) -> tuple[SimulatedStep, ...]:
    """Go through a deployment that stops at a stage, counted from 1, or succeeds.

    What the plugins that are `installed` say of themselves wins over what is known of them.
    """
    plugins = {**load_known_plugins(), **(installed or {})}
    deployment = plan_deployment(config, plugins)
    forward = forward_stages(deployment)
    if stop_at is not None and not 1 <= stop_at <= len(forward):
        count = f"{len(forward)} stage" + ("s" if len(forward) != 1 else "")
        raise ConfigError(
            f"there is no stage {stop_at}", hint=f"the deployment has {count}, counted from 1"
        )
    for number, stage in enumerate(forward, 1):
        if stop_at is None or number < stop_at:
            stage.status = pb.STAGE_SUCCESS
        elif number == stop_at:
            stage.status = pb.STAGE_FAILURE if stop is Stop.FAILS else pb.STAGE_CANCELLED
    steps = [*_forward(forward, stop_at, stop, plugins)]
    if stop_at is None:
        return tuple(steps)
    return (*steps, *_back(config, deployment, forward))


def plan_deployment(config: ApplicationConfig, plugins: Plugins) -> pb.Deployment:
    """Plan a deployment of the application, rollback included if it wants one."""
    wanted = config.pipeline.stages or _quick_sync(config, plugins)
    forward = [pb.PipelineStage(name=stage.name, index=stage.index) for stage in wanted]
    back = _rollback(wanted, plugins) if config.planner.auto_rollback else []
    return pb.Deployment(stages=[*forward, *sort_rollback_stages(back)])


def _quick_sync(config: ApplicationConfig, plugins: Plugins) -> tuple[StageConfig, ...]:
    chosen = [plugins[name] for name in config.plugins if name in plugins]
    names = [name for plugin in chosen for name in plugin.quick_sync_stages]
    if not names:
        raise ConfigError(
            "there is nothing to simulate: no pipeline, and no plugin that is known to deploy",
            hint="give spec.pipeline.stages",
        )
    return tuple(StageConfig(name=name, index=index) for index, name in enumerate(names))


def _rollback(wanted: Iterable[StageConfig], plugins: Plugins) -> list[pb.PipelineStage]:
    """Plan what the plugins would: one per platform, and one per script that says how."""
    platforms: dict[str, int] = {}
    scripts: list[pb.PipelineStage] = []
    custom: int | None = None
    for stage in wanted:
        plugin = find_by_stage(stage.name, plugins)
        if plugin is not None and plugin.platform_rollback:
            platforms.setdefault(plugin.platform_rollback, stage.index)
        if stage.name == CUSTOM_SYNC and custom is None:
            custom = stage.index
        if stage.name == SCRIPT_RUN and _can_undo(stage):
            scripts.append(
                pb.PipelineStage(name=SCRIPT_RUN_ROLLBACK, index=stage.index, rollback=True)
            )
    if custom is not None:
        platforms = {CUSTOM_SYNC_ROLLBACK: custom}  # takes the place of the platforms' own
    built = [
        pb.PipelineStage(name=name, index=index, rollback=True) for name, index in platforms.items()
    ]
    return [*built, *scripts]


def _can_undo(stage: StageConfig) -> bool:
    return any(find_value(stage.with_, key) for key in _UNDO)


def _forward(
    forward: Iterable[pb.PipelineStage], stop_at: int | None, stop: Stop, plugins: Plugins
) -> Iterable[SimulatedStep]:
    for number, stage in enumerate(forward, 1):
        known = find_by_stage(stage.name, plugins) is not None
        doubt = "" if known else "no well-known plugin offers it, so its rollback is not known"
        if stop_at is None or number < stop_at:
            yield SimulatedStep(
                number=number, name=stage.name, runs=True, outcome="succeeds", why=doubt
            )
        elif number == stop_at:
            yield SimulatedStep(
                number=number, name=stage.name, runs=True, outcome=stop.value, why=doubt
            )
        else:
            why = f"stage {stop_at} {stop.value}"
            yield SimulatedStep(
                number=number, name=stage.name, runs=False, outcome="does not run", why=why
            )


def _back(
    config: ApplicationConfig, deployment: pb.Deployment, forward: tuple[pb.PipelineStage, ...]
) -> Iterable[SimulatedStep]:
    numbers = {stage.index: number for number, stage in enumerate(forward, 1)}
    run = rollback_stages(deployment)
    for stage in run:
        yield _step(stage, numbers, runs=True)
    for stage in deployment.stages:
        if is_rollback(stage) and stage not in run:
            yield _step(stage, numbers, runs=False)
    if not config.planner.auto_rollback:
        why = "autoRollback is off"
        yield SimulatedStep(
            number=0, name="nothing", runs=False, is_rollback=True, outcome="runs", why=why
        )


def _step(stage: pb.PipelineStage, numbers: dict[int, int], *, runs: bool) -> SimulatedStep:
    number = numbers[stage.index]
    if stage.name != SCRIPT_RUN_ROLLBACK:
        why = "what ran before is brought back"
    elif runs:
        why = f"SCRIPT_RUN of {number} had started"
    else:
        why = f"SCRIPT_RUN of {number} had not started"
    return SimulatedStep(
        number=number,
        name=stage.name,
        runs=runs,
        is_rollback=True,
        outcome="runs" if runs else "does not run",
        why=why,
    )
