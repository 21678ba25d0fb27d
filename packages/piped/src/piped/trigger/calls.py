# SPDX-License-Identifier: Apache-2.0
"""The trigger's calls, made through piped's client and its outbox."""

import time
from collections.abc import Callable, Mapping
from typing import Final

from pipecd_model.errors import NotFoundError
from pipecd_wire.headers import TRIGGERED_DEPLOYMENT_ID
from pipecd_wire.model.application_pb2 import ApplicationDeploymentReference, ApplicationSyncState
from pipecd_wire.model.command_pb2 import (
    COMMAND_FAILED,
    COMMAND_SUCCEEDED,
    Command,
    CommandStatus,
)
from pipecd_wire.model.deployment_pb2 import DEPLOYMENT_PENDING, Deployment
from pipecd_wire.pipedservice import service_pb2 as pb
from piped.controlplane.client import ControlPlane
from piped.report.outbox import Outbox
from piped.report.statuses import reference

"""Where a handled command says which deployment it became; pipectl waits for it."""

REASON: Final = "reason"


class ControlPlaneCalls:
    """Questions go to the control plane at once; reports wait their turn in the outbox."""

    def __init__(
        self, control: ControlPlane, outbox: Outbox, clock: Callable[[], float] = time.time
    ) -> None:
        self._control = control
        self._outbox = outbox
        self._clock = clock

    async def create(self, deployment: Deployment) -> None:
        """Make a deployment known."""
        request = pb.CreateDeploymentRequest(deployment=deployment)
        await self._control.ask(self._control.service.CreateDeployment, request)

    async def last_triggered(self, application_id: str) -> ApplicationDeploymentReference | None:
        """The deployment of an application that was triggered last; None when there was none."""
        request = pb.GetApplicationMostRecentDeploymentRequest(
            application_id=application_id, status=DEPLOYMENT_PENDING
        )
        try:
            answer = await self._control.ask(
                self._control.service.GetApplicationMostRecentDeployment, request
            )
        except NotFoundError:
            return None
        return answer.deployment

    def report_triggered(self, deployment: Deployment) -> None:
        """Report a deployment as the last one of its application."""
        self._outbox.put(
            deployment.application_id,
            "ReportApplicationMostRecentDeployment",
            pb.ReportApplicationMostRecentDeploymentRequest(
                application_id=deployment.application_id,
                status=DEPLOYMENT_PENDING,
                deployment=reference(deployment),
            ),
        )

    def report_sync_state(self, application_id: str, state: ApplicationSyncState) -> None:
        """Report the sync state of an application."""
        self._outbox.put(
            application_id,
            "ReportApplicationSyncState",
            pb.ReportApplicationSyncStateRequest(application_id=application_id, state=state),
        )

    def report_handled(self, command: Command, deployment_id: str) -> None:
        """Report that a command became a deployment."""
        self._answer(command, COMMAND_SUCCEEDED, {TRIGGERED_DEPLOYMENT_ID: deployment_id})

    def report_refused(self, command: Command, reason: str) -> None:
        """Report that a command became nothing, and why."""
        self._answer(command, COMMAND_FAILED, {REASON: reason})

    def _answer(
        self, command: Command, status: CommandStatus.ValueType, metadata: Mapping[str, str]
    ) -> None:
        self._outbox.put(
            command.application_id or command.id,
            "ReportCommandHandled",
            pb.ReportCommandHandledRequest(
                command_id=command.id,
                status=status,
                metadata=metadata,
                handled_at=max(1, int(self._clock())),
            ),
        )
