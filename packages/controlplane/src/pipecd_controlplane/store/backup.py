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
