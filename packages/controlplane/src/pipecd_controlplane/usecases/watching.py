# SPDX-License-Identifier: Apache-2.0
"""Tell agents that watch, and obey commands of our own, from upstream's, which do not."""

from pipecd_controlplane.store.entities import Now
from pipecd_controlplane.store.stores import Stores
from pipecd_controlplane.usecases import pipeds
from pipecd_controlplane.usecases.shared_state import Presence
from pipecd_model.errors import StateError
from pipecd_wire.model.application_pb2 import Application
from pipecd_wire.model.piped_pb2 import Piped


async def is_watching(
    stores: Stores, presence: Presence, project_id: str, piped_id: str, now: Now
) -> bool:
    """Returns whether the agent of a piped is one that watches, or was when it was last here.

    One that has never held a lease is upstream's. So is one that reports although the instance
    that held the lease has said goodbye.
    """
    if await presence.find_connected([piped_id]):
        return True
    lease = await stores.leases.get(project_id, piped_id)
    if lease.epoch == 0:
        return False
    if lease.instance_id:
        return True
    return piped_id not in await pipeds.find_online(stores, presence, project_id, now)


async def check_watches(
    stores: Stores, presence: Presence, application: Application, what: str, now: Now
) -> None:
    """Raises StateError unless the agent of an application can do `what`."""
    project_id, piped_id = application.project_id, application.piped_id
    if await is_watching(stores, presence, project_id, piped_id, now):
        return
    piped = await stores.pipeds.find(project_id, piped_id)
    name = piped.name if piped is not None else piped_id
    raise _cannot(f"the piped {name!r} of the application {application.name!r}", what)


async def check_piped_watches(
    stores: Stores, presence: Presence, piped: Piped, what: str, now: Now
) -> None:
    """Raises StateError unless the agent of a piped can do `what`."""
    if not await is_watching(stores, presence, piped.project_id, piped.id, now):
        raise _cannot(f"the piped {piped.name!r}", what)


def _cannot(who: str, what: str) -> StateError:
    return StateError(
        f"{who} cannot {what}",
        hint="it has never been connected, or is one of upstream's, which do not know this",
    )
