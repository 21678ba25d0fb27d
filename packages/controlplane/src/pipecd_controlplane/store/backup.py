# SPDX-License-Identifier: Apache-2.0
"""What is known of a backup, whichever database it was made from."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Backup:
    """What a backup holds."""

    created_at: int
    schema: int
    size: int
    """Bytes of the database."""
    objects: int = 0
    """Objects of the blob store in it."""
    lost: int = 0
    """Objects that rows refer to, and that were not there, or damaged."""
    keeps_objects: bool = False
    """Whether what is restored deletes no objects: they are elsewhere, and may be another's."""
    elsewhere: str = ""
    """The place of the objects when they are not in it: `the bucket 'logs'`."""
