# SPDX-License-Identifier: Apache-2.0
"""Labels: kept beside the entity, so that the database finds what has them."""

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
    """The same entity: generated classes share no type that says so."""
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
            # Labels of a deployment stay with its figures when it is forgotten itself.
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
        """What is as before is not written: labels hardly ever change."""
        if dict(before.labels) == dict(after.labels):
            return
        await self.remove(transaction, after.id)
        await self.add(transaction, after)

    async def remove(self, transaction: Transaction, entity_id: str) -> None:
        await transaction.run(self._delete, this_entity=entity_id)
