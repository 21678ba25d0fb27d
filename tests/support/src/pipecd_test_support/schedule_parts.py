# SPDX-License-Identifier: Apache-2.0
"""Worlds with one plugin, for tests that run a deployment, from its start or one begun before."""

from collections.abc import Sequence
from typing import Any

from pipecd_test_support.piped_parts import (
    Behaviour,
    FakePlugin,
    FakePlugins,
    FakeSources,
    StageEntry,
    World,
    application_file,
    deployment,
    done,
)
from pipecd_wire.model import deployment_pb2 as pb
from pipecd_wire.model.common_pb2 import PIPELINE
from pipecd_wire.plugin.deploymentapi import api_pb2 as api

TWO = ["FIRST", "SECOND"]


def world_of(
    stages: Sequence[StageEntry], *, plugin: FakePlugin | None = None, **spec: object
) -> World:
    names = [stage if isinstance(stage, str) else stage["name"] for stage in stages]
    plugin = plugin or FakePlugin("steps", *names)
    files = {commit: application_file(stages, **spec) for commit in ("c0", "c1", "c2")}
    return World(FakePlugins(plugin), FakeSources(files))


def only_plugin(world: World) -> FakePlugin:
    [plugin] = world.plugins.plugins.values()
    return plugin


async def run(world: World, **more: Any) -> pb.Deployment:
    """Run one deployment to its end, and answer it."""
    async with world.running():
        world.controller.on_created(deployment(**more))
        await world.memory.until_completed()
    return world.runs[0].deployment


def failing(message: str = "") -> Behaviour:
    async def fails(_: api.ExecutePluginInput) -> api.ExecuteStageResponse:
        return done(pb.STAGE_FAILURE, message)

    return fails


def begun_deployment(
    world: World, *, started: float, planned: float | None = None
) -> pb.Deployment:
    """A deployment whose first stage an earlier piped has begun."""
    return deployment(
        status=pb.DEPLOYMENT_RUNNING,
        trigger=pb.DeploymentTrigger(sync_strategy=PIPELINE),
        stages=[
            pb.PipelineStage(
                id="s1",
                name="FIRST",
                status=pb.STAGE_RUNNING,
                completed_at=int(started),
                created_at=int(planned or started),
                updated_at=int(started),
                metadata={"pipecd/plugin": "steps"},
            )
        ],
    )
