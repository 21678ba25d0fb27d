# SPDX-License-Identifier: Apache-2.0
"""How long things are kept, and the timed jobs that purge them."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from pipecd_controlplane.ops.jobs import Job
from pipecd_controlplane.ops.objects import delete_objects
from pipecd_controlplane.store.audit import OK
from pipecd_controlplane.store.database import Transaction
from pipecd_controlplane.store.entities import Now
from pipecd_controlplane.store.kept_objects import keeps_objects
from pipecd_controlplane.store.purge import PurgePosition
from pipecd_controlplane.store.stage_logs import MAX_BYTES
from pipecd_controlplane.store.stores import Stores
from pipecd_controlplane.usecases import chains
from pipecd_controlplane.usecases.audit_actors import SERVER, describe_act
from pipecd_model.audit import CUT
from pipecd_wire.model import command_pb2

DAY: Final = 86_400

OUTPUT_SECONDS: Final = 2 * DAY
"""How long the output of a command is kept: plan previews, which are read within a day."""

UNHANDLED_SECONDS: Final = DAY
"""How long a command waits for its piped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """Days that things are kept once they are over (0: for ever), and the size of a stage log."""

    deployments: int = 365
    events: int = 90
    commands: int = 30
    insights: int = 1100
    audit: int = 1100
    stage_log_bytes: int = MAX_BYTES


FOR_A_YEAR: Final = Retention()


def list_retention_jobs(stores: Stores, retention: Retention, now: Now) -> list[Job]:
    """Returns the jobs that purge old records and time out commands that no piped took."""

    async def look_at_chains() -> None:
        await chains.update_unfinished(stores, now)

    async def time_out() -> None:
        await time_out_commands(stores, now)

    async def forget() -> None:
        await purge(stores, retention, now)

    return [
        Job(name="chains", every=30, run=look_at_chains),
        Job(name="unhandled-commands", every=600, run=time_out, rest=300),
        Job(name="retention", every=3600, run=forget, rest=600),
    ]


async def time_out_commands(stores: Stores, now: Now) -> None:
    """Sets the commands that no piped has taken for a day to COMMAND_TIMEOUT."""

    def edit(command: command_pb2.Command) -> None:
        if command.status == command_pb2.COMMAND_NOT_HANDLED_YET:
            command.status = command_pb2.COMMAND_TIMEOUT
            command.handled_at = now()

    while waiting := await stores.purge.waiting_commands(before=now() - UNHANDLED_SECONDS):
        for project_id, command_id in waiting:
            await stores.commands.update(project_id, command_id, edit)


async def purge(stores: Stores, retention: Retention, now: Now) -> None:
    """Deletes everything older than its retention, in small steps."""
    at = now()
    await _repeat(lambda: stores.purge.outputs(before=at - OUTPUT_SECONDS))
    if retention.commands:
        await _repeat(lambda: stores.purge.commands(before=at - retention.commands * DAY))
    if retention.events:
        await _repeat(lambda: stores.purge.events(before=at - retention.events * DAY))
    if retention.deployments:
        before = at - retention.deployments * DAY
        blobs = None if await keeps_objects(stores.database) else stores.blobs
        place: PurgePosition | None = PurgePosition()
        while place is not None:
            place = await stores.purge.deployments(before=before, place=place)
            if place is not None:
                await delete_objects(blobs, place.objects)
        await stores.purge.records_of_deleted_applications(before=before)
        await _repeat(lambda: stores.purge.traces(before=before))
        await _repeat(lambda: stores.purge.chains(before=before))
    if retention.insights:
        await _repeat(lambda: _forget_outcomes(stores, at - retention.insights * DAY))

    if retention.audit:
        for project_id in await stores.audit.list_heads():
            await _cut_audit(stores, project_id, at, days=retention.audit)


async def _cut_audit(stores: Stores, project_id: str, at: int, *, days: int) -> None:
    """Removes records that are too old, once they are so for a day: each cut is a record too."""
    before = at - days * DAY
    if not await stores.audit.has_older(project_id, before=before - DAY):
        return
    act = describe_act(project_id, SERVER, CUT, at)
    act.reason = f"records are kept for {days} days"
    while await stores.audit.cut(act.make_record(OK), before=before):
        pass


async def _forget_outcomes(stores: Stores, before: int) -> int:
    async def work(transaction: Transaction) -> int:
        return await stores.outcomes.purge_in(transaction, before=before)

    return await stores.database.write(work)


async def _repeat(step: Callable[[], Awaitable[int]]) -> None:
    while await step():
        pass
