# SPDX-License-Identifier: Apache-2.0
"""Labels: stored in tables of their own, so that the database finds entities by them."""

from collections.abc import Mapping
from typing import Any, Protocol

from google.protobuf.message import Message
from sqlalchemy import Table, bindparam, delete, insert

from pipecd_controlplane.store.database import Transaction


class HasLabels(Protocol):
    """The fields that every entity with labels has."""

    id: str
    project_id: str
    created_at: int

    @property
    def labels(self) -> Mapping[str, str]: ...


def to_labelled(entity: Message) -> HasLabels:
    """Returns the same entity, typed: generated classes share no type with these fields."""
    fields: Any = entity
    checked: HasLabels = fields
    return checked


class Labels:
    """The labels of one kind of entity."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self._insert = insert(table)
        self._delete = delete(table).where(table.c.entity_id == bindparam("this_entity"))

    async def add(self, transaction: Transaction, entity: HasLabels) -> None:
        if entity.labels:
            # Labels of a deployment stay with its outcome when the deployment itself is purged.
            await self.remove(transaction, entity.id)
        for key, value in entity.labels.items():
            await transaction.run(
                self._insert,
                entity_id=entity.id,
                key=key,
                project_id=entity.project_id,
                value=value,
                created_at=entity.created_at,
            )

    async def replace(self, transaction: Transaction, before: HasLabels, after: HasLabels) -> None:
        """Writes the labels if they have changed, which is rare."""
        if dict(before.labels) == dict(after.labels):
            return
        await self.remove(transaction, after.id)
        await self.add(transaction, after)

    async def remove(self, transaction: Transaction, entity_id: str) -> None:
        await transaction.run(self._delete, this_entity=entity_id)
