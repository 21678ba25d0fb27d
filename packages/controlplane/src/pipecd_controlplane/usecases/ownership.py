# SPDX-License-Identifier: Apache-2.0
"""A piped may access only its own applications and their deployments."""

from dataclasses import dataclass

from pipecd_controlplane.store.applications import Applications
from pipecd_controlplane.store.deployments import Deployments
from pipecd_model.errors import DeniedError
from pipecd_wire.model import application_pb2, deployment_pb2


@dataclass(frozen=True, slots=True, kw_only=True)
class Agent:
    """An authenticated piped."""

    project_id: str
    piped_id: str
    peer: str = ""
    """The address it calls from; empty when it is not known."""
    lease_epoch: int | None = None
    """The epoch of the lease it works under, 0 while it waits; None without lease support."""

    def owns(self, thing: application_pb2.Application | deployment_pb2.Deployment) -> None:
        """Raises DeniedError when the entity belongs to another piped."""
        if thing.piped_id != self.piped_id:
            noun = type(thing).__name__.lower()
            raise DeniedError(f"the {noun} {thing.id!r} belongs to another piped")


async def own_application(
    applications: Applications, agent: Agent, application_id: str
) -> application_pb2.Application:
    application = await applications.get(agent.project_id, application_id)
    agent.owns(application)
    return application


async def own_deployment(
    deployments: Deployments, agent: Agent, deployment_id: str
) -> deployment_pb2.Deployment:
    deployment = await deployments.get(agent.project_id, deployment_id)
    agent.owns(deployment)
    return deployment
