# SPDX-License-Identifier: Apache-2.0
"""Commands: kept, and through the bus at their piped at once.

The rules of who may ask what are `pipecd_model.command`'s.
"""

import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

from pipecd_controlplane.store.commands import Commands
from pipecd_model.errors import ConflictError, StateError
from pipecd_model.ids import new_id
from pipecd_wire.model import command_pb2, piped_pb2
from pipecd_wire.model import deployment_pb2 as pb

NAMESPACE: Final = uuid.UUID("6e9a1d2c-6f0e-5c1b-9f55-1c2f6f3f9a4e")


def id_of_request(project_id: str, key_id: str, method: str, idempotency_key: str) -> str | None:
    """The id that a call makes: always the same for the same idempotency key, None without one."""
    if not idempotency_key:
        return None
    return str(uuid.uuid5(NAMESPACE, "\n".join((project_id, key_id, method, idempotency_key))))


async def issue(
    store: Commands,
    project_id: str,
    wanted_id: str | None,
    make: Callable[[datetime], command_pb2.Command],
) -> command_pb2.Command:
    """Keep a new command; a repeated call gets the one it made before, whatever happened since."""
    if wanted_id is not None and (known := await store.find(project_id, wanted_id)):
        return known
    command = make(datetime.now(UTC))
    if wanted_id is not None:
        command.id = wanted_id
    try:
        await store.add(command)
    except ConflictError:
        return await store.get(project_id, command.id)  # the same call, at the same moment
    return command


def restart_piped(piped: piped_pb2.Piped, *, by: str, at: datetime) -> command_pb2.Command:
    """Let the piped end itself; whatever supervises it starts it anew."""
    seconds = int(at.timestamp())
    return command_pb2.Command(
        id=new_id(),
        type=command_pb2.Command.RESTART_PIPED,
        piped_id=piped.id,
        project_id=piped.project_id,
        commander=by,
        restart_piped=command_pb2.Command.RestartPiped(piped_id=piped.id),
        created_at=seconds,
        updated_at=seconds,
    )


def waiting_for_approval(deployment: pb.Deployment) -> str:
    """The id of the one stage that waits now. Raises StateError when none or several do."""
    waiting = [
        stage
        for stage in deployment.stages
        if stage.status == pb.STAGE_RUNNING
        and stage.available_operation == pb.MANUAL_OPERATION_APPROVE
    ]
    if not waiting:
        raise StateError(f"no stage of the deployment {deployment.id!r} waits for approval now")
    if len(waiting) > 1:
        raise StateError(
            f"{len(waiting)} stages of the deployment {deployment.id!r} wait for approval",
            hint=f"name one of {', '.join(stage.id for stage in waiting)}",
        )
    return waiting[0].id
