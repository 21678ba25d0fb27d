# SPDX-License-Identifier: Apache-2.0
"""Builds the stage list of a deployment from the stages that its plugins return.

Plugins name the stages. piped sets their ids, their order and which stage requires which, and
checks that a plugin returned stages only for the entries that it was given.
"""

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise

from pipecd_model.config import StageConfig
from pipecd_model.errors import PluginError
from pipecd_model.ids import new_id
from pipecd_model.stage import is_rollback, sort_rollback_stages
from pipecd_piped.plan.protocols import PLUGIN, PluginCalls
from pipecd_wire.model.deployment_pb2 import STAGE_NOT_STARTED_YET, PipelineStage
from pipecd_wire.plugin.deploymentapi import api_pb2 as api

Clock = Callable[[], float]


async def quick_sync_stages(
    plugins: Iterable[PluginCalls], *, rollback: bool, clock: Clock = time.time
) -> list[PipelineStage]:
    """Returns the quick-sync stages of all plugins; empty when no plugin offers a quick sync."""
    built: list[PipelineStage] = []
    request = api.BuildQuickSyncStagesRequest(rollback=rollback)
    for plugin in plugins:
        answer = await plugin.build_quick_sync_stages(request)
        built += [_own(stage, plugin, clock) for stage in answer.stages]
    forward = [stage for stage in built if not is_rollback(stage)]
    return _put_rollbacks_last(forward, built, rollback) if forward else []


async def pipeline_stages(
    pipeline: Sequence[StageConfig],
    chosen: Mapping[int, PluginCalls],
    *,
    rollback: bool,
    clock: Clock = time.time,
) -> list[PipelineStage]:
    """Returns the stages of a pipeline, each built by the plugin that `chosen` has for its index.

    Raises PluginError when a plugin returns a stage that it was not asked for, or one twice.
    """
    parts: dict[str, tuple[PluginCalls, list[StageConfig]]] = {}
    for stage in pipeline:
        plugin = chosen[stage.index]
        parts.setdefault(plugin.name, (plugin, []))[1].append(stage)
    built: list[PipelineStage] = []
    for plugin, part in parts.values():
        answer = await plugin.build_pipeline_sync_stages(
            api.BuildPipelineSyncStagesRequest(
                rollback=rollback, stages=[_request(stage) for stage in part]
            )
        )
        _check(plugin, part, answer.stages)
        built += [_own(stage, plugin, clock) for stage in answer.stages]
    forward = sorted((each for each in built if not is_rollback(each)), key=lambda each: each.index)
    for previous, following in pairwise(forward):
        following.requires[:] = [previous.id]
    return _put_rollbacks_last(forward, built, rollback)


def config_bytes(stage: StageConfig) -> bytes:
    """Returns the stage's `with` options as JSON, the form in which a plugin gets them."""
    return json.dumps(stage.with_, ensure_ascii=False).encode()


def _put_rollbacks_last(
    forward: list[PipelineStage], built: list[PipelineStage], rollback: bool
) -> list[PipelineStage]:
    # Upstream's script plugin returns rollback stages without having been asked for them.
    return [*forward, *(sort_rollback_stages(built) if rollback else ())]


def _request(stage: StageConfig) -> api.BuildPipelineSyncStagesRequest.StageConfig:
    return api.BuildPipelineSyncStagesRequest.StageConfig(
        name=stage.name, desc=stage.desc, index=stage.index, config=config_bytes(stage)
    )


def _check(plugin: PluginCalls, part: list[StageConfig], answered: Iterable[PipelineStage]) -> None:
    asked = {stage.index for stage in part}
    seen: set[tuple[bool, int]] = set()
    for stage in answered:
        place = (is_rollback(stage), stage.index)
        if stage.index not in asked:
            fault = f"with index {stage.index}, which it was not asked about"
        elif place in seen:
            fault = f"with index {stage.index} twice"
        else:
            seen.add(place)
            continue
        raise PluginError(
            f"the plugin {plugin.name!r} answered the stage {stage.name!r} {fault}",
            hint="this is a fault of the plugin",
        )


def _own(answered: PipelineStage, plugin: PluginCalls, clock: Clock) -> PipelineStage:
    stage = PipelineStage()
    stage.CopyFrom(answered)
    now = int(clock())
    stage.id = new_id()
    stage.status = STAGE_NOT_STARTED_YET
    stage.created_at = stage.updated_at = now
    stage.metadata[PLUGIN] = plugin.name
    return stage
