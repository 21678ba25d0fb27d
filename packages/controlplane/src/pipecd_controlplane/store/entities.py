# SPDX-License-Identifier: Apache-2.0
"""The base of all kinds of entities: get, add and update one message, always within a project."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from google.protobuf.message import Message
from sqlalchemy import Table, bindparam, select, update

from pipecd_controlplane.store.auditing import note_change
from pipecd_controlplane.store.changes import Change, ChangeKind
from pipecd_controlplane.store.database import Database, StaleReadError, Transaction, Value, View
from pipecd_controlplane.store.labels import Labels, to_labelled
from pipecd_controlplane.store.list_statements import ListQuery
from pipecd_controlplane.store.listing import DrivingFilters, Filter, FilteredList
from pipecd_controlplane.store.paging import PAGE_BYTES, Page, fill
from pipecd_model.errors import ConflictError, NotFoundError

M = TypeVar("M", bound=Message)

Now = Callable[[], int]
"""The time in Unix seconds, as all entities keep it."""


class _Fields(Protocol):
    """The fields that every entity has."""

    id: str
    project_id: str
    updated_at: int


class RowFilter(Protocol):
    """Which entities of a project are wanted; one implementation per kind of entity."""

    def rows(self) -> Filter: ...


class Entities(ABC, Generic[M]):
    """Messages of one type, each a row. Subclasses give the type and the columns to find it by."""

    noun: ClassVar[str]
    kind: ClassVar[ChangeKind]
    table: ClassVar[Table]
    message: type[M]

    def __init_subclass__(cls) -> None:
        table = cls.table
        cls._get = select(table.c.data, table.c.version).where(
            table.c.id == bindparam("id"), table.c.project_id == bindparam("project_id")
        )
        cls._updates = {}

    _get: ClassVar[Any]
    _updates: ClassVar[dict[frozenset[str], Any]]
    _list: ClassVar[ListQuery]
    """How pages of these entities are found; only for what is listed in pages."""
    _labels: ClassVar[Labels | None] = None
    """Where the labels of these entities are kept; None for what has none."""

    def __init__(self, database: Database, now: Now) -> None:
        self._database = database
        self._now = now
        self._driving = DrivingFilters()

    @abstractmethod
    def columns(self, entity: M) -> dict[str, Value]:
        """Returns the values of the columns that it is found by, beside its id and project."""

    def piped_of(self, entity: M) -> str:
        """Returns the piped that changes are delivered to; empty when no piped needs them."""
        return str(getattr(entity, "piped_id", ""))

    async def write_related(self, transaction: Transaction, before: M | None, after: M) -> None:
        """Updates rows that belong to the entity: labels. `before` is None for a new one."""
        if self._labels is None:
            return
        if before is None:
            await self._labels.add(transaction, to_labelled(after))
        else:
            await self._labels.replace(transaction, to_labelled(before), to_labelled(after))

    async def find(self, project_id: str, entity_id: str) -> M | None:
        row = await self._database.one(self._get, id=entity_id, project_id=project_id)
        return self._parse(row[0]) if row else None

    async def find_in(self, view: View, project_id: str, entity_id: str) -> M | None:
        row = await view.one(self._get, id=entity_id, project_id=project_id)
        return self._parse(row[0]) if row else None

    async def get(self, project_id: str, entity_id: str) -> M:
        """Returns the entity. Raises NotFoundError, also for an entity of another project."""
        entity = await self.find(project_id, entity_id)
        if entity is None:
            raise self.missing_error(entity_id)
        return entity

    async def page(
        self,
        project_id: str,
        wanted: RowFilter,
        *,
        limit: int,
        cursor: str,
        max_bytes: int = PAGE_BYTES,
    ) -> Page[M]:
        """Returns a page of the wanted entities, newest first; `limit` 0 is as many as fit."""

        async def work(view: View) -> Page[M]:
            return await self.page_in(
                view, project_id, wanted, limit=limit, cursor=cursor, max_bytes=max_bytes
            )

        return await self._database.read(work)

    async def page_in(
        self,
        view: View,
        project_id: str,
        wanted: RowFilter,
        *,
        limit: int,
        cursor: str,
        max_bytes: int = PAGE_BYTES,
    ) -> Page[M]:
        found = FilteredList(self._list, view, project_id, wanted.rows(), self._driving)
        return await fill(
            found.read,
            parse=self._parse,
            limit=limit,
            cursor=cursor,
            max_bytes=max_bytes,
        )

    async def add(self, entity: M) -> None:
        """Adds an entity. Raises ConflictError when the id is taken."""

        async def work(transaction: Transaction) -> None:
            await self.add_in(transaction, entity)

        await self._database.write(work)

    async def update(self, project_id: str, entity_id: str, change: Callable[[M], None]) -> M:
        """Changes one entity and returns it; `change` may raise to refuse.

        Nothing is written when the entity stays the same. Raises NotFoundError.
        """

        async def work(transaction: Transaction) -> M:
            return await self.update_in(transaction, project_id, entity_id, change)

        return await self._database.write(work)

    async def add_in(self, transaction: Transaction, entity: M) -> None:
        fields = _fields(entity)
        added = await transaction.insert_if_absent(
            self.table,
            id=fields.id,
            project_id=fields.project_id,
            version=1,
            data=entity.SerializeToString(),
            **self.columns(entity),
        )
        if not added:
            raise ConflictError(f"the {self.noun} {fields.id!r} exists already")
        note_change(transaction, self.noun, fields.id, None, entity)
        await self.write_related(transaction, None, entity)
        transaction.publish(self._change(entity, self.piped_of(entity)))

    async def update_in(
        self,
        transaction: Transaction,
        project_id: str,
        entity_id: str,
        change: Callable[[M], None],
    ) -> M:
        row = await transaction.one(self._get, id=entity_id, project_id=project_id)
        if row is None:
            raise self.missing_error(entity_id)
        before, version = self._parse(row[0]), row[1]
        after = self._parse(row[0])
        change(after)
        if after == before:
            return before
        _fields(after).updated_at = self._now()
        note_change(transaction, self.noun, entity_id, before, after)
        await self._replace(transaction, before, after, version)
        await self.write_related(transaction, before, after)
        for piped_id in {self.piped_of(before), self.piped_of(after)}:
            transaction.publish(self._change(after, piped_id))
        self._publish_labels(transaction, before, after)
        return after

    def _publish_labels(self, transaction: Transaction, before: M, after: M) -> None:
        """Publishes a change of the labels by its own kind.

        Labels decide who may see an entity: listeners that only check rights need no other changes.
        """
        if self._labels is None:
            return
        was, now = to_labelled(before), to_labelled(after)
        if dict(was.labels) != dict(now.labels):
            transaction.publish(
                Change(kind=ChangeKind.LABELS, id=now.id, project_id=now.project_id)
            )

    async def _replace(self, transaction: Transaction, before: M, after: M, version: int) -> None:
        """Writes the entity. Raises StaleReadError when its version has changed since it was read.

        Only columns that changed are set, so that the other indexes are not touched.
        """
        was, now = self.columns(before), self.columns(after)
        changed = {name: value for name, value in now.items() if was[name] != value}
        touched = await transaction.run(
            self._update(frozenset(changed)),
            this_id=_fields(after).id,
            this_version=version,
            version=version + 1,
            data=after.SerializeToString(),
            **changed,
        )
        if not touched:
            raise StaleReadError

    @classmethod
    def _update(cls, changed: frozenset[str]) -> Any:
        if changed not in cls._updates:
            c = cls.table.c
            # The names of an update's own parameters are its columns'; these two need others.
            cls._updates[changed] = (
                update(cls.table)
                .where(c.id == bindparam("this_id"), c.version == bindparam("this_version"))
                .values({name: bindparam(name) for name in {"version", "data", *changed}})
            )
        return cls._updates[changed]

    def _change(self, entity: M, piped_id: str) -> Change:
        fields = _fields(entity)
        return Change(kind=self.kind, id=fields.id, project_id=fields.project_id, piped_id=piped_id)

    def _parse(self, data: bytes) -> M:
        return self.message.FromString(data)

    def missing_error(self, entity_id: str) -> NotFoundError:
        return NotFoundError(f"there is no {self.noun} {entity_id!r}")


def _fields(entity: Message) -> _Fields:
    # Every message of a table has these fields; generated classes share no type that says so.
    fields: Any = entity
    checked: _Fields = fields
    return checked
