# SPDX-License-Identifier: Apache-2.0
"""Files to download: a stage log as text, sent part by part."""

import re
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Final

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from pipecd_controlplane.auth.call_authenticator import CallAuthenticator
from pipecd_controlplane.auth.caller import ApiKeyCaller, Person
from pipecd_controlplane.http.senders import check_sender
from pipecd_controlplane.store.stage_logs import LogKey
from pipecd_controlplane.store.stores import Stores
from pipecd_controlplane.usecases import log_reading
from pipecd_model.errors import ConfigError, PipecdError, UnauthenticatedError
from pipecd_wire.headers import AUTHORIZATION
from pipecd_wire.pipecd.api import logs_pb2
from pipecd_wire.rpc import PEER
from pipecd_wire.rpc.handlers import describe

STAGE_LOG_PATH: Final = "/download/stage-log"
READ: Final = describe(
    logs_pb2.DESCRIPTOR.services_by_name["StageLogService"].methods_by_name["ReadStageLog"]
)
"""Whose right it needs: the same lines, in another form."""
STATUSES: Final = {
    "INVALID_ARGUMENT": 400,
    "UNAUTHENTICATED": 401,
    "PERMISSION_DENIED": 403,
    "NOT_FOUND": 404,
    "RESOURCE_EXHAUSTED": 429,
    "DATA_LOSS": 500,
    "UNAVAILABLE": 503,
}


class DownloadRoutes:
    """The routes under /download."""

    def __init__(self, stores: Stores, authenticator: CallAuthenticator, public_url: str) -> None:
        self._stores = stores
        self._authenticator = authenticator
        self._public_url = public_url

    def routes(self) -> list[Route]:
        return [Route(STAGE_LOG_PATH, self.stage_log, methods=["GET"])]

    async def stage_log(self, request: Request) -> Response:
        """Sends the log of an attempt of a stage, as it is now."""
        try:
            return await self._send_log(request)
        except PipecdError as error:
            return PlainTextResponse(
                f"{error.with_hint()}\n",
                status_code=STATUSES.get(error.status, 400),
                headers={"cache-control": "no-store"},
            )

    async def _send_log(self, request: Request) -> Response:
        check_sender(request, self._public_url)
        query = request.query_params
        attempt = query.get("attempt", "0")
        if not re.fullmatch(r"[0-9]{1,4}", attempt):
            raise ConfigError("attempt is not a number")
        key = LogKey(
            deployment_id=query.get("deployment", ""),
            stage_id=query.get("stage", ""),
            retried_count=int(attempt),
        )
        caller = await self._admit(request)
        await log_reading.check_stage(self._stores, caller, key)
        name = re.sub(r"[^A-Za-z0-9._-]", "_", f"{key.deployment_id}-{key.stage_id}-{attempt}.log")
        parts = log_reading.read_whole_text(self._stores, caller.project_id, key)
        first = await anext(parts, "")  # an error before it is answered with a status
        return StreamingResponse(
            self._send_parts(first, parts),
            media_type="text/plain; charset=utf-8",
            headers={
                "cache-control": "no-store",
                "content-disposition": f'attachment; filename="{name[:200]}"',
            },
        )

    async def _admit(self, request: Request) -> ApiKeyCaller | Person:
        metadata = {
            "cookie": request.headers.get("cookie", ""),
            AUTHORIZATION: request.headers.get(AUTHORIZATION, ""),
            PEER: request.client.host if request.client else "",
        }
        caller = await self._authenticator.admit(READ, metadata)
        if not isinstance(caller, ApiKeyCaller | Person):
            raise UnauthenticatedError("an API key or a session is needed")
        return caller

    async def _send_parts(
        self, first: str, others: AsyncGenerator[str, None]
    ) -> AsyncIterator[bytes]:
        yield first.encode(errors="replace")
        async with aclosing(others) as parts:
            try:
                async for part in parts:
                    yield part.encode(errors="replace")
            except PipecdError as error:
                # Too late for a status: the file says itself that it is not whole.
                yield f"\n*** {error.with_hint()}\n".encode(errors="replace")
