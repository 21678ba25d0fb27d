# SPDX-License-Identifier: Apache-2.0
"""Control planes that share a database must have the same encryption key.

The database knows the name of the key that secrets at rest are encrypted with, never the key.
"""

from collections.abc import Sequence
from typing import Final

from pipecd_controlplane.store.postgres.shared_tables import SharedStatements, SharedTables
from pipecd_controlplane.usecases.vault import UNKNOWN_KEY, Vault
from pipecd_model.errors import ConfigError

FIRST: Final = (
    "INSERT INTO pipecd_encryption_key (one, name) VALUES (true, $1) ON CONFLICT (one) DO NOTHING"
)
FIND: Final = "SELECT name FROM pipecd_encryption_key"
CHANGE: Final = "UPDATE pipecd_encryption_key SET name = $1"


async def check_encryption_keys(tables: SharedTables, keys: Sequence[bytes]) -> None:
    """Notes the first of the keys as the one in use.

    Raises ConfigError when the one that was in use is not among the keys.
    """
    vault = Vault(keys)

    async def work(statements: SharedStatements) -> bool:
        await statements.run(FIRST, vault.key_name)
        row = await statements.row(FIND)
        if row is None or not vault.has_key(row[0]):
            return False
        await statements.run(CHANGE, vault.key_name)
        return True

    if not await tables.run_together(work):
        raise ConfigError(
            UNKNOWN_KEY,
            hint="give all servers of a database the same key file: --encryption-key-file, or the"
            " file encryption.key of the data folder of the first one",
        )
