# SPDX-License-Identifier: Apache-2.0
"""Deployments: kept as their piped tells them, and seen by the project's people."""

from collections.abc import AsyncGenerator, Callable

from controlplane.store.changes import Kind, topic
from controlplane.store.entities import Now
from controlplane.store.stores import Stores
from controlplane.usecases import deployment_reports as reports
from controlplane.usecases.bus import Bus
from controlplane.usecases.ownership import Agent, own_application
from pipecd_model.deployment import is_completed
from pipecd_model.errors import ConfigError
from pipecd_wire.model import deployment_pb2 as pb


async def create(stores: Stores, agent: Agent, deployment: pb.Deployment, now: Now) -> None:
    """Keep a new deployment under the id its piped gave it. Raises ConflictError on a repeat."""
    application = await own_application(stores.applications, agent, deployment.application_id)
    mine = (application.project_id, application.piped_id)
    if (deployment.project_id, deployment.piped_id) != mine:
        raise ConfigError(
            "invalid request: deployment: project and piped are not those of its application"
        )
    kept = pb.Deployment()
    kept.CopyFrom(deployment)
    reports.created(kept, now())
    await stores.deployments.add(kept)


async def report(
    stores: Stores, agent: Agent, deployment_id: str, change: Callable[[pb.Deployment], None]
) -> None:
    """Let a report of the owning piped change the deployment."""

    def owned(deployment: pb.Deployment) -> None:
        agent.owns(deployment)
        change(deployment)

    await stores.deployments.update(agent.project_id, deployment_id, owned)


async def watch(
    stores: Stores, bus: Bus, project_id: str, deployment_id: str
) -> AsyncGenerator[pb.Deployment, None]:
    """The deployment now, then after each change, until it is completed."""
    with bus.listen(topic(Kind.DEPLOYMENT, deployment_id)) as listener:
        deployment = await stores.deployments.get(project_id, deployment_id)
        yield deployment
        while not is_completed(deployment.status):
            await listener.changes()
            deployment = await stores.deployments.get(project_id, deployment_id)
            yield deployment
