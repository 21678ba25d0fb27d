# SPDX-License-Identifier: Apache-2.0
"""Programs in terminals that wait for a person to confirm their sign-in at any control plane."""

from typing import Final

from pipecd_controlplane.store.postgres.shared_tables import (
    SharedRow,
    SharedStatements,
    SharedTables,
)
from pipecd_controlplane.usecases.login_requests import MOST
from pipecd_controlplane.usecases.shared_state import LoginRequest
from pipecd_model.errors import ConflictError

FORGET_OLD: Final = "DELETE FROM pipecd_login_request WHERE forget_at <= clock_timestamp()"
COUNT: Final = "SELECT count(*) FROM pipecd_login_request"
# The oldest one of the network that has most: strangers cost each other.
FORGET_ONE: Final = (
    "DELETE FROM pipecd_login_request WHERE user_code = (SELECT user_code FROM pipecd_login_request"
    " WHERE network = (SELECT network FROM pipecd_login_request GROUP BY network"
    " ORDER BY count(*) DESC, min(added_at) LIMIT 1) ORDER BY added_at LIMIT 1)"
)
ADD: Final = (
    "INSERT INTO pipecd_login_request (user_code, device_hash, client, address, network,"
    " session_id, is_refused, added_at, forget_at) VALUES ($1, $2, $3, $4, $5, '', false,"
    " clock_timestamp(), clock_timestamp() + make_interval(secs => $6))"
    " ON CONFLICT DO NOTHING RETURNING user_code"
)
FIND_OPEN: Final = (
    "SELECT user_code, device_hash, client, address, session_id, is_refused"
    " FROM pipecd_login_request WHERE user_code = $1"
    " AND session_id = '' AND NOT is_refused AND forget_at > clock_timestamp()"
)
ANSWER: Final = (
    "UPDATE pipecd_login_request SET session_id = $2, is_refused = $3 WHERE user_code = $1"
    " AND session_id = '' AND NOT is_refused AND forget_at > clock_timestamp() RETURNING user_code"
)
TAKE_ANSWERED: Final = (
    "DELETE FROM pipecd_login_request WHERE device_hash = $1 AND (session_id <> '' OR is_refused)"
    " AND forget_at > clock_timestamp()"
    " RETURNING user_code, device_hash, client, address, session_id, is_refused"
)
FIND_WAITING: Final = (
    "SELECT user_code, device_hash, client, address, session_id, is_refused"
    " FROM pipecd_login_request WHERE device_hash = $1"
    " AND session_id = '' AND NOT is_refused AND forget_at > clock_timestamp()"
)


class ReplicatedLoginRequests:
    """Implements `LoginRequests`."""

    def __init__(self, tables: SharedTables, *, most: int = MOST) -> None:
        self._tables = tables
        self._most = most

    async def add(self, request: LoginRequest, *, network: str, seconds: float) -> None:
        async def work(statements: SharedStatements) -> bool:
            await statements.run(FORGET_OLD)
            row = await statements.row(COUNT)
            if row is not None and row[0] >= self._most:
                await statements.run(FORGET_ONE)
            added = await statements.row(
                ADD,
                request.user_code,
                request.device_hash,
                request.client,
                request.address,
                network,
                float(seconds),
            )
            return added is not None

        if not await self._tables.run_together(work):
            raise ConflictError("the code is taken")

    async def find_open(self, user_code: str) -> LoginRequest | None:
        row = await self._tables.row(FIND_OPEN, user_code)
        return None if row is None else _read(row)

    async def answer(self, user_code: str, *, session_id: str, is_refused: bool) -> bool:
        row = await self._tables.row(ANSWER, user_code, session_id, is_refused)
        return row is not None

    async def take(self, device_hash: str) -> LoginRequest | None:
        row = await self._tables.row(TAKE_ANSWERED, device_hash)
        if row is None:
            row = await self._tables.row(FIND_WAITING, device_hash)
        return None if row is None else _read(row)


def _read(row: SharedRow) -> LoginRequest:
    user_code, device_hash, client, address, session_id, is_refused = row
    return LoginRequest(
        user_code=user_code,
        device_hash=device_hash,
        client=client,
        address=address,
        session_id=session_id,
        is_refused=is_refused,
    )
