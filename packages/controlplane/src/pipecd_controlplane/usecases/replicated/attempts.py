# SPDX-License-Identifier: Apache-2.0
"""Rate limit of attempts, counted by all control planes together, on the database's clock.

As in `usecases.attempts`, a bucket is the time when it is full again, and at the limit of buckets
the least used one is evicted, an empty one never.
"""

from typing import Final

from pipecd_controlplane.store.postgres.shared_tables import SharedStatements, SharedTables
from pipecd_controlplane.usecases.attempts import MOST, hash_key

# $1 name, $2 key, $3 seconds for one more attempt, $4 seconds that a full burst takes.
TAKE: Final = (
    "UPDATE pipecd_attempt"
    " SET full_at = greatest(full_at, clock_timestamp()) + make_interval(secs => $3)"
    " WHERE name = $1 AND key = $2 AND full_at - clock_timestamp() <= make_interval(secs => $4)"
    " RETURNING 0"
)
FIND: Final = (
    "SELECT extract(epoch FROM full_at - clock_timestamp())::float8 - $3::float8"
    " FROM pipecd_attempt WHERE name = $1 AND key = $2"
)
ADD: Final = (
    "INSERT INTO pipecd_attempt (name, key, full_at)"
    " VALUES ($1, $2, clock_timestamp() + make_interval(secs => $3))"
    " ON CONFLICT (name, key) DO NOTHING RETURNING 0"
)
COUNT: Final = "SELECT count(*) FROM pipecd_attempt WHERE name = $1"
LEAST_USED: Final = (
    "SELECT key, extract(epoch FROM full_at - clock_timestamp())::float8 FROM pipecd_attempt"
    " WHERE name = $1 ORDER BY full_at LIMIT 1"
)
REMOVE: Final = "DELETE FROM pipecd_attempt WHERE name = $1 AND key = $2"
GIVE_BACK: Final = (
    "UPDATE pipecd_attempt SET full_at = full_at - make_interval(secs => $3)"
    " WHERE name = $1 AND key = $2"
)


class ReplicatedAttemptLimiter:
    """Implements `AttemptLimiter`."""

    def __init__(
        self, tables: SharedTables, name: str, *, burst: int, seconds: float, most: int = MOST
    ) -> None:
        self._tables = tables
        self._name = name
        self._seconds = float(seconds)
        self._span = (burst - 1) * float(seconds)
        self._most = most

    async def take(self, key: str) -> float:
        hashed = hash_key(key)

        async def add(statements: SharedStatements) -> float | None:
            if wait := await self._make_room(statements):
                return wait
            row = await statements.row(ADD, self._name, hashed, self._seconds)
            return None if row is None else 0.0

        while True:
            if await self._tables.row(TAKE, self._name, hashed, self._seconds, self._span):
                return 0.0
            if row := await self._tables.row(FIND, self._name, hashed, self._span):
                if row[0] > 0:
                    return float(row[0])
            elif (wait := await self._tables.run_together(add)) is not None:
                return wait
            # Another attempt has made the bucket meanwhile: this one takes of it like all others.

    async def give_back(self, key: str) -> None:
        await self._tables.run(GIVE_BACK, self._name, hash_key(key), self._seconds)

    async def forget(self, key: str) -> None:
        await self._tables.run(REMOVE, self._name, hash_key(key))

    async def _make_room(self, statements: SharedStatements) -> float:
        """Evicts the least used bucket when there is no room.

        Returns 0 when there is room, or the seconds until a bucket may be evicted.
        """
        row = await statements.row(COUNT, self._name)
        if row is None or row[0] < self._most:
            return 0.0
        found = await statements.row(LEAST_USED, self._name)
        if found is None:
            return 0.0
        least_used, left_seconds = found
        if left_seconds > self._span:
            return float(left_seconds - self._span)
        await statements.run(REMOVE, self._name, least_used)
        return 0.0
