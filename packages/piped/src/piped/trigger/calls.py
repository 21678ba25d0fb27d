# SPDX-License-Identifier: Apache-2.0
"""The trigger's calls: RPCs to the control plane, published facts, outcomes of commands."""

from pipecd_model.errors import NotFoundError
from pipecd_wire.headers import TRIGGERED_DEPLOYMENT_ID
from pipecd_wire.model.application_pb2 import ApplicationDeploymentReference, ApplicationSyncState
from pipecd_wire.model.command_pb2 import Command
from pipecd_wire.model.deployment_pb2 import DEPLOYMENT_PENDING, Deployment
from pipecd_wire.pipedservice import service_pb2 as pb
from piped.controlplane.client import ControlPlane
from piped.facts import Facts, SyncChanged, Triggered
from piped.report.commands import CommandInbox, CommandOutcome


class ControlPlaneCalls:
    """Calls the control plane for queries and creation; publishes the rest as facts."""

    def __init__(self, control: ControlPlane, facts: Facts, commands: CommandInbox) -> None:
        self._control = control
        self._facts = facts
        self._commands = commands

    async def create(self, deployment: Deployment) -> None:
        """Create a deployment at the control plane; raises PipecdError when that fails."""
        request = pb.CreateDeploymentRequest(deployment=deployment)
        await self._control.call(self._control.service.CreateDeployment, request)

    async def last_triggered(self, application_id: str) -> ApplicationDeploymentReference | None:
        """Returns an application's most recently triggered deployment; None for none."""
        request = pb.GetApplicationMostRecentDeploymentRequest(
            application_id=application_id, status=DEPLOYMENT_PENDING
        )
        try:
            answer = await self._control.call(
                self._control.service.GetApplicationMostRecentDeployment, request
            )
        except NotFoundError:
            return None
        return answer.deployment

    def report_triggered(self, deployment: Deployment) -> None:
        """Publish a deployment as the last one of its application."""
        self._facts.publish(Triggered(deployment=deployment))

    def report_sync_state(self, application_id: str, state: ApplicationSyncState) -> None:
        """Publish the sync state of an application."""
        self._facts.publish(SyncChanged(application_id=application_id, state=state))

    def finish_command(self, command: Command, outcome: CommandOutcome) -> None:
        """Report the outcome of a command, and forget the command."""
        self._commands.finish(command, outcome)


def deployment_outcome(deployment_id: str) -> CommandOutcome:
    """Returns the outcome of a command that became a deployment."""
    return CommandOutcome(metadata={TRIGGERED_DEPLOYMENT_ID: deployment_id})
