# SPDX-License-Identifier: Apache-2.0
"""Deletes old rows in small batches, so that other writers do not wait long.

Each call deletes one batch. It returns how many rows it found, or for deployments where the next
batch begins.
"""

from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import ColumnElement, Table, bindparam, delete, select, tuple_

from pipecd_controlplane.store import schema
from pipecd_controlplane.store.database import Database, Transaction, View
from pipecd_controlplane.store.labels import Labels
from pipecd_wire.model import application_pb2, command_pb2

STEP: Final = 100
"""Rows that are deleted in one transaction."""

DEPLOYMENT: Final = schema.deployment
COMMAND: Final = schema.command

ENDED: Final = (
    select(
        DEPLOYMENT.c.completed_at,
        DEPLOYMENT.c.id,
        DEPLOYMENT.c.application_id,
    )
    .where(
        DEPLOYMENT.c.completed == 1,
        DEPLOYMENT.c.completed_at < bindparam("before"),
        tuple_(DEPLOYMENT.c.completed_at, DEPLOYMENT.c.id)
        > tuple_(bindparam("after_at"), bindparam("after_id")),
    )
    .order_by(DEPLOYMENT.c.completed_at, DEPLOYMENT.c.id)
    .limit(STEP)
)
APPLICATION: Final = (
    select(schema.application.c.data)
    .where(schema.application.c.id == bindparam("application_id"))
    # What it names must not become another one before the deployment is gone.
    .with_for_update(read=True)
)
# The heads of logs before their chunks, in the order of those that append and seal.
HEADS_OF_DEPLOYMENT: Final = (
    delete(DEPLOYMENT).where(DEPLOYMENT.c.id == bindparam("this_deployment")),
    delete(schema.stage_log).where(
        schema.stage_log.c.deployment_id == bindparam("this_deployment")
    ),
)
OF_DEPLOYMENT: Final = (
    delete(schema.stage_log_chunk).where(
        schema.stage_log_chunk.c.deployment_id == bindparam("this_deployment")
    ),
    delete(schema.stage_log_object).where(
        schema.stage_log_object.c.deployment_id == bindparam("this_deployment")
    ),
    delete(schema.deployment_record).where(
        schema.deployment_record.c.deployment_id == bindparam("this_deployment")
    ),
)
OBJECTS: Final = select(schema.stage_log_object.c.object_key).where(
    schema.stage_log_object.c.deployment_id == bindparam("this_deployment")
)
OUTCOME: Final = select(schema.deployment_outcome.c.deployment_id).where(
    schema.deployment_outcome.c.deployment_id == bindparam("this_deployment")
)
HANDLED: Final = (
    select(COMMAND.c.id)
    .where(
        COMMAND.c.status != command_pb2.COMMAND_NOT_HANDLED_YET,
        COMMAND.c.created_at < bindparam("before"),
    )
    .limit(STEP)
)
OUTPUTS: Final = (
    select(schema.command_output.c.command_id)
    .join(COMMAND, COMMAND.c.id == schema.command_output.c.command_id)
    .where(COMMAND.c.created_at < bindparam("before"))
    .limit(STEP)
)
WAITING: Final = (
    select(COMMAND.c.project_id, COMMAND.c.id)
    .where(
        COMMAND.c.status == command_pb2.COMMAND_NOT_HANDLED_YET,
        COMMAND.c.created_at < bindparam("before"),
    )
    .limit(STEP)
)
OVER: Final = (schema.deployment_chain.c.completed == 1,)


def _is_old(table: Table) -> "ColumnElement[bool]":
    return table.c.updated_at < bindparam("before")


def _older(table: Table, *conditions: "ColumnElement[bool]") -> Any:
    return select(table.c.id).where(*conditions, _is_old(table)).limit(STEP)


def _delete(table: Table, *conditions: "ColumnElement[bool]") -> Any:
    """Returns a statement that deletes a row if it is still old.

    The row may have been changed since it was found.
    """
    return delete(table).where(table.c.id == bindparam("this_row"), *conditions, _is_old(table))


EVENTS: Final = _older(schema.event)
TRACES: Final = _older(schema.deployment_trace)
CHAINS: Final = _older(schema.deployment_chain, *OVER)

DELETE_EVENT: Final = _delete(schema.event)
DELETE_TRACE: Final = _delete(schema.deployment_trace)
DELETE_CHAIN: Final = _delete(schema.deployment_chain, *OVER)
DELETE_COMMAND: Final = delete(COMMAND).where(COMMAND.c.id == bindparam("this_row"))
DELETE_OUTPUT: Final = delete(schema.command_output).where(
    schema.command_output.c.command_id == bindparam("this_row")
)

