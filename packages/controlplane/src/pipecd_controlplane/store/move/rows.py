# SPDX-License-Identifier: Apache-2.0
"""Moves all rows from one database to another: look, copy, index, verify, mark.

Rows are copied in the order of their keys, each batch in one transaction. So the last key that the
target holds is where a move goes on that was killed, wherever that was. The source is marked before
the first row is copied: no server changes it until the move is complete or given up.
"""

from collections.abc import Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from pipecd_controlplane.store.move.decide import MoveStep, decide_step
from pipecd_controlplane.store.move.progress import MoveProgress
from pipecd_controlplane.store.move.sides import MovableDatabase, MoveTarget
from pipecd_controlplane.store.move.tables import MovedTable, TableSize, list_tables
from pipecd_controlplane.store.move.verify import Verification, verify_rows
from pipecd_controlplane.store.move_record import MoveRecord
from pipecd_model.errors import StateError
from pipecd_model.ids import new_id

MOST_UNFIT: Final = 20
"""How many rows of a table are named that the target cannot keep."""


MoveObjects: TypeAlias = Callable[[MovableDatabase], Awaitable[None]]
"""Moves what rows refer to, given the database that they are in. Raises StateError."""


async def leave_objects(_database: MovableDatabase) -> None:
    """Moves no objects: they stay where they are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowMove:
    """Both sides, opened, and who is told."""

    source: MovableDatabase
    target: MoveTarget
    progress: MoveProgress
    now: Callable[[], int]

    async def run(
        self, *, start_over: bool = False, move_objects: MoveObjects = leave_objects
    ) -> MoveStep:
        """Moves all rows, then the objects; returns where the move stood. Raises StateError.

        Where the target has all rows already, their objects are left where they are.
        """
        step = await self.plan(start_over=start_over)
        if step in {MoveStep.BEGIN, MoveStep.GO_ON}:
            tables, sizes = list_tables(), await self.look()
            if step is MoveStep.BEGIN:
                await self._begin()
            async with self.source.open_snapshot():
                await self._copy(tables, sizes)
                self.progress.say("making the indexes")
                await self.target.complete()
                self.refuse_differences(await self._verify(tables, sizes))
                await move_objects(self.source)
        if step is not MoveStep.NOTHING:
            await self._mark_complete()
        return step

    async def plan(self, *, start_over: bool = False) -> MoveStep:
        """Returns what is to be done. Raises StateError; changes nothing but for `start_over`."""
        target = await self.target.read_record() if await self.target.has_tables() else None
        if start_over:
            if target is None or not target.is_open_target:
                raise StateError(
                    f"{self.target.name} holds no move that could be started over",
                    hint="leave --start-over out",
                )
            await self.target.clear()
            target = None
        await self.target.check()
        return decide_step(
            await self.source.read_record(),
            target,
            has_rows=await self._has_rows(),
            target_name=self.target.name,
        )

    async def look(self) -> dict[str, TableSize]:
        """Returns the sizes of all tables. Raises StateError for rows that cannot be moved."""
        sizes: dict[str, TableSize] = {}
        unfit: list[str] = []
        async with self.source.open_snapshot():
            for table in list_tables():
                sizes[table.name] = await self.source.measure(table)
                unfit += await self.source.list_unfit(table, limit=MOST_UNFIT)
        for each in unfit[:MOST_UNFIT]:
            self.progress.say(each)
        if unfit:
            raise StateError(
                "there are rows that cannot be moved as they are: "
                + "; ".join(unfit[:1])
                + (" and more, see above" if len(unfit) > 1 else ""),
                hint="change or delete them with the server on the source; nothing was changed",
            )
        return sizes

    async def verify(self) -> Verification:
        """Compares both sides and changes nothing."""
        if not await self.target.has_tables():
            raise StateError(f"{self.target.name} is empty", hint="run the move first")
        sizes = await self.look()
        async with self.source.open_snapshot():
            return await self._verify(list_tables(), sizes)

    def refuse_differences(self, found: Verification) -> None:
        """Raises StateError when both sides are not the same."""
        for each in found.named:
            self.progress.say(each)
        where = "of the target is" if found.differences else "of the source was before"
        for each in found.broken_chains:
            self.progress.say(f"warning: the audit {where} broken: {each}")
        if found.differences:
            raise StateError(
                f"{found.differences} rows of {self.target.name} are not those of the source",
                hint="the target was changed by others; begin anew with --start-over",
            )

    async def _has_rows(self) -> bool:
        if not await self.target.has_tables():
            return False
        for table in list_tables():
            if await self.target.read_last_key(table) is not None:
                return True
        return False

    async def _begin(self) -> None:
        begun = MoveRecord(
            role="source",
            state="begun",
            move_id=new_id(),
            other_side=self.target.name,
            began_at=self.now(),
        )
        await self.source.write_record(begun)
        await self.target.prepare(replace(begun, role="target", other_side=self.source.name))

    async def _copy(self, tables: list[MovedTable], sizes: dict[str, TableSize]) -> None:
        self.progress.begin("copying", sizes)
        for table in tables:
            last = await self.target.read_last_key(table)
            if last is not None:
                self.progress.advance(table.name, (await self.target.measure(table)).rows)
            async with aclosing(self.source.read_batches(table, after=last)) as batches:
                async for batch in batches:
                    await self.target.insert(table, batch)
                    self.progress.advance(table.name, len(batch))
        self.progress.end()

    async def _verify(self, tables: list[MovedTable], sizes: dict[str, TableSize]) -> Verification:
        self.progress.begin("verifying", sizes)
        found = await verify_rows(self.source, self.target, tables, self.progress)
        self.progress.end()
        return found

    async def _mark_complete(self) -> None:
        """The target first: a source is not given up before a server can use the target."""
        for side in (self.target, self.source):
            record = await side.read_record()
            if record is not None:
                await side.write_record(replace(record, state="complete"))
