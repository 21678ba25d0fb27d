# SPDX-License-Identifier: Apache-2.0
"""The space of an installation in a blob store: a part of its keys that no other one has.

Objects that nobody refers to are deleted. Where two installations share a bucket, each must take
only its own for such: those in its space.
"""

import secrets
from typing import Final

from sqlalchemy import bindparam, select

from pipecd_controlplane.store import schema
from pipecd_controlplane.store.database import Database, Transaction

T: Final = schema.installation
SPACE: Final = "blob_space"

GET: Final = select(T.c.value).where(T.c.name == bindparam("this_name"))


async def find_space(database: Database) -> str:
    """Returns the space of this database, which is chosen once."""
    row = await database.one(GET, this_name=SPACE)
    if row is not None:
        return str(row[0])
    fresh = secrets.token_hex(4)

    async def work(transaction: Transaction) -> str:
        await transaction.insert_if_absent(T, name=SPACE, value=fresh)
        found = await transaction.one(GET, this_name=SPACE)
        return str(found[0]) if found else fresh

    return await database.write(work)
