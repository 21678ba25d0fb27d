# SPDX-License-Identifier: Apache-2.0
"""Protocols of the parts of piped that the trigger depends on."""

from collections.abc import Sequence
from typing import Protocol

from pipecd_model.config import ApplicationConfig
from pipecd_model.errors import PipecdError
from pipecd_piped.git import Repository
from pipecd_piped.report.commands import AnyCommand, CommandOutcome
from pipecd_wire.model.application_pb2 import (
    Application,
    ApplicationDeploymentReference,
    ApplicationSyncState,
)
from pipecd_wire.model.common_pb2 import ApplicationGitPath
from pipecd_wire.model.deployment_pb2 import Deployment
from pipecd_wire.pipedservice.service_pb2 import CreateDeploymentChainRequest


class Configs(Protocol):
    """Reads and parses application files."""

    async def load_all(
        self, repository: Repository, commit: str, git_paths: Sequence[ApplicationGitPath], /
    ) -> Sequence[ApplicationConfig | PipecdError]:
        """Returns a configuration, or the error, for each path of one commit, in their order.

        Raises GitError when the repository itself cannot be read.
        """


class Calls(Protocol):
    """The trigger's calls and reports to the control plane; reports are queued and retried."""

    async def create(self, deployment: Deployment, /) -> None:
        """Create a deployment at the control plane.

        Raises ConflictError when it exists already, UnavailableError when a retry may succeed.
        """

    async def create_chain(
        self,
        deployment: Deployment,
        matchers: Sequence[CreateDeploymentChainRequest.ApplicationMatcher],
        /,
    ) -> None:
        """Create a chain with its first deployment; raises as `create`."""

    async def last_triggered(self, application_id: str, /) -> ApplicationDeploymentReference | None:
        """Returns an application's most recently triggered deployment; None for none."""

    def report_triggered(self, deployment: Deployment, /) -> None:
        """Report a deployment as the last one of its application."""

    def report_sync_state(self, application_id: str, state: ApplicationSyncState, /) -> None:
        """Report the sync state of an application."""

    def report_waiting(self, application: Application, sentence: str, /) -> None:
        """Report which commit waits and for whom; empty when none does. Repeats are not sent."""

    def take_file(self, application: Application, config: ApplicationConfig, /) -> None:
        """Report which settings of an application's file have no effect, if that is new."""

    def set_note(self, application_id: str, note: str, /) -> None:
        """Show a sentence beside the sync state of an application; an empty one removes it."""

    async def read_deployment(self, deployment_id: str, /) -> Deployment:
        """Returns a deployment as the control plane has it; raises PipecdError."""

    def forget(self, application_id: str, /) -> None:
        """Forget an application that this piped no longer has."""

    def finish_command(self, command: AnyCommand, outcome: CommandOutcome, /) -> None:
        """Report the outcome of a command, and forget the command."""
