# SPDX-License-Identifier: Apache-2.0
"""Compares both sides of a move row by row, and verifies the chains of the audit in the target."""

from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Final

from google.protobuf.message import DecodeError

from pipecd_controlplane.store import schema
from pipecd_controlplane.store.database import Row
from pipecd_controlplane.store.move.progress import MoveProgress
from pipecd_controlplane.store.move.sides import MovableDatabase
from pipecd_controlplane.store.move.tables import Key, MovedTable
from pipecd_model.audit import ChainVerifier
from pipecd_model.errors import StateError
from pipecd_wire.pipecd.api.api_pb2 import AuditRecord

MOST_DIFFERENCES: Final = 20
"""How many rows are named; the others are counted."""


@dataclass(slots=True)
class Verification:
    """What was compared, and what differs."""

    rows: int = 0
    differences: int = 0
    named: list[str] = field(default_factory=list)
    broken_chains: list[str] = field(default_factory=list)
    """Chains of the audit that do not hold, each in words."""

    def add_differences(self, differences: list[str]) -> None:
        self.differences += len(differences)
        self.named += differences[: MOST_DIFFERENCES - len(self.named)]


async def verify_rows(
    source: MovableDatabase,
    target: MovableDatabase,
    tables: list[MovedTable],
    progress: MoveProgress,
) -> Verification:
    """Compares every column of every row."""
    found = Verification()
    for table in tables:
        chains = AuditChains(table) if table.name == schema.audit_record.name else None
        await _verify_table(source, target, table, found, progress, chains)
        if chains is not None:
            found.broken_chains = chains.finish()
    return found


async def _verify_table(
    source: MovableDatabase,
    target: MovableDatabase,
    table: MovedTable,
    found: Verification,
    progress: MoveProgress,
    chains: "AuditChains | None",
) -> None:
    after: Key | None = None
    async with aclosing(source.read_batches(table, after=None)) as batches:
        async for batch in batches:
            through = table.key_of(batch[-1])
            held = await target.read_range(
                table, after=after, through=through, limit=len(batch) + 1
            )
            if held != batch:
                found.add_differences(find_differences(table, batch, held))
            if chains is not None:
                chains.add(held)
            found.rows += len(batch)
            progress.advance(table.name, len(batch))
            after = through
    extra = await target.read_range(table, after=after, through=None, limit=MOST_DIFFERENCES)
    found.add_differences([_describe_extra(table, row) for row in extra])


def find_differences(table: MovedTable, wanted: list[Row], held: list[Row]) -> list[str]:
    """Returns how the rows of a range differ, each in words that show no value but keys."""
    by_key = {table.key_of(row): row for row in held}
    # There are more than there should be: what is behind the last one was not read.
    end = table.key_of(held[-1]) if len(held) > len(wanted) else None
    found: list[str] = []
    for row in wanted:
        key = table.key_of(row)
        if end is not None and key > end:
            continue
        other = by_key.pop(key, None)
        if other is None:
            found.append(f"{table.describe_key(key)} is missing in the target")
        elif other != row:
            names = [
                name
                for name, left, right in zip(table.names, row, other, strict=True)
                if left != right
            ]
            found.append(f"{table.describe_key(key)} differs in {', '.join(names)}")
    return found + [_describe_extra(table, row) for row in by_key.values()]


def _describe_extra(table: MovedTable, row: Row) -> str:
    return f"{table.describe_key(table.key_of(row))} is in the target only"


class AuditChains:
    """Verifies the chain of each project, from rows in the order of their keys."""

    def __init__(self, table: MovedTable) -> None:
        self._project_place = table.names.index("project_id")
        self._data_place = table.names.index("data")
        self._project_id: str | None = None
        self._verifier = ChainVerifier()
        self._broken: list[str] = []

    def add(self, rows: list[Row]) -> None:
        for row in rows:
            if row[self._project_place] != self._project_id:
                self._end_chain()
                self._project_id = row[self._project_place]
                self._verifier = ChainVerifier()
            try:
                self._verifier.add(AuditRecord.FromString(row[self._data_place]))
            except (DecodeError, StateError) as error:
                self._broken.append(f"{self._project_id}: {error}")

    def finish(self) -> list[str]:
        """Returns what is wrong with chains, each in words."""
        self._end_chain()
        return self._broken

    def _end_chain(self) -> None:
        self._verifier.finish()
        if (broken := self._verifier.broken) is not None:
            self._broken.append(
                f"{self._project_id}: record {broken.sequence} does not fit: {broken.reason}"
            )
