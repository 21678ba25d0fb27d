# SPDX-License-Identifier: Apache-2.0
"""Stages that are called again: after a crash, and after kill -9. No version is published twice."""

import asyncio
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from pipecd_sdk.testing.piped import FakePiped
from pipecd_sdk.testing.process import example_deployment, executable, start_plugin
from pipecd_test_support.aws.lambda_lab import LambdaLab, succeeded
from pipecd_test_support.waiting import wait_answer
from pipecd_wire.rpc import CallError

pytestmark = pytest.mark.xdist_group("lambda")


async def test_a_stage_that_runs_again_publishes_nothing(lab: LambdaLab) -> None:
    await lab.sync("v1")
    lab.write("v2")
    harness = lab.deploy("v2")

    for _ in range(2):
        assert succeeded(await harness.run("LAMBDA_CANARY_ROLLOUT", {}))

    assert lab.list_versions() == ["1", "2"]
    assert "version 2 is published already" in harness.text


async def test_a_version_that_was_published_before_it_was_noted_is_found(lab: LambdaLab) -> None:
    await lab.sync("v1")
    lab.write("v2")
    harness = lab.deploy("v2")
    assert succeeded(await harness.run("LAMBDA_CANARY_ROLLOUT", {}))
    kept = harness.deployment_metadata["lambda/main"]
    harness.deployment_metadata["lambda/main"] = kept.replace('"rollout":"2"', '"rollout":""')

    assert succeeded(await harness.run("LAMBDA_CANARY_ROLLOUT", {}))

    assert lab.list_versions() == ["1", "2"]


async def test_a_lost_answer_publishes_nothing_twice(lab: LambdaLab) -> None:
    await lab.sync("v1")
    lab.write("v2")
    lab.aws.break_next("PublishVersion", "lost")

    assert succeeded(await lab.deploy("v2").run("LAMBDA_SYNC"))

    assert lab.list_versions() == ["1", "2"]
    assert lab.read_alias() == {"2": 1.0}


@pytest.mark.parametrize(
    "step", ["CreateFunction", "PublishVersion", "CreateAlias", "UpdateFunctionCode"]
)
async def test_a_killed_plugin_is_continued_by_the_next_one(
    lab: LambdaLab, tmp_path: Path, step: str
) -> None:
    """Killed while it waits for an answer to what AWS has done."""
    if step == "UpdateFunctionCode":
        await lab.sync("v0")
    folder = lab.write("v1")
    deployment = example_deployment()
    deployment.deploy_targets_by_plugin["lambda"].deploy_targets.append("main")
    entry: dict[str, Any] = {"deployTargets": [{"name": "main", "config": lab.aws.target}]}
    command = [executable("pipecd-plugin-lambda")]
    lab.aws.forget()
    lab.aws.break_next(step, "hold")

    async with FakePiped() as piped:
        async with (
            start_plugin(piped, command, name="lambda", entry=entry) as plugin,
            asyncio.TaskGroup() as tasks,
        ):
            tasks.create_task(_lose(plugin, folder, deployment))
            await wait_answer(partial(asyncio.to_thread, lab.aws.calls, step), bool)
            plugin.process.kill()
        async with start_plugin(piped, command, name="lambda", entry=entry) as plugin:
            answer = await plugin.execute("LAMBDA_SYNC", directory=folder, deployment=deployment)

    assert answer.status == 2, answer.message
    versions = lab.list_versions()
    assert versions == (["1", "2"] if step == "UpdateFunctionCode" else ["1"])
    assert lab.read_alias() == {versions[-1]: 1.0}


async def _lose(plugin: Any, folder: Path, deployment: Any) -> None:
    try:
        await plugin.execute("LAMBDA_SYNC", directory=folder, deployment=deployment)
    except CallError:
        return
