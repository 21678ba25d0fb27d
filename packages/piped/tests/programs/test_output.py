# SPDX-License-Identifier: Apache-2.0
"""What a plugin's process writes is kept and logged without the secrets that are open."""

import asyncio

import pytest

from pipecd_piped.programs.output import Output
from pipecd_piped.secrets import KnownSecrets, OpenedSecrets
from pipecd_wire.model.common_pb2 import ApplicationGitPath, ApplicationGitRepository
from pipecd_wire.model.deployment_pb2 import Commit, Deployment, DeploymentTrigger

PLACE = ApplicationGitPath(repo=ApplicationGitRepository(id="repo"), path="web")


async def test_an_open_secret_is_not_shown(caplog: pytest.LogCaptureFixture) -> None:
    known = KnownSecrets()
    output = Output("lab", known.mask)
    reader = asyncio.StreamReader()
    with (
        caplog.at_level("INFO"),
        known.opened(
            Deployment(
                id="d1", git_path=PLACE, trigger=DeploymentTrigger(commit=Commit(hash="c1"))
            ),
        ),
    ):
        known.learn(PLACE, "c1", OpenedSecrets(values={"login": "hunter22"}))
        reader.feed_data(b"connecting with hunter22\ndone\n")
        reader.feed_eof()
        await output.follow(reader)

    assert output.last() == ("connecting with ***", "done")
    told = [str(vars(each).get("fields")) for each in caplog.records]
    assert any("connecting with ***" in each for each in told)
    assert not any("hunter22" in each for each in told)
