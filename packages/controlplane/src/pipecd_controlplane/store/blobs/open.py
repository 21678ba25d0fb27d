# SPDX-License-Identifier: Apache-2.0
"""Opens the blob store that a configuration names: the one place that knows which there are."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pipecd_controlplane.store.blobs.blob_store import BlobStore
from pipecd_controlplane.store.blobs.config import BlobConfig, S3Bucket
from pipecd_controlplane.store.blobs.folder import FolderBlobs

if TYPE_CHECKING:
    from pipecd_controlplane.store.blobs.s3 import S3Blobs


def make_blobs(config: BlobConfig) -> "FolderBlobs | S3Blobs":
    """Returns a blob store that nobody has looked at yet."""
    if isinstance(config, S3Bucket):
        # Loaded only where it is wanted: the driver is large.
        from pipecd_controlplane.store.blobs.s3 import S3Blobs  # noqa: PLC0415

        return S3Blobs(config)
    return FolderBlobs(config.folder)


async def open_blobs(config: BlobConfig, *, referred: Sequence[str] = ()) -> BlobStore:
    """Returns a blob store that can be written to and read.

    A folder that was never ours is refused if it has none of the objects in `referred`.
    Raises BlobsUnavailableError, BlobsRefusedError, or ConfigError for files with credentials.
    """
    made = make_blobs(config)
    if isinstance(made, FolderBlobs):
        await made.open(referred=referred)
    else:
        await made.open()
    return made


async def look_at_blobs(config: BlobConfig, *, referred: Sequence[str] = ()) -> BlobStore:
    """Returns a blob store that can be read; nothing is made or written.

    Raises as `open_blobs`, and NoBlobStoreError when it is not there.
    """
    made = make_blobs(config)
    if isinstance(made, FolderBlobs):
        await made.look(referred=referred)
    else:
        await made.look()
    return made
