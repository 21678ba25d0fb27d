# SPDX-License-Identifier: Apache-2.0
"""Hold and pin of applications: changed by deployments, and released by people.

The rules are `pipecd_model.holds`; here they are applied in the transaction of what causes them.
"""

from google.protobuf.timestamp_pb2 import Timestamp

from pipecd_controlplane.store.database import Transaction, View
from pipecd_controlplane.store.entities import Now
from pipecd_controlplane.store.records import ReportedMessage
from pipecd_controlplane.store.stores import Stores
from pipecd_controlplane.usecases import applications, limits, push_commands
from pipecd_controlplane.usecases.requester import Requester
from pipecd_controlplane.usecases.shared_state import Presence
from pipecd_controlplane.usecases.watching import check_watches
from pipecd_model import holds
from pipecd_model.errors import NotFoundError, StateError
from pipecd_model.ids import id_of_command, new_id
from pipecd_wire.model.application_pb2 import Application
from pipecd_wire.model.deployment_pb2 import Deployment
from pipecd_wire.pipecd.api import api_pb2
from pipecd_wire.pipecd.control import control_pb2 as pb
from pipecd_wire.pipecd.push import push_pb2


async def follow_created_in(
    stores: Stores, transaction: Transaction, deployment: Deployment
) -> None:
    """Apply to hold and pin that a deployment was created."""

    def edit(known: ReportedMessage[pb.ApplicationControl] | None) -> pb.ApplicationControl | None:
        return holds.apply_created(known.message, deployment) if known else None

    await stores.controls.change_in(
        transaction,
        deployment.project_id,
        deployment.application_id,
        edit,
        piped_id=deployment.piped_id,
    )


async def follow_completed_in(
    stores: Stores, transaction: Transaction, deployment: Deployment
) -> None:
    """Apply to hold and pin that a deployment was completed."""
    record = await stores.records.find_in(transaction, deployment.project_id, deployment.id)
    application = await stores.applications.find_in(
        transaction, deployment.project_id, deployment.application_id
    )
    newest = (application or Application()).most_recently_triggered_deployment

    def edit(known: ReportedMessage[pb.ApplicationControl] | None) -> pb.ApplicationControl | None:
        control = known.message if known else pb.ApplicationControl()
        return holds.apply_completed(control, deployment, record, newest)

    await stores.controls.change_in(
        transaction,
        deployment.project_id,
        deployment.application_id,
        edit,
        piped_id=deployment.piped_id,
    )


async def get_control(
    stores: Stores, requester: Requester, application_id: str
) -> pb.ApplicationControl:
    """Returns hold, pin and freeze of an application; empty when it has none."""
    await applications.get(stores, requester, application_id)
    found = await stores.controls.find(requester.project_id, application_id)
    return found.message if found else pb.ApplicationControl(application_id=application_id)


async def list_controls(stores: Stores, requester: Requester) -> list[pb.ApplicationControl]:
    """Returns those of all applications that the requester may see and that have one."""

    async def work(view: View) -> list[pb.ApplicationControl]:
        return await stores.controls.list_by_project_in(view, requester.project_id)

    found = []
    for control in await stores.database.read(work):
        if holds.is_empty(control):
            continue
        try:
            await applications.get(stores, requester, control.application_id)
        except NotFoundError:
            continue
        found.append(control)
    return found


async def release_hold(
    stores: Stores,
    presence: Presence,
    requester: Requester,
    request: api_pb2.ReleaseHoldRequest,
    now: Now,
) -> api_pb2.ReleaseHoldResponse:
    """Ask the piped to deploy the held commit again, under the requester's name.

    A call that is repeated with its idempotency key makes one command.
    """
    limits.text("reason", request.reason, limits.CONTEXT)
    application = await applications.get(stores, requester, request.application_id)
    command_id = requester.request_id("ReleaseHold") or new_id()
    if known := await stores.push_commands.find(requester.project_id, command_id):
        return _describe_released(known.command)
    await check_watches(stores, presence, application, "deploy a held commit again", now)
    command = push_pb2.Command(
        id=command_id,
        type=push_pb2.Command.RELEASE_HOLD,
        application_id=application.id,
        commander=requester.name,
        created_at=Timestamp(seconds=now()),
        reason=request.reason,
    )

    async def work(transaction: Transaction) -> None:
        def edit(known: ReportedMessage[pb.ApplicationControl] | None) -> pb.ApplicationControl:
            if known is None or not known.message.HasField("hold"):
                raise StateError(
                    f"no commit of the application {application.name!r} is held",
                    hint="`pipectl why` says what it waits for",
                )
            command.commit_hash = known.message.hold.commit_hash
            command.target_deployment_id = known.message.hold.deployment_id
            changed = pb.ApplicationControl()
            changed.CopyFrom(known.message)
            changed.ClearField("hold")
            return changed

        await stores.controls.change_in(
            transaction,
            requester.project_id,
            application.id,
            edit,
            piped_id=application.piped_id,
        )
        await push_commands.record_asked_in(stores, transaction, requester.project_id, command)
        await stores.push_commands.add_in(
            transaction, requester.project_id, application.piped_id, command
        )

    await stores.database.write(work)
    return _describe_released(command)


def _describe_released(command: push_pb2.Command) -> api_pb2.ReleaseHoldResponse:
    return api_pb2.ReleaseHoldResponse(
        command_id=command.id,
        deployment_id=id_of_command(command.id),
        commit_hash=command.commit_hash,
    )


async def release_pin(stores: Stores, requester: Requester, application_id: str) -> pb.Pin:
    """End the pin of an application; its piped then decides about the newest commit."""
    application = await applications.get(stores, requester, application_id)
    pin = pb.Pin()

    async def work(transaction: Transaction) -> None:
        def edit(known: ReportedMessage[pb.ApplicationControl] | None) -> pb.ApplicationControl:
            if known is None or not known.message.HasField("pin"):
                raise StateError(f"the application {application.name!r} is not pinned")
            pin.CopyFrom(known.message.pin)
            changed = pb.ApplicationControl()
            changed.CopyFrom(known.message)
            changed.ClearField("pin")
            return changed

        await stores.controls.change_in(
            transaction,
            requester.project_id,
            application_id,
            edit,
            piped_id=application.piped_id,
        )

    await stores.database.write(work)
    return pin
