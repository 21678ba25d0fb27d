# SPDX-License-Identifier: Apache-2.0
"""Commands of `pipecd.push.v1`: only our agents receive them, through their watch."""

from google.protobuf.timestamp_pb2 import Timestamp

from pipecd_controlplane.store.stores import Stores
from pipecd_controlplane.usecases.requester import Requester
from pipecd_model.errors import ConflictError, NotFoundError, StateError
from pipecd_model.ids import new_id
from pipecd_wire.pipecd.push import push_pb2


async def restart_plugin(
    stores: Stores, requester: Requester, piped_id: str, plugin: str, *, at: int
) -> str:
    """Ask a piped to stop and start one of its plugins; returns the command's id.

    A call that is repeated with its idempotency key makes one command.
    """
    wanted_id = requester.request_id("RestartPlugin")
    piped = await stores.pipeds.get(requester.project_id, piped_id)
    if piped.disabled:
        raise StateError(f"the piped {piped.name!r} is disabled", hint="enable it first")
    known = [each.name for each in piped.plugins]
    if plugin not in known:
        raise NotFoundError(
            f"the piped {piped.name!r} has no plugin {plugin!r}",
            hint=f"it has {', '.join(known)}" if known else "it has not told of any",
        )
    command = push_pb2.Command(
        id=wanted_id or new_id(),
        type=push_pb2.Command.RESTART_PLUGIN,
        plugin_name=plugin,
        commander=requester.name,
        created_at=Timestamp(seconds=at),
    )
    try:
        await stores.push_commands.add(requester.project_id, piped_id, command)
    except ConflictError:
        if wanted_id is None:
            raise
    return command.id