DELETED: Final = select(schema.application.c.id).where(
    schema.application.c.deleted == 1, schema.application.c.updated_at < bindparam("before")
)
OF_DELETED: Final = tuple(
    delete(table).where(table.c.application_id.in_(DELETED))
    for table in (schema.live_state, schema.analysis_result, schema.shared_object)
)

DEPLOYMENT_LABELS: Final = Labels(schema.deployment_label)
EVENT_LABELS: Final = Labels(schema.event_label)


@dataclass(frozen=True, slots=True, kw_only=True)
class PurgePosition:
    """Up to which deployment the purge has come."""

    completed_at: int = -1
    id: str = ""
    objects: tuple[str, ...] = ()
    """Keys in the blob store that no row refers to any more, for the caller to delete."""


class Purge:
    """Deletes rows that are older than a time."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def deployments(self, *, before: int, place: PurgePosition) -> PurgePosition | None:
        """Deletes a batch of deployments, with their logs. Returns None when there are no more.

        Objects of the logs are the caller's to delete, after this: no row refers to nothing.
        The last triggered and the last successful deployment of an application stay.
        """

        async def work(transaction: Transaction) -> PurgePosition | None:
            rows = await transaction.all(
                ENDED, before=before, after_at=place.completed_at, after_id=place.id
            )
            objects: list[str] = []
            for _, deployment_id, application_id in rows:
                if deployment_id in await _find_named(transaction, application_id):
                    continue
                for statement in HEADS_OF_DEPLOYMENT:
                    await transaction.run(statement, this_deployment=deployment_id)
                # Nobody seals a log without a head: these are all objects there will ever be.
                found = await transaction.all(OBJECTS, this_deployment=deployment_id)
                objects += [key for (key,) in found]
                for statement in OF_DEPLOYMENT:
                    await transaction.run(statement, this_deployment=deployment_id)
                if await transaction.one(OUTCOME, this_deployment=deployment_id) is None:
                    await DEPLOYMENT_LABELS.remove(transaction, deployment_id)
            if not rows:
                return None
            return PurgePosition(completed_at=rows[-1][0], id=rows[-1][1], objects=tuple(objects))

        return await self._database.write(work)

    async def events(self, *, before: int) -> int:
        return await self._step(EVENTS, DELETE_EVENT, before, labels=EVENT_LABELS)

    async def traces(self, *, before: int) -> int:
        return await self._step(TRACES, DELETE_TRACE, before)

    async def chains(self, *, before: int) -> int:
        """Deletes a batch of completed chains."""
        return await self._step(CHAINS, DELETE_CHAIN, before)

    async def commands(self, *, before: int) -> int:
        """Deletes a batch of handled commands. Their outputs are deleted sooner, by `outputs`."""
        return await self._step(HANDLED, DELETE_COMMAND, before)

    async def outputs(self, *, before: int) -> int:
        return await self._step(OUTPUTS, DELETE_OUTPUT, before)

    async def records_of_deleted_applications(self, *, before: int) -> None:
        """Deletes live states, analysis results and shared objects of deleted applications.

        The rows of the applications stay, marked as deleted.
        """

        async def work(transaction: Transaction) -> None:
            for statement in OF_DELETED:
                await transaction.run(statement, before=before)

        await self._database.write(work)

    async def waiting_commands(self, *, before: int) -> list[tuple[str, str]]:
        """Returns project and id of a batch of unhandled commands from before a time."""

        async def work(view: View) -> list[tuple[str, str]]:
            return [(row[0], row[1]) for row in await view.all(WAITING, before=before)]

        return await self._database.read(work)

    async def _step(
        self, old: Any, remove: Any, before: int, *, labels: Labels | None = None
    ) -> int:
        async def work(transaction: Transaction) -> int:
            rows = await transaction.all(old, before=before)
            for (row_id,) in rows:
                removed = await transaction.run(remove, this_row=row_id, before=before)
                if removed and labels is not None:
                    await labels.remove(transaction, row_id)
            return len(rows)

        return await self._database.write(work)


async def _find_named(transaction: Transaction, application_id: str) -> set[str]:
    """Returns the ids of the deployments that an application refers to; none for a deleted one."""
    row = await transaction.one(APPLICATION, application_id=application_id)
    if row is None:
        return set()
    application = application_pb2.Application.FromString(row[0])
    if application.deleted:
        return set()
    return {
        application.most_recently_successful_deployment.deployment_id,
        application.most_recently_triggered_deployment.deployment_id,
    }
