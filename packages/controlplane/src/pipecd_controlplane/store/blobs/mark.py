# SPDX-License-Identifier: Apache-2.0
"""The mark of a database in its blob store: a small object, whose id the database has.

By it a database knows its store again. An empty bucket, a wrong folder, and the place of a share
that is not mounted do not have it. The databases that share a store have a mark each.
"""

import secrets
from typing import Final

from pipecd_controlplane.store.blobs.blob_store import BlobStore

MARK: Final = "blob_mark"
"""The name of its id among the values of an installation."""

MARKS: Final = "marks/"

CONTENT: Final = b"a pipecd control plane knows its objects by this one; leave it here\n"


def make_mark() -> str:
    """Returns an id that no other mark has."""
    return secrets.token_hex(8)


def make_mark_key(mark: str) -> str:
    return MARKS + mark


async def put_mark(blobs: BlobStore, mark: str) -> None:
    await blobs.put(make_mark_key(mark), CONTENT, replace=True)


async def has_mark(blobs: BlobStore, mark: str) -> bool:
    return await blobs.find(make_mark_key(mark)) is not None
