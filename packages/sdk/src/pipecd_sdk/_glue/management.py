# SPDX-License-Identifier: Apache-2.0
"""Plugin management: accept piped's invitation, say Ready, keep pinging; and know piped's calls."""

import asyncio
import logging
import os
from typing import Final

import msgspec

from pipecd_sdk._glue.piped import PipedClient
from pipecd_wire.headers import PIPED_TOKEN_HEADER, PIPED_TOKEN_VARIABLE, PLUGIN_TOKEN_VARIABLE
from pipecd_wire.pipecd.plugin import plugin_pb2
from pipecd_wire.rpc import (
    Authenticator,
    CallError,
    IncomingCall,
    Retry,
    StatusError,
    call,
    has_token,
    require_own_user,
)

log = logging.getLogger(__name__)

PING_INTERVAL_SECONDS: Final = 5.0

# piped may be slow to serve, but a plugin that it never hears of is one that it starts again.
_READY: Final = Retry(attempts=None, base_seconds=0.05, cap_seconds=1.0)


class RefusedError(RuntimeError):
    """piped refused Ready or Ping: it does not want this process any more."""


class Invitation(msgspec.Struct, frozen=True, kw_only=True):
    """The secrets that piped and this process share, empty under a Go agent."""

    token: str = ""
    """Our proof, for piped."""
    piped_token: str = ""
    """piped's proof, for us."""

    def __repr__(self) -> str:
        return "Invitation(…)"


def take_invitation() -> Invitation:
    """Returns the invitation from the environment and removes it: no child process inherits it."""
    return Invitation(
        token=os.environ.pop(PLUGIN_TOKEN_VARIABLE, ""),
        piped_token=os.environ.pop(PIPED_TOKEN_VARIABLE, ""),
    )


def authenticator_of(invitation: Invitation) -> Authenticator:
    """Returns the authenticator: a caller must have piped's token.

    Under a Go agent, which has no token, it must be a process of our own user.
    """

    async def authenticate(call: IncomingCall) -> None:
        if not has_token(call, PIPED_TOKEN_HEADER, invitation.piped_token):
            raise StatusError(
                "UNAUTHENTICATED",
                "only the piped that started this plugin may call it "
                f"({PIPED_TOKEN_HEADER} must be what {PIPED_TOKEN_VARIABLE} held)",
            )

    return authenticate if invitation.piped_token else require_own_user


async def announce(
    piped: PipedClient, *, version: str, port: int, stages_without_files: list[str]
) -> float | None:
    """Sends Ready; returns the seconds between pings, None when piped has no plugin management.

    Raises RefusedError.
    """
    request = plugin_pb2.ReadyRequest(
        name=piped.plugin,
        version=version,
        port=port,
        pid=os.getpid(),
        stages_without_files=stages_without_files,
    )
    try:
        answer = await call(piped.management.Ready, request, deadline=5, retry=_READY)
    except CallError as error:
        if error.status == "UNIMPLEMENTED":
            return None
        raise RefusedError(f"piped refused Ready: {error}") from error
    return answer.ping_interval.ToTimedelta().total_seconds() or PING_INTERVAL_SECONDS


async def keep_pinging(piped: PipedClient, interval_seconds: float) -> None:
    """Pings until the process ends. Raises RefusedError when piped has given up on it."""
    while True:
        await asyncio.sleep(interval_seconds)
        try:
            await call(piped.management.Ping, plugin_pb2.PingRequest(), deadline=interval_seconds)
        except CallError as error:
            if error.status in {"FAILED_PRECONDITION", "UNAUTHENTICATED"}:
                raise RefusedError(f"piped refused Ping: {error}") from error
            log.debug("ping.missed", extra={"fields": {"error": str(error)}})
