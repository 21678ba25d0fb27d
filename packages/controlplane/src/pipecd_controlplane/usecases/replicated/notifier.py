# SPDX-License-Identifier: Apache-2.0
"""Sends notices outside of units of work."""

from collections.abc import Sequence
from typing import Final

from pipecd_controlplane.store.postgres.database import PostgresDatabase
from pipecd_controlplane.store.postgres.notices import Notice, encode_notice

SEND: Final = "SELECT pg_notify($1, each) FROM unnest($2::text[]) AS each"


class Notifier:
    """Sends as this control plane."""

    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database
        self.replica_id = database.replica_id

    async def send(self, payloads: Sequence[str]) -> None:
        """Sends payloads to all control planes. Raises UnavailableError."""
        await self._database.shared_tables.run(SEND, self._database.session.channel, list(payloads))

    async def send_notice(self, notice: Notice) -> None:
        """Sends one notice. Raises UnavailableError."""
        await self.send([encode_notice(notice)])
