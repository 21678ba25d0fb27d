# SPDX-License-Identifier: Apache-2.0
"""Small values of an installation, each chosen once: who comes second gets what the first chose."""

from typing import Final

from sqlalchemy import bindparam, delete, select

from pipecd_controlplane.store import schema
from pipecd_controlplane.store.database import Database, Transaction

T: Final = schema.installation

GET: Final = select(T.c.value).where(T.c.name == bindparam("this_name"))
REMOVE: Final = delete(T).where(T.c.name == bindparam("this_name"))


async def find_value(database: Database, name: str) -> str:
    """Returns a value; empty when none is chosen yet."""
    row = await database.one(GET, this_name=name)
    return "" if row is None else str(row[0])


async def choose_value(database: Database, name: str, fresh: str) -> str:
    """Chooses a value unless that is done already; returns the one that counts."""

    async def work(transaction: Transaction) -> str:
        await transaction.insert_if_absent(T, name=name, value=fresh)
        found = await transaction.one(GET, this_name=name)
        return str(found[0]) if found else fresh

    return await database.write(work)


async def remove_value(database: Database, name: str) -> bool:
    """Removes a value; returns whether there was one."""

    async def work(transaction: Transaction) -> bool:
        return await transaction.run(REMOVE, this_name=name) > 0

    return await database.write(work)
