# SPDX-License-Identifier: Apache-2.0
"""Buckets for tests, on a server of `aws.lab`."""

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

from pipecd_controlplane.store.blobs.config import KeyFiles, S3Bucket

_numbers = itertools.count(1)


class BucketMaker:
    """Describes buckets that are made when they are opened."""

    def __init__(self, url: str, folder: Path) -> None:
        self._url = url
        self.access_key_file = folder / "access-key"
        self.secret_key_file = folder / "secret-key"
        for file in (self.access_key_file, self.secret_key_file):
            file.write_text("test\n")

    def describe(self, **changes: Any) -> S3Bucket:
        """Returns the settings of a new bucket, with changes."""
        config = S3Bucket(
            bucket=f"bucket-{next(_numbers)}",
            endpoint=self._url,
            credentials=KeyFiles(access_key=self.access_key_file, secret_key=self.secret_key_file),
            create_bucket=True,
        )
        return replace(config, **changes)
