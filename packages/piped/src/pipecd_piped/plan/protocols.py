# SPDX-License-Identifier: Apache-2.0
"""Protocols of the plugins and commit sources that planning and running depend on."""

from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Final, Protocol

from pipecd_piped.plugins.state import PluginState
from pipecd_piped.report import metadata
from pipecd_wire.model.common_pb2 import ApplicationGitPath
from pipecd_wire.pipecd.plugin import plugin_pb2
from pipecd_wire.plugin.common.common_pb2 import DeploymentSource
from pipecd_wire.plugin.deploymentapi import api_pb2 as api

PLUGIN: Final = metadata.PLUGIN
"""Metadata key of a stage: the plugin that was chosen for it, kept for resume and rollback."""


class PluginCalls(Protocol):
    """The calls to one plugin. Every call raises PluginError when it fails."""

    name: str
    """Its name in piped's configuration."""

    @property
    def state(self) -> PluginState:
        """Returns the current phase of the plugin, with the reason for it."""

    @property
    def was_ready(self) -> bool:
        """Returns whether the plugin has ever been ready; before that its stages are unknown."""

    @property
    def stages_without_files(self) -> frozenset[str]:
        """Returns the names of its stages that need no files of the commit."""

    async def wait_ready(self, limit: float, /) -> None:
        """Wait until the plugin can be called; raises PluginError with the reason after `limit`."""

    async def determine_versions(
        self, plan: api.PlanPluginInput, /
    ) -> api.DetermineVersionsResponse:
        """Returns the artifact versions that the commit deploys."""

    async def determine_strategy(
        self, plan: api.PlanPluginInput, /
    ) -> api.DetermineStrategyResponse:
        """Returns the sync strategy that the plugin chooses: pipeline or quick sync."""

    async def build_pipeline_sync_stages(
        self, request: api.BuildPipelineSyncStagesRequest, /
    ) -> api.BuildPipelineSyncStagesResponse:
        """Returns the stages for the entries of a pipeline that belong to the plugin."""

    async def build_quick_sync_stages(
        self, request: api.BuildQuickSyncStagesRequest, /
    ) -> api.BuildQuickSyncStagesResponse:
        """Returns the stages of the plugin's quick sync."""

    async def check_config(
        self, request: plugin_pb2.CheckConfigRequest, /
    ) -> plugin_pb2.CheckConfigResponse | None:
        """Returns the faults in an application's options; None when the plugin has no check."""

    async def execute_stage(self, run: api.ExecutePluginInput, /) -> api.ExecuteStageResponse:
        """Run a stage to its end; when cancelled, waits until the plugin's handler has ended."""


class Plugins(Protocol):
    """All plugins of this piped."""

    @property
    def plugins(self) -> Mapping[str, PluginCalls]:
        """Returns the plugins by name."""

    async def wait_settled(self, limit: float, /) -> None:
        """Wait until each plugin has been ready or has failed once, `limit` seconds at most."""

    def choose(
        self, stage_name: str, /, *, wanted: str | None, declared: Collection[str]
    ) -> PluginCalls:
        """Returns the plugin that runs a stage; the application decides where several offer it."""


class OpenSources(Protocol):
    """Checks out the commits that plugins work on."""

    def open(
        self, git_path: ApplicationGitPath, commit: str, *, config_filename: str
    ) -> AbstractAsyncContextManager[DeploymentSource]:
        """Opens a worktree of the commit, for the exclusive use of the block.

        Raises PipecdError when the commit or the application in it does not exist.
        """


class ReadSources(OpenSources, Protocol):
    """Reads and checks out the commits that plugins look at.

    No two readers have a worktree at once, but one may find what the reader before has written. A
    block that ends with an error leaves its worktree to nobody: something may still work in it.
    """

    async def read(
        self, git_path: ApplicationGitPath, commit: str, *, config_filename: str
    ) -> DeploymentSource:
        """Returns an application's configuration at a commit, without checking out its files."""


class CommitSources(ReadSources, Protocol):
    """Reads and checks out the commits that plugins work on."""

    def reserve(
        self, git_path: ApplicationGitPath, commits: Sequence[str]
    ) -> AbstractAsyncContextManager[OpenSources]:
        """Reserves worktrees for whoever needs several at once, to be opened in the block.

        What is opened may outlive the block.
        """

    async def list_changed_paths(
        self, git_path: ApplicationGitPath, old: str, new: str
    ) -> list[str]:
        """Returns the files that differ between two commits, relative to the repository's root."""
