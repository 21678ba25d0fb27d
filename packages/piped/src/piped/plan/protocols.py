# SPDX-License-Identifier: Apache-2.0
"""What planning and running need from plugins and sources, as small roles."""

from collections.abc import Collection, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Final, Protocol

from pipecd_wire.model.common_pb2 import ApplicationGitPath
from pipecd_wire.pipecd.plugin import plugin_pb2
from pipecd_wire.plugin.common.common_pb2 import DeploymentSource
from pipecd_wire.plugin.deploymentapi import api_pb2 as api
from piped.plugins.state import PluginState
from piped.report import metadata

PLUGIN: Final = metadata.PLUGIN
"""Key in a stage's metadata: the plugin that was chosen for it, kept for resume and rollback."""


class PluginCalls(Protocol):
    """One plugin process, as it is asked. Every call raises PluginError when it fails."""

    name: str
    """Its name in piped's configuration."""

    @property
    def state(self) -> PluginState:
        """Where it stands."""

    @property
    def was_ready(self) -> bool:
        """Has it ever been? Before that nobody knows its stages."""

    @property
    def stages_without_files(self) -> frozenset[str]:
        """Those of its stages that need no files of the commit."""

    async def wait_ready(self, limit: float, /) -> None:
        """Wait until it answers; PluginError with what is wrong when it does not in time."""

    async def determine_versions(
        self, plan: api.PlanPluginInput, /
    ) -> api.DetermineVersionsResponse:
        """Say which versions the commit delivers."""

    async def determine_strategy(
        self, plan: api.PlanPluginInput, /
    ) -> api.DetermineStrategyResponse:
        """Say how it should be deployed."""

    async def build_pipeline_sync_stages(
        self, request: api.BuildPipelineSyncStagesRequest, /
    ) -> api.BuildPipelineSyncStagesResponse:
        """Turn the plugin's part of a pipeline into stages."""

    async def build_quick_sync_stages(
        self, request: api.BuildQuickSyncStagesRequest, /
    ) -> api.BuildQuickSyncStagesResponse:
        """Say which stages deploy at once."""

    async def check_config(
        self, request: plugin_pb2.CheckConfigRequest, /
    ) -> plugin_pb2.CheckConfigResponse | None:
        """Say what is wrong in an application's options; None from one that cannot tell."""

    async def execute_stage(self, run: api.ExecutePluginInput, /) -> api.ExecuteStageResponse:
        """Run a stage to its end; cancelling waits for the end of its handler."""


class Plugins(Protocol):
    """All plugins of this piped."""

    @property
    def plugins(self) -> Mapping[str, PluginCalls]:
        """By name."""

    async def wait_settled(self, limit: float, /) -> None:
        """Wait until each has been ready or has failed once, so that all stages are known."""

    def choose(
        self, stage_name: str, /, *, wanted: str | None, declared: Collection[str]
    ) -> PluginCalls:
        """The plugin that runs a stage, by the application's choice where several offer it."""


class CommitSources(Protocol):
    """Commits, made ready for a plugin."""

    async def read(
        self, git_path: ApplicationGitPath, commit: str, *, config_filename: str
    ) -> DeploymentSource:
        """An application as a commit has it, without files."""

    def open(
        self, git_path: ApplicationGitPath, commit: str, *, config_filename: str
    ) -> AbstractAsyncContextManager[DeploymentSource]:
        """A tree of its own while the block runs; an error when the commit lacks what is needed."""

    async def list_changed_paths(
        self, git_path: ApplicationGitPath, old: str, new: str
    ) -> list[str]:
        """The files that differ between two commits, from the repository's root."""
