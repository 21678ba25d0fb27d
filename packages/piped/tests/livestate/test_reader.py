# SPDX-License-Identifier: Apache-2.0
"""Whose live states a plugin may announce: those of applications that have targets of it."""

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from pipecd_model.config import DeployTargetConfig, PluginConfig
from pipecd_model.errors import PluginError
from pipecd_piped.livestate.reader import LiveStateReader
from pipecd_wire.model.application_pb2 import Application, ApplicationDeploymentReference
from pipecd_wire.model.common_pb2 import ApplicationGitPath
from pipecd_wire.plugin.common.common_pb2 import DeploymentSource
from pipecd_wire.plugin.livestateapi.api_pb2 import GetLivestateRequest, GetLivestateResponse


class Plugin:
    """A plugin that has a live state, and keeps what it was asked."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.restarts = 0
        self.asked: list[list[str]] = []
        self.failure: PluginError | None = None

    async def wait_ready(self, limit: float, /) -> None:
        pass

    async def get_livestate(
        self, request: GetLivestateRequest, /, *, deadline: float
    ) -> GetLivestateResponse:
        if request.deploy_targets:
            self.asked.append(list(request.deploy_targets))
            if self.failure is not None:
                raise self.failure
        return GetLivestateResponse()


class Sources:
    """One commit, whose application file names deploy targets."""

    def __init__(self, named: dict[str, list[str]]) -> None:
        spec: dict[str, Any] = {"name": "web", "deployTargets": named, "plugins": {"k8s": {}}}
        document = {"apiVersion": "pipecd.dev/v1beta1", "kind": "Application", "spec": spec}
        self.source = DeploymentSource(
            application_config=json.dumps(document).encode(),
            application_config_filename="app.pipecd.yaml",
        )
        self.read_commits: list[str] = []
        self.ends: list[bool] = []
        """Whether a block has ended without an error."""

    async def read(
        self, git_path: ApplicationGitPath, commit: str, *, config_filename: str
    ) -> DeploymentSource:
        self.read_commits.append(commit)
        return self.source

    @asynccontextmanager
    async def open(
        self, git_path: ApplicationGitPath, commit: str, *, config_filename: str
    ) -> AsyncIterator[DeploymentSource]:
        try:
            yield self.source
        except BaseException:
            self.ends.append(False)
            raise
        self.ends.append(True)

    def reserve(self, git_path: ApplicationGitPath, commits: Sequence[str]) -> Any:
        raise AssertionError("nobody compares commits")

    async def list_changed_paths(
        self, git_path: ApplicationGitPath, old: str, new: str
    ) -> list[str]:
        raise AssertionError("nobody compares commits")


def make_reader(sources: Sources, plugin: Plugin) -> LiveStateReader:
    config = PluginConfig(name="k8s", deploy_targets=(DeployTargetConfig(name="here"),))
    return LiveStateReader(plugins={"k8s": plugin}, configs=[config], sources=sources)


async def test_deploy_targets_that_only_the_file_names_count_too() -> None:
    """Registered without any, an application is announced like every other one."""
    application = Application(id="a1", name="web")
    sources, plugin = Sources({"k8s": ["here"]}), Plugin("k8s")
    reader = make_reader(sources, plugin)
    assert not reader.has_plugin(application, "k8s")

    await reader.view(application, ApplicationDeploymentReference())
    assert plugin.asked == [["here"]]
    assert reader.has_plugin(application, "k8s")
    assert not reader.has_plugin(application, "other")
    assert not reader.has_plugin(Application(id="a2"), "k8s")

    sources.source = Sources({}).source
    deployed = ApplicationDeploymentReference()
    deployed.trigger.commit.hash = "next"
    await reader.view(application, deployed)
    assert not reader.has_plugin(application, "k8s"), "the file does not name them any more"


async def test_the_file_of_a_commit_is_read_once_and_that_of_the_next_again() -> None:
    """Live states are read every minute; a commit never changes."""
    application = Application(id="a1", name="web")
    sources, plugin = Sources({"k8s": ["here"]}), Plugin("k8s")
    reader = make_reader(sources, plugin)
    deployed = ApplicationDeploymentReference()

    for commit in ("one", "one", "two"):
        deployed.trigger.commit.hash = commit
        await reader.view(application, deployed)

    assert sources.read_commits == ["one", "two"]
    assert plugin.asked == [["here"]] * 3


async def test_what_a_plugin_that_does_not_answer_was_given_is_not_given_to_the_next() -> None:
    """It may still work there; the failure is a reason of the live state all the same."""
    application = Application(id="a1", name="web")
    sources, plugin = Sources({"k8s": ["here"]}), Plugin("k8s")
    reader = make_reader(sources, plugin)
    plugin.failure = PluginError("no answer within a minute")

    view = await reader.view(application, ApplicationDeploymentReference())

    assert view is not None
    assert "no answer within a minute" in view.sync.short_reason + view.sync.reason
    assert sources.ends == [False]

    plugin.failure = None
    assert await reader.view(application, ApplicationDeploymentReference()) is not None
    assert sources.ends == [False, True]
