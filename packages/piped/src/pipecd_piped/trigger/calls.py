# SPDX-License-Identifier: Apache-2.0
"""The trigger's calls: RPCs to the control plane, published facts, outcomes of commands."""

import time
from collections.abc import Callable, Sequence

from pipecd_model.config import ApplicationConfig
from pipecd_model.errors import NotFoundError
from pipecd_piped.controlplane.client import ControlPlane
from pipecd_piped.facts import Facts, SyncChanged, Triggered
from pipecd_piped.report.commands import AnyCommand, CommandInbox, CommandOutcome
from pipecd_piped.report.sync_states import SyncStates
from pipecd_wire.headers import TRIGGERED_DEPLOYMENT_ID
from pipecd_wire.model.application_pb2 import (
    Application,
    ApplicationDeploymentReference,
    ApplicationSyncState,
)
from pipecd_wire.model.deployment_pb2 import DEPLOYMENT_PENDING, Deployment
from pipecd_wire.pipedservice import service_pb2 as pb


class ControlPlaneCalls:
    """Calls the control plane for queries and creation; publishes the rest as facts."""

    def __init__(
        self,
        control: ControlPlane,
        facts: Facts,
        commands: CommandInbox,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._control = control
        self._facts = facts
        self._commands = commands
        self._sync_states = SyncStates(self._publish_sync_state, clock)

    async def create(self, deployment: Deployment) -> None:
        """Create a deployment at the control plane; raises PipecdError when that fails."""
        request = pb.CreateDeploymentRequest(deployment=deployment)
        await self._control.call(self._control.service.CreateDeployment, request)

    async def create_chain(
        self,
        deployment: Deployment,
        matchers: Sequence[pb.CreateDeploymentChainRequest.ApplicationMatcher],
    ) -> None:
        """Create a chain with its first deployment; raises PipecdError when that fails."""
        request = pb.CreateDeploymentChainRequest(first_deployment=deployment, matchers=matchers)
        await self._control.call(self._control.service.CreateDeploymentChain, request)

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
        self._sync_states.report(application_id, state)

    def report_waiting(self, application: Application, sentence: str) -> None:
        """Publish which commit waits and for whom, if that is new; empty when none does."""
        self._sync_states.report_waiting(application, sentence)

    def take_file(self, application: Application, config: ApplicationConfig) -> None:
        """Publish which settings of an application's file have no effect, if that is new."""
        self._sync_states.take_file(application, config)

    def set_note(self, application_id: str, note: str) -> None:
        """Publish a sentence beside the sync state of an application; an empty one removes it."""
        self._sync_states.set_note(application_id, note)

    async def read_deployment(self, deployment_id: str) -> Deployment:
        """Returns a deployment as the control plane has it; raises PipecdError."""
        return await self._control.read_deployment(deployment_id)

    def forget(self, application_id: str) -> None:
        """Forget an application that this piped no longer has."""
        self._sync_states.forget(application_id)

    def _publish_sync_state(self, application_id: str, state: ApplicationSyncState) -> None:
        self._facts.publish(SyncChanged(application_id=application_id, state=state))

    def finish_command(self, command: AnyCommand, outcome: CommandOutcome) -> None:
        """Report the outcome of a command, and forget the command."""
        self._commands.finish(command, outcome)


def deployment_outcome(deployment_id: str) -> CommandOutcome:
    """Returns the outcome of a command that became a deployment."""
    return CommandOutcome(metadata={TRIGGERED_DEPLOYMENT_ID: deployment_id})
