# SPDX-License-Identifier: Apache-2.0
"""What plugins answer holds no secret by the time anybody else sees it."""

from typing import Any

import pytest

from pipecd_model.errors import PluginError
from pipecd_test_support.piped_parts import FakePlugin, FakePlugins
from pipecd_wire.model.common_pb2 import ApplicationGitPath, ApplicationGitRepository
from pipecd_wire.model.deployment_pb2 import STAGE_FAILURE, Commit, Deployment, DeploymentTrigger
from pipecd_wire.plugin.deploymentapi import api_pb2 as api
from piped.plan.masked import MaskedPlugins
from piped.plugins.errors import PluginLostError
from piped.secrets import KnownSecrets, OpenedSecrets

DEPLOYMENT = Deployment(
    id="d1",
    git_path=ApplicationGitPath(repo=ApplicationGitRepository(id="r"), path="web"),
    trigger=DeploymentTrigger(commit=Commit(hash="c1")),
)


class Talkative(FakePlugin):
    """Says what it should not."""

    error: PluginError | None = None

    async def execute_stage(self, run: api.ExecutePluginInput) -> api.ExecuteStageResponse:
        if self.error is not None:
            raise self.error
        return api.ExecuteStageResponse(status=STAGE_FAILURE, message="failed: hunter22")

    async def determine_versions(self, plan: api.PlanPluginInput) -> Any:
        answer = api.DetermineVersionsResponse()
        answer.versions.add(name="web", version="hunter22", url="https://x/?t=hunter22")
        return answer


@pytest.fixture
def known() -> KnownSecrets:
    made = KnownSecrets()
    with made.opened(DEPLOYMENT):
        made.learn(DEPLOYMENT.git_path, "c1", OpenedSecrets(values={"login": "hunter22"}))
    return made


async def test_the_reason_of_a_stage_is_masked(known: KnownSecrets) -> None:
    plugins = MaskedPlugins(FakePlugins(Talkative("lab", "STEP")), known)
    plugin = plugins.choose("STEP", wanted=None, declared=())

    answer = await plugin.execute_stage(api.ExecutePluginInput(deployment=DEPLOYMENT))

    assert answer.message == "failed: ***"
    assert plugins.plugins["lab"] is plugin


async def test_an_error_keeps_its_kind(known: KnownSecrets) -> None:
    talkative = Talkative("lab", "STEP")
    talkative.error = PluginLostError("died of hunter22", hint="was it hunter22?")
    plugin = MaskedPlugins(FakePlugins(talkative), known).plugins["lab"]

    with pytest.raises(PluginLostError) as raised:
        await plugin.execute_stage(api.ExecutePluginInput(deployment=DEPLOYMENT))

    assert str(raised.value) == "died of ***"
    assert raised.value.hint == "was it ***?"


async def test_versions_are_masked(known: KnownSecrets) -> None:
    plugin = MaskedPlugins(FakePlugins(Talkative("lab", "STEP")), known).plugins["lab"]

    answer = await plugin.determine_versions(api.PlanPluginInput(deployment=DEPLOYMENT))

    (version,) = answer.versions
    assert (version.version, version.url) == ("***", "https://x/?t=***")
