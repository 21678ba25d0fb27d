# SPDX-License-Identifier: Apache-2.0
"""The space of an installation in a blob store: a part of its keys that no other one has.

Objects that nobody refers to are deleted. Where two installations share a bucket, each must take
only its own for such: those in its space.
"""

import secrets
from typing import Final

from pipecd_controlplane.store.database import Database
from pipecd_controlplane.store.installation_values import choose_value, find_value

SPACE: Final = "blob_space"


async def find_space(database: Database) -> str:
    """Returns the space of this database, which is chosen once."""
    found = await find_value(database, SPACE)
    return found or await choose_value(database, SPACE, secrets.token_hex(4))
