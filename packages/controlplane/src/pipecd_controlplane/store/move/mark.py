# SPDX-License-Identifier: Apache-2.0
"""Brings the mark of a database to the blob store that its objects are moved to."""

from contextlib import aclosing

from pipecd_controlplane.store import schema
from pipecd_controlplane.store.blobs.blob_store import BlobStore
from pipecd_controlplane.store.blobs.mark import MARK, make_mark_key, put_mark
from pipecd_controlplane.store.move.sides import MovableDatabase
from pipecd_controlplane.store.move.tables import MovedTable


async def read_mark(database: MovableDatabase) -> str:
    """Returns the id of the mark; empty when the database has none yet."""
    table = MovedTable(schema.installation)
    name, value = (table.names.index(each) for each in ("name", "value"))
    async with aclosing(database.read_batches(table, after=None)) as batches:
        async for rows in batches:
            for row in rows:
                if row[name] == MARK:
                    return str(row[value])
    return ""


async def move_mark(
    mark: str, source: BlobStore, target: BlobStore, *, stays_in_source: bool
) -> None:
    """Makes the target the blob store of the database, once it has all objects.

    The mark stays in the source for a database there that could be used again.
    """
    await put_mark(target, mark)
    if not stays_in_source:
        await source.delete(make_mark_key(mark))
