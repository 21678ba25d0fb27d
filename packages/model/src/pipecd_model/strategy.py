# SPDX-License-Identifier: Apache-2.0
"""Chooses the strategy of a deployment, quick sync or pipeline. Pure: the agent asks the plugins.

`choose` decides what can be decided without them. If it returns None, the agent asks every plugin
of the application, and `choose_by_answers` decides.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pipecd_model.config import ApplicationConfig
from pipecd_model.errors import PluginError
from pipecd_model.regex import compile_regex
from pipecd_wire.model import common_pb2, deployment_pb2

QUICK_SYNC = common_pb2.QUICK_SYNC
PIPELINE = common_pb2.PIPELINE

QUICK_IF_OFFERED = "rolled back by a quick sync, if a plugin offers one"
"""The summary in a trigger with the strategy AUTO that is a person's roll-back: it is the same each
time, whatever commit messages or plugins would choose."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The strategy, with the sentence that becomes the deployment's summary."""

    strategy: common_pb2.SyncStrategy.ValueType
    summary: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a plugin said: a choice, nothing (it has no opinion), or an error."""

    plugin: str
    choice: Choice | None = None
    error: str = ""


def choose(
    config: ApplicationConfig,
    trigger: deployment_pb2.DeploymentTrigger,
    *,
    first: bool,
    quick_sync_offered: bool,
) -> Choice | None:
    """Decide without asking for opinions; None if the plugins must be asked.

    `first`: nothing was deployed successfully before. `quick_sync_offered`: at least one plugin of
    the application has a quick-sync stage. Where none has, as with scripts and waits alone, the
    pipeline is the only way, also the first time.
    """
    if trigger.sync_strategy in {QUICK_SYNC, PIPELINE}:
        summary = trigger.strategy_summary or f"{_name(trigger.sync_strategy)} was asked for"
        return Choice(strategy=trigger.sync_strategy, summary=summary)
    if trigger.strategy_summary == QUICK_IF_OFFERED:
        if quick_sync_offered or not config.pipeline.stages:
            return Choice(strategy=QUICK_SYNC, summary="Quick sync: it is a roll-back")
        return Choice(
            strategy=PIPELINE,
            summary="Pipeline: it is a roll-back, and no plugin offers a quick sync",
        )
    if not config.pipeline.stages:
        return Choice(strategy=QUICK_SYNC, summary="Quick sync: no pipeline is configured")
    if config.planner.always_use_pipeline:
        return Choice(strategy=PIPELINE, summary="Pipeline: alwaysUsePipeline is set")
    if not trigger.commander:
        chosen = _choose_by_message(config, trigger.commit.message)
        if chosen is not None:
            return chosen
    if not quick_sync_offered:
        return Choice(strategy=PIPELINE, summary="Pipeline: no plugin offers a quick sync")
    if first:
        return Choice(strategy=QUICK_SYNC, summary="Quick sync: this is the first deployment")
    return None


def _choose_by_message(config: ApplicationConfig, message: str) -> Choice | None:
    for strategy, pattern in (
        (PIPELINE, config.commit_matcher.pipeline),
        (QUICK_SYNC, config.commit_matcher.quick_sync),
    ):
        if pattern and compile_regex(pattern).is_found_in(message):
            return Choice(
                strategy=strategy,
                summary=f"{_name(strategy)}: the commit message matches {pattern!r}",
            )
    return None


def choose_by_answers(answers: Iterable[Answer]) -> Choice:
    """Decide by what the plugins said: the first PIPELINE wins, else the last with an opinion."""
    last: Choice | None = None
    errors: list[str] = []
    for answer in answers:
        if answer.error:
            errors.append(f"{answer.plugin}: {answer.error}")
        if answer.choice is None:
            continue
        if answer.choice.strategy == PIPELINE:
            return answer.choice
        last = answer.choice
    if last is not None:
        return last
    if errors:
        raise PluginError(
            f"no plugin could tell how to deploy: {'; '.join(errors)}",
            hint="set planner.alwaysUsePipeline to deploy without asking",
        )
    return Choice(strategy=PIPELINE, summary="Pipeline: no plugin has an opinion")


def _name(strategy: common_pb2.SyncStrategy.ValueType) -> str:
    return "Pipeline" if strategy == PIPELINE else "Quick sync"
