# SPDX-License-Identifier: Apache-2.0
"""Deployments: created and changed by reports of their piped, read and watched by users."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Final

from pipecd_controlplane.store.changes import ChangeKind, topic
from pipecd_controlplane.store.database import Transaction
from pipecd_controlplane.store.deployments import DeploymentFilter
from pipecd_controlplane.store.entities import Now
from pipecd_controlplane.store.stores import Stores
from pipecd_controlplane.usecases import (
    application_reports,
    chains,
    holds,
    limits,
    new_deployments,
    queue,
)
from pipecd_controlplane.usecases import deployment_reports as reports
from pipecd_controlplane.usecases.ownership import Agent, own_application
from pipecd_controlplane.usecases.requester import Requester
from pipecd_controlplane.usecases.shared_state import ChangeBus
from pipecd_model.deployment import is_completed
from pipecd_model.errors import ConfigError
from pipecd_wire.model import application_pb2
from pipecd_wire.model import deployment_pb2 as pb
from pipecd_wire.pipedservice import service_pb2 as pipedservice

MOST_SEARCHED: Final = 2000
"""Successful deployments of an application that are searched, the newest."""

PAGE: Final = 200


async def get(stores: Stores, requester: Requester, deployment_id: str) -> pb.Deployment:
    """Returns a deployment that the requester may see. Raises NotFoundError."""
    deployment = await stores.deployments.get(requester.project_id, deployment_id)
    requester.check("deployment", deployment_id, deployment.labels)
    return deployment


async def list_successes(
    stores: Stores, project_id: str, application_id: str
) -> AsyncIterator[pb.Deployment]:
    """Yields the successful deployments of an application, newest first, at most MOST_SEARCHED."""
    wanted = DeploymentFilter(statuses=(pb.DEPLOYMENT_SUCCESS,), application_ids=(application_id,))
    cursor, seen = "", 0
    while seen < MOST_SEARCHED:
        page = await stores.deployments.page(project_id, wanted, limit=PAGE, cursor=cursor)
        for each in page.items:
            yield each
        cursor, seen = page.cursor, seen + len(page.items)
        if not cursor or not page.items:
            return


async def create(stores: Stores, agent: Agent, deployment: pb.Deployment, now: Now) -> None:
    """Add a new deployment under the id its piped gave it. Raises ConflictError on a repeat."""
    await _get_application(stores, agent, deployment)
    await new_deployments.check_allowed(stores, agent, deployment, now)
    kept = pb.Deployment()
    kept.CopyFrom(deployment)
    reports.apply_created(kept, now())
    limits.size("deployment", kept, limits.DEPLOYMENT_BYTES)

    async def work(transaction: Transaction) -> None:
        await stores.deployments.add_in(transaction, kept)
        await application_reports.follow_created_in(stores, transaction, kept)
        await holds.follow_created_in(stores, transaction, kept)
        await stores.records.announce_in(
            transaction, agent.project_id, kept.id, piped_id=agent.piped_id
        )
        if kept.deployment_chain_id:
            await chains.follow_in(
                stores, transaction, agent.project_id, kept.deployment_chain_id, now
            )

    await stores.database.write(work)


async def create_chain(
    stores: Stores, agent: Agent, request: pipedservice.CreateDeploymentChainRequest, now: Now
) -> None:
    """Add a chain and its first deployment. Raises ConflictError on a repeat."""
    application = await _get_application(stores, agent, request.first_deployment)
    await new_deployments.check_allowed(stores, agent, request.first_deployment, now)
    await chains.create(stores, agent, application, request, now)


async def _get_application(
    stores: Stores, agent: Agent, deployment: pb.Deployment
) -> application_pb2.Application:
    """Returns the application of a new deployment. Raises unless it belongs to this piped."""
    application = await own_application(stores.applications, agent, deployment.application_id)
    mine = (application.project_id, application.piped_id)
    if (deployment.project_id, deployment.piped_id) != mine:
        raise ConfigError(
            "invalid request: deployment: project and piped are not those of its application"
        )
    return application


async def report(
    stores: Stores,
    agent: Agent,
    deployment_id: str,
    change: Callable[[pb.Deployment], None],
    now: Now,
) -> None:
    """Apply a report of the owning piped to the deployment, and to its chain."""

    was_completed = False

    def edit_owned(deployment: pb.Deployment) -> None:
        nonlocal was_completed
        agent.owns(deployment)
        was_completed = is_completed(deployment.status)
        before = deployment.ByteSize()
        change(deployment)
        if deployment.ByteSize() > before:
            limits.size("deployment", deployment, limits.DEPLOYMENT_BYTES)

    async def work(transaction: Transaction) -> None:
        deployment = await stores.deployments.update_in(
            transaction, agent.project_id, deployment_id, edit_owned
        )
        await queue.note_superseded_in(stores, transaction, deployment)
        if is_completed(deployment.status) and not was_completed:
            await holds.follow_completed_in(stores, transaction, deployment)
        if deployment.deployment_chain_id:
            await chains.follow_in(
                stores, transaction, agent.project_id, deployment.deployment_chain_id, now
            )

    await stores.database.write(work)


async def watch(
    stores: Stores, bus: ChangeBus, project_id: str, deployment_id: str
) -> AsyncGenerator[pb.Deployment, None]:
    """Yields the deployment now, then after each change, until it is completed."""
    with bus.listen(topic(ChangeKind.DEPLOYMENT, deployment_id)) as listener:
        deployment = await stores.deployments.get(project_id, deployment_id)
        yield deployment
        while not is_completed(deployment.status):
            await listener.wait_changes()
            deployment = await stores.deployments.get(project_id, deployment_id)
            yield deployment
