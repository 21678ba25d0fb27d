# SPDX-License-Identifier: Apache-2.0
"""The script-run guide's seven stages with real plugins, stopped at each of them in turn.

Kubernetes is played by the plugin dummy. What ran is read from the files that the stages themselves
write.
"""

import asyncio
from typing import Any

import pytest

from pipecd_test_support.piped_site import PipedSite, SiteClient
from pipecd_wire.model import deployment_pb2 as pb

NAMES = [
    "DUMMY_CANARY_ROLLOUT",
    "WAIT",
    "SCRIPT_RUN",
    "DUMMY_PRIMARY_ROLLOUT",
    "SCRIPT_RUN",
    "DUMMY_CANARY_CLEAN",
    "SCRIPT_RUN",
]
SCRIPTS = [2, 4, 6]

stopped_at = pytest.mark.parametrize(
    "index", range(7), ids=[f"{number}-{name}" for number, name in enumerate(NAMES, 1)]
)


def seven_stages(record: str, *, fails: int | None = None, hangs: int | None = None) -> list[Any]:
    """The guide's pipeline; one stage fails, or never ends by itself."""
    stages: list[dict[str, Any]] = []
    for index, name in enumerate(NAMES):
        stage: dict[str, Any] = {"name": name}
        if name == "WAIT":
            stage["with"] = {"duration": "10m" if index in {fails, hangs} else "10ms"}
            if index == fails:
                stage["timeout"] = "100ms"
        elif name == "SCRIPT_RUN":
            end = "exit 3" if index == fails else "sleep 600" if index == hangs else "true"
            stage["with"] = {
                "env": {"RECORD": record},
                "run": f'echo "SCRIPT_RUN {index}" >> "$RECORD"\n{end}\n',
                "onRollback": f'echo "SCRIPT_RUN_ROLLBACK {index}" >> "$RECORD"\n',
            }
        else:
            stage["with"] = {"record": record, "fail": index == fails}
            if index == hangs:
                stage["with"]["sleep"] = "10m"
        stages.append(stage)
    return stages


def expected(index: int, *, rollback: bool = True) -> list[str]:
    """What leaves a trace: all but WAIT; then the guide's rollbacks after the platform's."""
    forward = [
        f"SCRIPT_RUN {at}" if name == "SCRIPT_RUN" else name
        for at, name in enumerate(NAMES[: index + 1])
        if name != "WAIT"
    ]
    undone = [f"SCRIPT_RUN_ROLLBACK {at}" for at in SCRIPTS if at <= index]
    return [*forward, "DUMMY_ROLLBACK", *undone] if rollback else forward


def traces(site: PipedSite, path: str, commit: str) -> list[str]:
    return [line.removesuffix(f" {commit}") for line in site.records(path)]


@stopped_at
async def test_a_stage_that_fails(
    index: int, shared_site: PipedSite, shared_client: SiteClient
) -> None:
    path = f"fails-{index}"
    record = str(shared_site.folder / path)
    commit = shared_site.commit_application(path, seven_stages(record, fails=index))

    ended = await shared_client.completed(await shared_client.deploy(path, commit))

    assert traces(shared_site, path, commit) == expected(index)
    assert ended.status == pb.DEPLOYMENT_FAILURE
    assert ended.status_reason.startswith(f"{NAMES[index]} ")
    assert ended.status_reason.endswith("; rolled back")
    [failed] = [stage for stage in ended.stages if stage.status == pb.STAGE_FAILURE]
    assert (failed.index, failed.rollback) == (index, False)
    assert failed.status_reason


@stopped_at
async def test_a_stage_that_is_cancelled(
    index: int, shared_site: PipedSite, shared_client: SiteClient
) -> None:
    path = f"cancelled-{index}"
    record = str(shared_site.folder / path)
    commit = shared_site.commit_application(path, seven_stages(record, hangs=index))
    deployment_id = await shared_client.deploy(path, commit)
    await shared_client.stage_running(deployment_id, index)
    await _begun(shared_site, path, commit, index)

    await shared_client.cancel(deployment_id)
    ended = await shared_client.completed(deployment_id)

    assert traces(shared_site, path, commit) == expected(index)
    assert ended.status == pb.DEPLOYMENT_CANCELLED
    assert ended.status_reason.startswith("cancelled by ")
    assert ended.status_reason.endswith(f" during {NAMES[index]}; rolled back")
    [cancelled] = [stage for stage in ended.stages if stage.status == pb.STAGE_CANCELLED]
    assert (cancelled.index, cancelled.rollback) == (index, False)


@stopped_at
async def test_a_stage_that_fails_without_auto_rollback(
    index: int, shared_site: PipedSite, shared_client: SiteClient
) -> None:
    path = f"stays-{index}"
    record = str(shared_site.folder / path)
    planner = {"alwaysUsePipeline": True, "autoRollback": False}
    stages = seven_stages(record, fails=index)
    commit = shared_site.commit_application(path, stages, planner=planner)

    ended = await shared_client.completed(await shared_client.deploy(path, commit))

    assert traces(shared_site, path, commit) == expected(index, rollback=False)
    assert ended.status == pb.DEPLOYMENT_FAILURE
    assert not any(stage.rollback for stage in ended.stages)


async def test_a_forced_rollback_is_built_when_it_is_asked_for(
    shared_site: PipedSite, shared_client: SiteClient
) -> None:
    path = "forced"
    record = str(shared_site.folder / path)
    planner = {"alwaysUsePipeline": True, "autoRollback": False}
    stages = seven_stages(record, hangs=4)
    commit = shared_site.commit_application(path, stages, planner=planner)
    deployment_id = await shared_client.deploy(path, commit)
    await shared_client.stage_running(deployment_id, 4)
    await _begun(shared_site, path, commit, 4)

    await shared_client.cancel(deployment_id, force_rollback=True)
    ended = await shared_client.completed(deployment_id)

    assert traces(shared_site, path, commit) == expected(4)
    assert ended.status_reason.endswith("; rolled back")


async def test_all_seven_run_to_the_end(shared_site: PipedSite, shared_client: SiteClient) -> None:
    path = "succeeds"
    record = str(shared_site.folder / path)
    commit = shared_site.commit_application(path, seven_stages(record))

    ended = await shared_client.completed(await shared_client.deploy(path, commit))

    assert traces(shared_site, path, commit) == expected(6, rollback=False)
    assert ended.status == pb.DEPLOYMENT_SUCCESS
    scripts = [stage for stage in ended.stages if stage.name == "SCRIPT_RUN"]
    lines = await shared_client.log(ended, scripts[0])
    assert any("RECORD" in line for line in lines)


async def _begun(site: PipedSite, path: str, commit: str, index: int) -> None:
    """Wait for the trace of a stage: RUNNING is told a moment before it begins."""
    wanted = expected(index, rollback=False)
    async with asyncio.timeout(60):
        while traces(site, path, commit) != wanted:  # noqa: ASYNC110 - another process writes it
            await asyncio.sleep(0.02)
