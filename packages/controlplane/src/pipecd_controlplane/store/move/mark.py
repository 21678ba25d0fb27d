# SPDX-License-Identifier: Apache-2.0
"""The mark of a database in both blob stores of a move.

Where the rows move, too, both stores have it in the end: the source of the rows can be used again.
Where they stay, only the target has it, so that no server goes on with the old store by mistake.
A copy that keeps objects gets a mark of its own there: that of the source is its original's, too.
"""

from contextlib import aclosing

from pipecd_controlplane.store import schema
from pipecd_controlplane.store.blobs.blob_store import BlobsRefusedError, BlobStore
from pipecd_controlplane.store.blobs.config import BlobConfig
from pipecd_controlplane.store.blobs.mark import (
    MARK,
    has_mark,
    make_mark,
    make_mark_key,
    put_mark,
)
from pipecd_controlplane.store.blobs.open import make_blobs
from pipecd_controlplane.store.kept_objects import KEEPS_OBJECTS, YES
from pipecd_controlplane.store.move.progress import MoveProgress
from pipecd_controlplane.store.move.sides import MovableDatabase
from pipecd_controlplane.store.move.tables import MovedTable
from pipecd_model.errors import StateError


async def read_mark(database: MovableDatabase) -> str:
    """Returns the id of the mark; empty when the database has none yet."""
    return await _read_value(database, MARK)


async def has_kept_objects(database: MovableDatabase) -> bool:
    """Returns whether the database deletes no objects, as they may be another's, too."""
    return await _read_value(database, KEEPS_OBJECTS) == YES


async def _read_value(database: MovableDatabase, wanted: str) -> str:
    table = MovedTable(schema.installation)
    name, value = (table.names.index(each) for each in ("name", "value"))
    async with aclosing(database.read_batches(table, after=None)) as batches:
        async for rows in batches:
            for row in rows:
                if row[name] == wanted:
                    return str(row[value])
    return ""


async def add_mark(database: MovableDatabase, target: BlobStore) -> None:
    """Makes a mark, in the store that has the objects of the database now.

    Without it a server would take any store with these objects, also the one of before.
    """
    mark = make_mark()
    # First the object: a crash in between leaves one that nothing asks for.
    await put_mark(target, mark)
    await database.write_value(MARK, mark)


async def part_from_original(
    database: MovableDatabase,
    mark: str,
    source: BlobStore,
    target: BlobStore,
    progress: MoveProgress,
) -> None:
    """Makes the target the blob store of a copy, and leaves the source as it is to its original.

    The mark there is the original's, too. The copy gets another, so that it takes the source for a
    stranger's from now on, whichever move follows. It goes on deleting nothing: the target may be
    in use by others as well, which only the operator knows.
    """
    if not mark or not await has_mark(target, mark):
        await add_mark(database, target)
    progress.say(
        f"nothing was taken from {source.place}: the server that this copy is of may use it. Once"
        f" no other server uses {target.place}, run `pipecd take-over-objects`"
    )


async def move_mark(
    mark: str, source: BlobStore, target: BlobStore, progress: MoveProgress
) -> None:
    """Makes the target the only blob store of the database, once it has all objects.

    The mark stays in the source where that is, or may be, the target under other settings.
    """
    await put_mark(target, mark)
    try:
        is_one_store = await _is_one_store(source, target)
    except BlobsRefusedError as error:
        progress.say(
            f"warning: {source.place} does not say whether it is another store than"
            f" {target.place}, so a server may still be started with it: {error.with_hint()}"
        )
        return
    if is_one_store:
        progress.say(f"{source.place} and {target.place} are one store: its objects stay in it")
    else:
        await source.delete(make_mark_key(mark))


async def refuse_stranger(mark: str, source: BlobConfig, target: BlobConfig) -> None:
    """Raises StateError when the source is not the store of the database. It makes nothing.

    After a move the target has the mark, and the source need not have it any more.
    """
    for config in (target, source):
        if await make_blobs(config).holds_any([make_mark_key(mark)]):
            return
    stranger = make_blobs(source)
    raise StateError(
        f"{stranger.place} is not where this database has its objects: it lacks their mark",
        hint=f"{stranger.find_hint}; to go on without what it lacks, add --skip-missing",
    )


async def refuse_unmarked(mark: str, target: BlobConfig) -> None:
    """Raises StateError when a server would not take the target of a move for its store."""
    store = make_blobs(target)
    if not await store.holds_any([make_mark_key(mark)]):
        raise StateError(
            f"{store.place} lacks the mark of the database",
            hint="run the move again, it brings the mark once all objects are there",
        )


async def _is_one_store(source: BlobStore, target: BlobStore) -> bool:
    """Returns whether two settings lead to one store, which their values do not tell.

    What is written into one and found in the other is in both.
    """
    probe = make_mark()
    await put_mark(target, probe)
    try:
        return await has_mark(source, probe)
    finally:
        await target.delete(make_mark_key(probe))
