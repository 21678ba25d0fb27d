# SPDX-License-Identifier: Apache-2.0
"""Seals large values: the bytes of a row become an object of the blob store.

As for logs the object is written first, then one transaction refers to it if the row is still as it
was, so of two that seal one value, or of one that seals and one that replaces, nothing is lost. The
checksum stays in place of the value.

Whoever replaces a value writes it into its row again, without any blob store: a live state that
changes all the time never becomes an object. The object of a value that was replaced is left to
those that remove orphans: a backup whose rows refer to it finds it meanwhile.
"""

from collections.abc import AsyncGenerator, Iterable
from dataclasses import dataclass
from typing import Final

from sqlalchemy import ColumnElement, Table, bindparam, select, tuple_, update

from pipecd_controlplane.store import schema
from pipecd_controlplane.store.blobs.blob_store import BlobStore, describe_blob, make_key
from pipecd_controlplane.store.database import Database, Row, Transaction, Value, View
from pipecd_controlplane.store.entities import Now
from pipecd_controlplane.store.spaces import find_space

KIND: Final = "values"
"""Which objects are values: the first part of their keys."""

REST_SECONDS: Final = 600
"""How long a live state must not have changed. Its use case relies on it: see `is_sealed`."""

STEP: Final = 100


class ValueTable:
    """The statements for a table of values."""

    def __init__(self, table: Table, *conditions: "ColumnElement[bool]") -> None:
        keys = tuple(table.primary_key.columns)
        is_same = [key == bindparam(f"this_{key.name}") for key in keys]
        self.names = tuple(key.name for key in keys)
        self.list_due = (
            select(*keys)
            .where(
                schema.LARGE_VALUES,
                tuple_(*keys) > tuple_(*(bindparam(f"this_{key.name}") for key in keys)),
                *conditions,
            )
            .order_by(*keys)
            .limit(STEP)
        )
        self.get = select(table.c.data).where(schema.LARGE_VALUES, *is_same, *conditions)
        self.refer = (
            update(table)
            .where(schema.LARGE_VALUES, *is_same, table.c.data == bindparam("this_data"))
            .values({name: bindparam(name) for name in ("data", "object_key", "size", "sha256")})
        )
        self.find_referring = select(table.c.object_key).where(
            schema.SEALED_VALUES, table.c.object_key == bindparam("this_object")
        )

    def name_key(self, key: Row) -> dict[str, Value]:
        """Returns the parameters that name a row."""
        return {f"this_{name}": value for name, value in zip(self.names, key, strict=True)}


LIVE_STATES: Final = ValueTable(
    schema.live_state, schema.live_state.c.updated_at <= bindparam("before")
)
TABLES: Final = (LIVE_STATES, ValueTable(schema.shared_object))


@dataclass(frozen=True, slots=True, kw_only=True)
class DueValue:
    """A row whose value is to be sealed."""

    table: ValueTable
    key: Row
    before: int
    """Since when a live state must be as it is."""


class ValueSealing:
    """Moves large values into the blob store."""

    def __init__(self, database: Database, now: Now) -> None:
        self._database = database
        self._now = now

    async def iterate_due(self) -> AsyncGenerator[DueValue]:
        """Yields the rows that are worth an object."""
        before = self._now() - REST_SECONDS
        for table in TABLES:
            keys: list[Row] = [("",) * len(table.names)]
            while keys:
                keys = await self._list_due(table, keys[-1], before)
                for key in keys:
                    yield DueValue(table=table, key=key, before=before)

    async def seal(self, blobs: BlobStore, due: DueValue) -> bool:
        """Moves a value into the blob store; returns whether it did.

        It does not if the value was replaced, or sealed by another. Raises what `blobs` raises.
        """
        named = due.table.name_key(due.key)

        async def read(view: View) -> Row | None:
            return await view.one(due.table.get, **named, before=due.before)

        row = await self._database.read(read)
        if row is None:
            return False
        data = bytes(row[0])
        key = make_key(KIND, now=self._now(), space=await find_space(self._database))
        ref = describe_blob(key, data)
        # Of a key that nobody else writes: under a condition the driver's second try of a request
        # that the store had fulfilled would fail, and some stores know no conditions.
        await blobs.put(key, data, replace=True)

        async def refer(transaction: Transaction) -> bool:
            changed = await transaction.run(
                due.table.refer,
                **named,
                this_data=data,
                data=bytes.fromhex(ref.sha256),
                object_key=ref.key,
                size=ref.size,
                sha256=ref.sha256,
            )
            return changed > 0

        # If this raises, the end of the commit may be unknown, so the object stays.
        is_sealed = await self._database.write(refer)
        if not is_sealed:
            await blobs.delete(key)
        return is_sealed

    async def find_unreferred(self, keys: Iterable[str]) -> list[str]:
        """Returns those of some keys that no row refers to."""
        asked = list(keys)

        async def is_referred(view: View, key: str) -> bool:
            for table in TABLES:
                if await view.one(table.find_referring, this_object=key) is not None:
                    return True
            return False

        async def work(view: View) -> list[str]:
            return [each for each in asked if not await is_referred(view, each)]

        return await self._database.read(work)

    async def _list_due(self, table: ValueTable, after: Row, before: int) -> list[Row]:
        async def work(view: View) -> list[Row]:
            found = await view.all(table.list_due, **table.name_key(after), before=before)
            return [tuple(row) for row in found]

        return await self._database.read(work)
