# SPDX-License-Identifier: Apache-2.0
"""Our own commands: what upstream's agents do not know, and only one that watches ever hears."""

from google.protobuf.timestamp_pb2 import Timestamp

from pipecd_controlplane.store.stores import Stores
from pipecd_model.errors import ConflictError, NotFoundError, StateError
from pipecd_model.ids import new_id
from pipecd_wire.pipecd.push import push_pb2


async def restart_plugin(
    stores: Stores,
    project_id: str,
    piped_id: str,
    plugin: str,
    *,
    by: str,
    at: int,
    wanted_id: str | None = None,
) -> str:
    """Let a piped stop and start one of its plugins; answers the command's id.

    With `wanted_id` the call may be repeated: it makes one command.
    """
    piped = await stores.pipeds.get(project_id, piped_id)
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
        commander=by,
        created_at=Timestamp(seconds=at),
    )
    try:
        await stores.push_commands.add(project_id, piped_id, command)
    except ConflictError:
        if wanted_id is None:
            raise
    return command.id
