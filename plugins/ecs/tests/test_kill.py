# SPDX-License-Identifier: Apache-2.0
"""The executable, killed after each change that it makes: the next one continues."""

import asyncio
from typing import Any

import pytest

from pipecd_sdk.testing.piped import FakePiped
from pipecd_sdk.testing.process import example_deployment, executable, start_plugin
from pipecd_test_support.aws.ecs_lab import EcsLab, make_task
from pipecd_wire.model import deployment_pb2

pytestmark = pytest.mark.xdist_group("aws")

COMMAND = [executable("pipecd-plugin-ecs")]
CHANGES = ["CreateService", "CreateTaskSet", "UpdateServicePrimaryTaskSet"]


async def wait_called(lab: EcsLab, action: str) -> None:
    """Waits until AWS has been asked; the server that we ask is another process."""
    async with asyncio.timeout(90):
        while not await asyncio.to_thread(lab.aws.calls, action):  # noqa: ASYNC110 - see above
            await asyncio.sleep(0.05)


async def test_a_stage_that_is_killed_after_each_change_makes_nothing_twice(lab: EcsLab) -> None:
    folder = lab.write("v1", make_task(), lab.make_service())
    deployment = example_deployment()
    deployment.deploy_targets_by_plugin["ecs"].deploy_targets.append("aws")
    entry = {"deployTargets": [{"name": "aws", "config": lab.aws.target}]}
    asked: dict[str, Any] = {
        "directory": folder,
        "deployment": deployment,
        "application": lab.make_options(),
    }
    async with FakePiped() as piped:
        for action in CHANGES:
            lab.aws.forget()
            lab.aws.break_next(action, "hold")
            async with start_plugin(piped, COMMAND, name="ecs", entry=entry) as plugin:
                running = asyncio.create_task(plugin.execute("ECS_SYNC", **asked))
                await wait_called(lab, action)
                plugin.process.kill()
                await asyncio.gather(running, return_exceptions=True)
        async with start_plugin(piped, COMMAND, name="ecs", entry=entry) as plugin:
            answer = await plugin.execute("ECS_SYNC", **asked)

    assert answer.status == deployment_pb2.STAGE_SUCCESS, answer.message
    assert [(each["status"], each["image"]) for each in lab.read_sets()] == [("PRIMARY", "web:v1")]
    assert lab.read_service()["runningCount"] == 4
