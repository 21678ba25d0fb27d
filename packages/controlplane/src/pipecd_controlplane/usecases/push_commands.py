# SPDX-License-Identifier: Apache-2.0
"""Commands of `pipecd.push.v1`: only our agents receive them, through their watch."""

from google.protobuf.timestamp_pb2 import Timestamp

from pipecd_controlplane.store.database import Transaction
from pipecd_controlplane.store.entities import Now
from pipecd_controlplane.store.push_commands import PushCommandState
from pipecd_controlplane.store.records import ReportedMessage
from pipecd_controlplane.store.stores import Stores
from pipecd_controlplane.usecases import applications
from pipecd_controlplane.usecases.ownership import Agent
from pipecd_controlplane.usecases.requester import Requester
from pipecd_controlplane.usecases.shared_state import Presence
from pipecd_controlplane.usecases.watching import check_piped_watches
from pipecd_model.errors import ConflictError, NotFoundError, StateError
from pipecd_model.ids import id_of_command, new_id
from pipecd_wire.pipecd.api import api_pb2
from pipecd_wire.pipecd.control import control_pb2
from pipecd_wire.pipecd.push import push_pb2


async def restart_plugin(
    stores: Stores,
    presence: Presence,
    requester: Requester,
    request: api_pb2.RestartPluginRequest,
    now: Now,
) -> str:
    """Ask a piped to stop and start one of its plugins; returns the command's id.

    A call that is repeated with its idempotency key makes one command.
    """
    wanted_id = requester.request_id("RestartPlugin")
    piped_id, plugin = request.piped_id, request.plugin_name
    piped = await stores.pipeds.get(requester.project_id, piped_id)
    if piped.disabled:
        raise StateError(f"the piped {piped.name!r} is disabled", hint="enable it first")
    known = [each.name for each in piped.plugins]
    if plugin not in known:
        raise NotFoundError(
            f"the piped {piped.name!r} has no plugin {plugin!r}",
            hint=f"it has {', '.join(known)}" if known else "it has not told of any",
        )
    await check_piped_watches(stores, presence, piped, "restart a plugin", now)
    command = push_pb2.Command(
        id=wanted_id or new_id(),
        type=push_pb2.Command.RESTART_PLUGIN,
        plugin_name=plugin,
        commander=requester.name,
        created_at=Timestamp(seconds=now()),
    )
    try:
        await stores.push_commands.add(requester.project_id, piped_id, command)
    except ConflictError:
        if wanted_id is None:
            raise
    return command.id


async def get(stores: Stores, requester: Requester, command_id: str) -> PushCommandState:
    """Returns a command on an application that the requester may see. Raises NotFoundError."""
    found = await stores.push_commands.find(requester.project_id, command_id)
    if found is None or not found.command.application_id:
        raise NotFoundError(f"there is no command {command_id!r}")
    try:
        await applications.get(stores, requester, found.command.application_id)
    except NotFoundError:
        raise NotFoundError(f"there is no command {command_id!r}") from None
    return found


async def record_asked_in(
    stores: Stores,
    transaction: Transaction,
    project_id: str,
    command: push_pb2.Command,
    *,
    kind: control_pb2.DeploymentRecord.Type.ValueType = (
        control_pb2.DeploymentRecord.TYPE_UNSPECIFIED
    ),
    replaced_pin: control_pb2.Pin | None = None,
) -> None:
    """Write who asked for the deployment that a command will become, and why."""

    def edit(
        known: ReportedMessage[control_pb2.DeploymentRecord] | None,
    ) -> control_pb2.DeploymentRecord | None:
        return control_pb2.DeploymentRecord(
            deployment_id=id_of_command(command.id),
            application_id=command.application_id,
            type=kind,
            by=command.commander,
            reason=command.reason,
            target_deployment_id=command.target_deployment_id,
            replaced_pin=replaced_pin,
        )

    await stores.records.change_in(transaction, project_id, id_of_command(command.id), edit)


async def record_outcome(
    stores: Stores, agent: Agent, request: push_pb2.ReportCommandHandledRequest
) -> None:
    """Store the outcome of a command of this piped; a refused roll-back takes its pin back.

    Later outcomes are ignored. Raises NotFoundError.
    """

    async def work(transaction: Transaction) -> None:
        command = await stores.push_commands.record_outcome_in(
            transaction,
            agent.project_id,
            agent.piped_id,
            request.command_id,
            succeeded=request.succeeded,
            reason=request.reason,
        )
        if command is not None and not request.succeeded:
            await _take_pin_back_in(stores, transaction, agent, command)

    await stores.database.write(work)


async def _take_pin_back_in(
    stores: Stores, transaction: Transaction, agent: Agent, command: push_pb2.Command
) -> None:
    if command.type != push_pb2.Command.ROLL_BACK or command.deployment_id:
        return
    deployment_id = id_of_command(command.id)
    record = await stores.records.find_in(transaction, agent.project_id, deployment_id)

    def edit(
        known: ReportedMessage[control_pb2.ApplicationControl] | None,
    ) -> control_pb2.ApplicationControl | None:
        if known is None or known.message.pin.deployment_id != deployment_id:
            return None
        changed = control_pb2.ApplicationControl()
        changed.CopyFrom(known.message)
        changed.ClearField("pin")
        if record is not None and record.HasField("replaced_pin"):
            changed.pin.CopyFrom(record.replaced_pin)
        return changed

    await stores.controls.change_in(
        transaction,
        agent.project_id,
        command.application_id,
        edit,
        piped_id=agent.piped_id,
    )
