# SPDX-License-Identifier: Apache-2.0
"""Opens the blob store of a database, and no other one: it is known by the mark of the database.

A database of a pipecd that made no marks knows it by the objects that rows refer to, and gets its
mark then.
"""

from contextlib import suppress

from pipecd_controlplane.store.blobs.blob_store import BlobsRefusedError, BlobStore
from pipecd_controlplane.store.blobs.config import BlobConfig
from pipecd_controlplane.store.blobs.mark import MARK, MARKS, make_mark_key
from pipecd_controlplane.store.blobs.open import make_blobs
from pipecd_controlplane.store.database import Database
from pipecd_controlplane.store.installation_values import find_value
from pipecd_controlplane.store.marked_blobs import MarkedBlobs
from pipecd_controlplane.store.sealed_logs import list_some_referred
from pipecd_controlplane.store.spaces import find_space
from pipecd_model.errors import PipecdError


async def open_own_blobs(config: BlobConfig, database: Database) -> MarkedBlobs:
    """Returns the blob store of a database. Nothing is made or written in one that is refused.

    Raises BlobsRefusedError for another one, and what `open_blobs` raises.
    """
    blobs = make_blobs(config)
    mark = await find_value(database, MARK)
    referred = [] if mark else await list_some_referred(database)
    expected = mark or (await find_space(database) if referred else "")
    # The mark last: without s3:ListBucket a bucket refuses to say that an object is missing.
    if expected and not await blobs.holds_any([*referred, make_mark_key(expected)]):
        raise await _refuse(blobs, make_mark_key(expected))
    await blobs.open()
    marked = MarkedBlobs(blobs, database)
    if expected and not mark:
        await marked.claim(expected)
    return marked


async def _refuse(blobs: BlobStore, key: str) -> BlobsRefusedError:
    why = "has other marks" if await _has_marks(blobs) else "lacks their mark"
    return BlobsRefusedError(
        f"{blobs.place} is not where this database has its objects: it {why}",
        hint=f"{blobs.find_hint}; `pipecd move` brings objects to another store; to go on without"
        f" them, make {blobs.name_object(key)}",
    )


async def _has_marks(blobs: BlobStore) -> bool:
    with suppress(PipecdError):
        async for _entry in blobs.iterate(MARKS):
            return True
    return False
