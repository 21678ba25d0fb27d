# SPDX-License-Identifier: Apache-2.0
"""What the trigger needs from the rest of piped, as small roles."""

from collections.abc import Sequence
from typing import Protocol

from pipecd_model.config import ApplicationConfig
from pipecd_model.errors import PipecdError
from pipecd_wire.model.application_pb2 import ApplicationDeploymentReference, ApplicationSyncState
from pipecd_wire.model.command_pb2 import Command
from pipecd_wire.model.common_pb2 import ApplicationGitPath
from pipecd_wire.model.deployment_pb2 import Deployment
from piped.git import Repository
from piped.report.commands import CommandOutcome


class Configs(Protocol):
    """Application files, read and parsed."""

    async def load_all(
        self, repository: Repository, commit: str, git_paths: Sequence[ApplicationGitPath], /
    ) -> Sequence[ApplicationConfig | PipecdError]:
        """Many applications of one commit, in their order; what is wrong with one is its outcome.

        Raises GitError when the repository itself cannot be read.
        """


class Calls(Protocol):
    """What the trigger asks and tells the control plane. What is told arrives, sooner or later."""

    async def create(self, deployment: Deployment, /) -> None:
        """Make a deployment known.

        Raises ConflictError when it is known already, UnavailableError when it is worth a retry.
        """

    async def last_triggered(self, application_id: str, /) -> ApplicationDeploymentReference | None:
        """The deployment of an application that was triggered last; None when there was none."""

    def report_triggered(self, deployment: Deployment, /) -> None:
        """Report a deployment as the last one of its application."""

    def report_sync_state(self, application_id: str, state: ApplicationSyncState, /) -> None:
        """Report the sync state of an application."""

    def finish_command(self, command: Command, outcome: CommandOutcome, /) -> None:
        """A command became a deployment, or nothing: its outcome is reported, and it is gone."""
