# SPDX-License-Identifier: Apache-2.0
"""Forces a race: what another process commits between the first read of a unit and its write."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from sqlalchemy import Executable, Table

from pipecd_controlplane.store.changes import Change
from pipecd_controlplane.store.database import Database, Row, Transaction, Value, View
from pipecd_controlplane.store.stores import Stores, stores

T = TypeVar("T")

Rival = Callable[[Stores], Awaitable[None]]
"""What the other process does."""


class WithinTransaction:
    """A database whose units are part of one transaction: for what a rival writes."""

    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction

    async def one(self, statement: Executable, **parameters: Value) -> Row | None:
        return await self._transaction.one(statement, **parameters)

    async def read(self, work: Callable[[View], Awaitable[T]]) -> T:
        return await work(self._transaction)

    async def write(self, work: Callable[[Transaction], Awaitable[T]]) -> T:
        return await work(self._transaction)


class InterruptedTransaction:
    """A transaction after whose first read somebody else writes, as READ COMMITTED allows."""

    def __init__(self, transaction: Transaction, rival: Callable[[], Awaitable[None]]) -> None:
        self._transaction = transaction
        self._rival: Callable[[], Awaitable[None]] | None = rival

    async def one(self, statement: Executable, **parameters: Value) -> Row | None:
        row = await self._transaction.one(statement, **parameters)
        await self._interrupt()
        return row

    async def all(self, statement: Executable, **parameters: Value) -> list[Row]:
        rows = await self._transaction.all(statement, **parameters)
        await self._interrupt()
        return rows

    async def run(self, statement: Executable, **parameters: Value) -> int:
        return await self._transaction.run(statement, **parameters)

    async def insert_if_absent(self, table: Table, **values: Value) -> bool:
        return await self._transaction.insert_if_absent(table, **values)

    async def upsert(self, table: Table, replaced: tuple[str, ...], **values: Value) -> None:
        await self._transaction.upsert(table, replaced, **values)

    def publish(self, change: Change) -> None:
        self._transaction.publish(change)

    async def _interrupt(self) -> None:
        rival, self._rival = self._rival, None
        if rival is not None:
            await rival()


class RacingDatabase:
    """A database whose next unit is overtaken by a rival, and then run again after it."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.rival: Rival | None = None
        self.runs = 0
        """How often the unit that was overtaken has run."""

    async def one(self, statement: Executable, **parameters: Value) -> Row | None:
        return await self._database.one(statement, **parameters)

    async def read(self, work: Callable[[View], Awaitable[T]]) -> T:
        return await self._database.read(work)

    async def write(self, work: Callable[[Transaction], Awaitable[T]]) -> T:
        rival, self.rival = self.rival, None
        if rival is None:
            return await self._database.write(work)

        async def overtaken(transaction: Transaction) -> T:
            self.runs += 1

            async def overtake() -> None:
                await rival(stores(WithinTransaction(transaction), lambda: 0))

            if self.runs == 1:
                return await work(InterruptedTransaction(transaction, overtake))
            # The first run was rolled back; what the rival has committed stays.
            await overtake()
            return await work(transaction)

        return await self._database.write(overtaken)
