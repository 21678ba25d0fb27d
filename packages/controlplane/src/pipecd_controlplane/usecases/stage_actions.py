# SPDX-License-Identifier: Apache-2.0
"""Who did what to a deployment and its stages: written in the transaction of the command."""

from google.protobuf.timestamp_pb2 import Timestamp

from pipecd_controlplane.store.database import Transaction
from pipecd_controlplane.store.records import ReportedMessage
from pipecd_controlplane.store.stores import Stores
from pipecd_controlplane.usecases import deployments, limits
from pipecd_controlplane.usecases.commands import RecordIn
from pipecd_controlplane.usecases.requester import Requester
from pipecd_wire.model.command_pb2 import Command
from pipecd_wire.model.deployment_pb2 import Deployment
from pipecd_wire.pipecd.control import control_pb2 as pb

MOST_ACTIONS = 500
"""Of one deployment; the oldest of more are dropped. People do a handful of things."""

MOST_REFUSALS = 50
"""Of one deployment; later ones are in the log of the agent alone."""


async def get_record(
    stores: Stores, requester: Requester, deployment_id: str
) -> pb.DeploymentRecord:
    """Returns what is known of a deployment beside it. Raises NotFoundError."""
    await deployments.get(stores, requester, deployment_id)
    found = await stores.records.find(requester.project_id, deployment_id)
    return found.message if found else pb.DeploymentRecord(deployment_id=deployment_id)


def recorder(
    stores: Stores,
    deployment: Deployment,
    kind: pb.StageAction.Kind.ValueType,
    comment: str,
) -> RecordIn:
    """Returns what records that the sender of a command did this, and what they said.

    Raises ConfigError for a comment that is too long.
    """
    limits.text("comment", comment, limits.CONTEXT)

    async def record_in(transaction: Transaction, command: Command) -> None:
        action = pb.StageAction(
            kind=kind,
            stage_id=command.stage_id,
            by=command.commander,
            at=Timestamp(seconds=command.created_at),
            comment=comment,
            command_id=command.id,
        )
        await append_in(stores, transaction, deployment, action)

    return record_in


async def append_in(
    stores: Stores, transaction: Transaction, deployment: Deployment, action: pb.StageAction
) -> None:
    """Append an action to the record of a deployment; one that is there already is left."""

    def edit(known: ReportedMessage[pb.DeploymentRecord] | None) -> pb.DeploymentRecord | None:
        record = pb.DeploymentRecord(
            deployment_id=deployment.id, application_id=deployment.application_id
        )
        if known is not None:
            record.CopyFrom(known.message)
        if any(each.command_id == action.command_id for each in record.actions):
            return None
        record.actions.append(action)
        del record.actions[:-MOST_ACTIONS]
        return record

    await stores.records.change_in(
        transaction, deployment.project_id, deployment.id, edit, piped_id=deployment.piped_id
    )


async def note_refusal(stores: Stores, deployment: Deployment, sentence: str) -> None:
    """Keep in the record of a deployment that something which was to follow it was refused.

    A refusal that is repeated is kept once.
    """

    def edit(known: ReportedMessage[pb.DeploymentRecord] | None) -> pb.DeploymentRecord | None:
        record = pb.DeploymentRecord(
            deployment_id=deployment.id, application_id=deployment.application_id
        )
        if known is not None:
            record.CopyFrom(known.message)
        if sentence in record.refusals or len(record.refusals) >= MOST_REFUSALS:
            return None
        record.refusals.append(sentence)
        return record

    async def work(transaction: Transaction) -> None:
        await stores.records.change_in(
            transaction, deployment.project_id, deployment.id, edit, piped_id=deployment.piped_id
        )

    await stores.database.write(work)
