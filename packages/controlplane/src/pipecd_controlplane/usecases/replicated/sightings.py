# SPDX-License-Identifier: Apache-2.0
"""The order in which agents have reported, to any control plane."""

from typing import Final

from pipecd_controlplane.store.postgres.shared_tables import SharedStatements, SharedTables
from pipecd_controlplane.usecases.shared_state import Sighting

LOCK: Final = "SELECT pg_advisory_xact_lock(hashtextextended('pipecd sighting ' || $1, 0))"
FORGET_OLD: Final = (
    "DELETE FROM pipecd_sighting WHERE piped_id = $1 AND method = $2"
    " AND seen_at <= now() - make_interval(secs => $3)"
)
SINCE: Final = (
    "SELECT later.mark, later.peer, later.under_lease FROM pipecd_sighting AS later"
    " JOIN pipecd_sighting AS own USING (piped_id, method)"
    " WHERE own.piped_id = $1 AND own.method = $2 AND own.mark = $3"
    " AND later.number > own.number ORDER BY later.number"
)
RECORD: Final = (
    "INSERT INTO pipecd_sighting (piped_id, method, mark, peer, under_lease, number, seen_at)"
    " VALUES ($1, $2, $3, $4, $5, nextval('pipecd_sighting_number'), now())"
    " ON CONFLICT (piped_id, method, mark) DO UPDATE SET peer = excluded.peer,"
    " under_lease = excluded.under_lease, number = excluded.number, seen_at = excluded.seen_at"
)


class ReplicatedSightings:
    """Implements `Sightings`."""

    def __init__(self, tables: SharedTables) -> None:
        self._tables = tables

    async def record(
        self, piped_id: str, method: str, sighting: Sighting, *, window_seconds: float
    ) -> list[Sighting]:
        async def work(statements: SharedStatements) -> list[Sighting]:
            await statements.row(LOCK, piped_id)
            await statements.run(FORGET_OLD, piped_id, method, window_seconds)
            rows = await statements.rows(SINCE, piped_id, method, sighting.mark)
            await statements.run(
                RECORD, piped_id, method, sighting.mark, sighting.peer, sighting.under_lease
            )
            return [
                Sighting(mark=mark, peer=peer, under_lease=under_lease)
                for mark, peer, under_lease in rows
            ]

        return await self._tables.run_together(work)
