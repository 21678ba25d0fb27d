# SPDX-License-Identifier: Apache-2.0
"""Whether a database only reads objects: it is restored, and its objects may be another's, too.

A copy does not know what the original has written since. It would take that for orphans, and by a
shorter retention it would delete logs that the original still shows. What it sealed itself would be
an orphan for the original.
"""

from typing import Final

from pipecd_controlplane.store.database import Database
from pipecd_controlplane.store.installation_values import find_value, remove_value

KEEPS_OBJECTS: Final = "keeps_objects"
YES: Final = "yes"


async def keeps_objects(database: Database) -> bool:
    return await find_value(database, KEEPS_OBJECTS) == YES


async def take_over_objects(database: Database) -> bool:
    """Lets the database seal and delete from now on; returns whether it did not until now."""
    return await remove_value(database, KEEPS_OBJECTS)
