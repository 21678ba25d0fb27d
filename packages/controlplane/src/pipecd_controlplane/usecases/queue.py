# SPDX-License-Identifier: Apache-2.0
"""The queues of all agents of a project, and what superseded a deployment."""

from pipecd_controlplane.store.database import Transaction, View
from pipecd_controlplane.store.records import ReportedMessage
from pipecd_controlplane.store.stores import Stores
from pipecd_controlplane.usecases.requester import Requester
from pipecd_model.errors import NotFoundError
from pipecd_model.queueing import SUPERSEDED_BY_KEY
from pipecd_wire.model import deployment_pb2 as model
from pipecd_wire.pipecd.api import api_pb2 as pb
from pipecd_wire.pipecd.control.control_pb2 import DeploymentRecord


async def list_queue(
    stores: Stores, requester: Requester, piped_id: str
) -> list[pb.ListQueueResponse.Item]:
    """Returns what the agents have queued, of one agent if `piped_id` is given.

    A deployment that is completed meanwhile, or that the requester may not see, is left out.
    """
    queues = await stores.queues.list_by_project(requester.project_id)
    found = []
    for each_id, queue in sorted(queues.items()):
        if piped_id in {"", each_id}:
            open_ones = await _list_open(stores, requester.project_id, each_id)
            for queued in queue.message.queued:
                deployment = open_ones.get(queued.deployment_id)
                if deployment is not None and _may_see(requester, deployment):
                    item = pb.ListQueueResponse.Item(
                        application_id=deployment.application_id,
                        application_name=deployment.application_name,
                        piped_id=each_id,
                        commit_hash=deployment.trigger.commit.hash,
                        status=deployment.status,
                        queued=queued,
                    )
                    item.created_at.FromSeconds(deployment.created_at)
                    found.append(item)
    return found


async def _list_open(stores: Stores, project_id: str, piped_id: str) -> dict[str, model.Deployment]:
    async def read(view: View) -> list[model.Deployment]:
        return await stores.deployments.all_not_completed_in(view, project_id, piped_id)

    return {each.id: each for each in await stores.database.read(read)}


def _may_see(requester: Requester, deployment: model.Deployment) -> bool:
    try:
        requester.check("deployment", deployment.id, deployment.labels)
    except NotFoundError:
        return False
    return True


async def note_superseded_in(
    stores: Stores, transaction: Transaction, deployment: model.Deployment
) -> None:
    """Keep in the record of a deployment which newer one took its place, once its agent says so."""
    newer = deployment.metadata_v2.shared.keyValues.get(SUPERSEDED_BY_KEY)
    if newer is None:
        return

    def edit(known: ReportedMessage[DeploymentRecord] | None) -> DeploymentRecord | None:
        record = DeploymentRecord(
            deployment_id=deployment.id, application_id=deployment.application_id
        )
        if known is not None:
            record.CopyFrom(known.message)
        if record.superseded_by == newer:
            return None
        record.superseded_by = newer
        return record

    await stores.records.change_in(
        transaction, deployment.project_id, deployment.id, edit, piped_id=deployment.piped_id
    )
