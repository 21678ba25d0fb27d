# SPDX-License-Identifier: Apache-2.0
"""Reports of a piped on its applications: their state, their deployments, their configuration."""

from collections.abc import Callable, Iterable

from pipecd_controlplane.store.database import Transaction
from pipecd_controlplane.store.stores import Stores
from pipecd_controlplane.usecases.ownership import Agent
from pipecd_model.errors import DeniedError, NotFoundError, PipecdError
from pipecd_wire.model import application_pb2, common_pb2, deployment_pb2


async def report(
    stores: Stores,
    agent: Agent,
    application_id: str,
    edit: Callable[[application_pb2.Application], None],
) -> None:
    """Apply a report of the owning piped to the application."""

    def edit_owned(application: application_pb2.Application) -> None:
        agent.owns(application)
        edit(application)

    await stores.applications.update(agent.project_id, application_id, edit_owned)


async def take_configurations(
    stores: Stores, agent: Agent, found: Iterable[common_pb2.ApplicationInfo]
) -> None:
    """Sets name, description and labels of applications as they are in git.

    An application that is refused does not affect the others: it may have been deleted, or assigned
    to another piped, since the report was written. Raises the first refusal after all others are
    stored.
    """
    refused: list[PipecdError] = []

    async def work(transaction: Transaction) -> None:
        refused.clear()
        for info in found:
            try:
                await stores.applications.update_in(
                    transaction, agent.project_id, info.id, _edit(agent, info)
                )
            except (NotFoundError, DeniedError) as error:
                refused.append(error)

    await stores.database.write(work)
    if refused:
        raise refused[0]


def _edit(
    agent: Agent, info: common_pb2.ApplicationInfo
) -> Callable[[application_pb2.Application], None]:
    def edit(application: application_pb2.Application) -> None:
        agent.owns(application)
        application.name = info.name
        application.description = info.description
        application.labels.clear()
        application.labels.update(info.labels)

    return edit


def remember_deployment(
    application: application_pb2.Application,
    status: deployment_pb2.DeploymentStatus.ValueType,
    reference: application_pb2.ApplicationDeploymentReference,
) -> None:
    """Stores the reference to the deployment that was triggered, or that succeeded."""
    if status == deployment_pb2.DEPLOYMENT_SUCCESS:
        application.most_recently_successful_deployment.CopyFrom(reference)
    elif status == deployment_pb2.DEPLOYMENT_PENDING:
        application.most_recently_triggered_deployment.CopyFrom(reference)


def is_outdated(
    application: application_pb2.Application,
    status: deployment_pb2.DeploymentStatus.ValueType,
    reference: application_pb2.ApplicationDeploymentReference,
) -> bool:
    """Returns whether a newer deployment than the reported one was triggered already.

    The report of one may come when the next one is created already, and its piped may die before
    it reports that: the first must not hide the second, see `follow_created_in`.
    """
    last = application.most_recently_triggered_deployment
    return status == deployment_pb2.DEPLOYMENT_PENDING and reference.started_at < last.started_at


async def follow_created_in(
    stores: Stores, transaction: Transaction, deployment: deployment_pb2.Deployment
) -> None:
    """Remember a new deployment as the last one of its application.

    Its piped reports that as well, but may die before it does. A piped that did not know of this
    deployment would deploy the same change again with the next commit.
    """
    reference = application_pb2.ApplicationDeploymentReference(
        deployment_id=deployment.id,
        trigger=deployment.trigger,
        summary=deployment.summary,
        versions=deployment.versions,
        config_filename=deployment.git_path.config_filename,
        started_at=deployment.created_at,
        completed_at=deployment.completed_at,
    )
    await stores.applications.update_in(
        transaction,
        deployment.project_id,
        deployment.application_id,
        lambda application: remember_deployment(
            application, deployment_pb2.DEPLOYMENT_PENDING, reference
        ),
    )


def most_recent_deployment(
    application: application_pb2.Application, status: deployment_pb2.DeploymentStatus.ValueType
) -> application_pb2.ApplicationDeploymentReference:
    """Returns the last deployment that was triggered (PENDING) or that succeeded (SUCCESS).

    Raises NotFoundError when there is none, which a piped expects at its first run.
    """
    reference = application_pb2.ApplicationDeploymentReference()
    if status == deployment_pb2.DEPLOYMENT_SUCCESS:
        reference = application.most_recently_successful_deployment
    elif status == deployment_pb2.DEPLOYMENT_PENDING:
        reference = application.most_recently_triggered_deployment
    if not reference.deployment_id:
        name = deployment_pb2.DeploymentStatus.Name(status)
        raise NotFoundError(
            f"the application {application.name!r} has no deployment with the status {name}"
        )
    return reference
