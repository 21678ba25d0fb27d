# SPDX-License-Identifier: Apache-2.0
"""The executable `pipecd-plugin-files` as agents start it, ours and upstream's."""

from pathlib import Path
from typing import Any

import pytest

from pipecd_sdk.testing.piped import FakePiped
from pipecd_sdk.testing.process import (
    LaunchMode,
    StartError,
    example_deployment,
    executable,
    start_plugin,
)
from pipecd_test_support.files_lab import FilesLab
from pipecd_wire.model import application_pb2, deployment_pb2
from pipecd_wire.pipecd.plugin import plugin_pb2
from pipecd_wire.plugin.deploymentapi import api_pb2
from pipecd_wire.rpc import call

COMMAND = [executable("pipecd-plugin-files")]


def entry(tmp_path: Path, **config: object) -> dict[str, Any]:
    return {
        "config": {"flush": False},
        "deployTargets": [{"name": "a", "config": {"path": str(tmp_path / "a"), **config}}],
    }


@pytest.mark.parametrize(
    ("mode", "managed"),
    [(LaunchMode.DESCRIPTOR, True), (LaunchMode.COMMAND_LINE, False)],
    ids=["ours", "go"],
)
async def test_it_deploys_and_tells_over_the_wire(
    make: FilesLab, tmp_path: Path, mode: LaunchMode, managed: bool
) -> None:
    folder = make.write(tmp_path / "commit", {"public/index.html": "hello\n"})
    application = {"source": "public"}
    deployment = example_deployment()
    deployment.deploy_targets_by_plugin["files"].deploy_targets.append("a")
    asked: dict[str, Any] = {
        "targets": ["a"],
        "directory": folder,
        "application": application,
    }
    async with (
        FakePiped(managed=managed) as piped,
        start_plugin(piped, COMMAND, name="files", mode=mode, entry=entry(tmp_path)) as plugin,
    ):
        stages = await call(
            plugin.deployments.FetchDefinedStages, api_pb2.FetchDefinedStagesRequest()
        )
        preview = await plugin.plan_preview(**asked)
        answer = await plugin.execute(
            "FILES_SYNC", directory=folder, deployment=deployment, application=application
        )
        live = await plugin.live_state(**asked)

    assert list(stages.stages) == [
        "FILES_SYNC",
        "FILES_CANARY_ROLLOUT",
        "FILES_PRIMARY_ROLLOUT",
        "FILES_ROLLBACK",
    ]
    assert preview.results[0].summary == "1 added (the first release)"
    assert answer.status == deployment_pb2.STAGE_SUCCESS, answer.message
    assert make.deployed(tmp_path / "a") == {"index.html": "hello\n"}
    assert live.sync_state.status == application_pb2.SYNCED
    assert [each.resource_type for each in live.application_live_state.resources] == [
        "Directory",
        "Release",
        "File",
    ]


async def test_wrong_options_are_told_with_their_places(tmp_path: Path) -> None:
    request = plugin_pb2.CheckConfigRequest(
        application_config=b'{"source": "../x", "into": "current", "exclude": ["["]}'
    )
    async with (
        FakePiped() as piped,
        start_plugin(piped, COMMAND, name="files", entry=entry(tmp_path)) as plugin,
    ):
        checked = await call(plugin.configs.CheckConfig, request)

    assert {each.path for each in checked.faults} == {"source", "into", "exclude"}


async def test_a_target_without_an_absolute_path_keeps_it_from_starting(tmp_path: Path) -> None:
    with pytest.raises(StartError, match="must be an absolute path: 'srv'"):
        async with (
            FakePiped() as piped,
            start_plugin(piped, COMMAND, name="files", entry=entry(tmp_path, path="srv")),
        ):
            pass
