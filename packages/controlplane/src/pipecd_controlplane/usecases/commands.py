# SPDX-License-Identifier: Apache-2.0
"""Commands: stored once per call, and sent to their piped at once through the bus.

The rules of who may ask what are `pipecd_model.command`'s.
"""

import uuid
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Final

from pipecd_controlplane.store.database import Transaction
from pipecd_controlplane.store.stores import Stores
from pipecd_controlplane.usecases.requester import Requester
from pipecd_model.errors import ConflictError
from pipecd_wire.model import command_pb2

RecordIn = Callable[[Transaction, command_pb2.Command], Awaitable[None]]
"""Writes what belongs to a new command, in its transaction."""

NAMESPACE: Final = uuid.UUID("6e9a1d2c-6f0e-5c1b-9f55-1c2f6f3f9a4e")


def id_of_request(project_id: str, key_id: str, method: str, idempotency_key: str) -> str | None:
    """Returns the id of what a call makes, or None without an idempotency key.

    It is the same for the same key of the same caller on the same RPC, and only then.
    """
    if not idempotency_key:
        return None
    return str(uuid.uuid5(NAMESPACE, "\n".join((project_id, key_id, method, idempotency_key))))


async def issue(
    stores: Stores,
    requester: Requester,
    method: str,
    make: Callable[[datetime], command_pb2.Command],
    record_in: RecordIn | None = None,
) -> command_pb2.Command:
    """Add the command that a call of `method` asks for; `record_in` writes more with it.

    A call that is repeated with its idempotency key returns the command it made before, whatever
    happened since.
    """
    store, project_id = stores.commands, requester.project_id
    wanted_id = requester.request_id(method)
    if wanted_id is not None and (known := await store.find(project_id, wanted_id)):
        return known
    command = make(datetime.now(UTC))
    if wanted_id is not None:
        command.id = wanted_id

    async def work(transaction: Transaction) -> None:
        await store.add_in(transaction, command)
        if record_in is not None:
            await record_in(transaction, command)

    try:
        await stores.database.write(work)
    except ConflictError:
        return await store.get(project_id, command.id)  # the same call, at the same moment
    return command
