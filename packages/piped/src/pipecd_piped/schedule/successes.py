# SPDX-License-Identifier: Apache-2.0
"""What each application runs: its last successful deployment.

Looked up first among the deployments of this process, which are the newest; then in the state that
the control plane has pushed; the control plane is called for applications that neither has.
"""

from collections.abc import Mapping

from pipecd_model.errors import NotFoundError
from pipecd_piped.controlplane.client import ControlPlane
from pipecd_wire.model.application_pb2 import Application, ApplicationDeploymentReference
from pipecd_wire.model.deployment_pb2 import DEPLOYMENT_SUCCESS
from pipecd_wire.pipedservice.service_pb2 import GetApplicationMostRecentDeploymentRequest


class LastSuccessful:
    """Remembers the last successes, and reads unknown ones from the control plane."""

    def __init__(self, applications: Mapping[str, Application], control: ControlPlane) -> None:
        self._applications = applications
        self._control = control
        self._own: dict[str, ApplicationDeploymentReference] = {}

    async def get(self, application_id: str) -> ApplicationDeploymentReference | None:
        """Returns the last success of an application, None when there was none yet."""
        if application_id in self._own:
            return self._own[application_id]
        known = self._applications.get(application_id)
        if known is not None:
            if known.HasField("most_recently_successful_deployment"):
                return known.most_recently_successful_deployment
            return None
        try:
            answer = await self._control.call(
                self._control.service.GetApplicationMostRecentDeployment,
                GetApplicationMostRecentDeploymentRequest(
                    application_id=application_id, status=DEPLOYMENT_SUCCESS
                ),
            )
        except NotFoundError:
            return None
        return answer.deployment

    def remember(self, application_id: str, success: ApplicationDeploymentReference) -> None:
        """Replace the last success of an application."""
        self._own[application_id] = success
