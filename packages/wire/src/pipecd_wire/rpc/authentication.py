# SPDX-License-Identifier: Apache-2.0
"""Authenticates calls between two programs of one machine, before a request is read.

A secret that both have is enough. Without one, the kernel says which user has called.
"""

import asyncio
import logging
import os
import time
import urllib.parse
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Final, NamedTuple

from pipecd_runtime.peer import PeerError, check_peer
from pipecd_wire.rpc.handlers import Metadata
from pipecd_wire.rpc.status import StatusError

log = logging.getLogger(__name__)

LOG_INTERVAL: Final = timedelta(minutes=1)
"""Between two lines about refused calls: a caller that is refused must not fill the log."""


class IncomingCall(NamedTuple):
    """A call of which only the metadata has been read."""

    metadata: Metadata
    peer: str
    """The caller's address as gRPC writes it: `ipv4:127.0.0.1:41808`."""
    server_ports: frozenset[int]
    """The ports on which the server that was called listens."""


Authenticator = Callable[[IncomingCall], Awaitable[None]]
"""Raises an error with a status for a call that is refused, whatever its method."""


def has_token(call: IncomingCall, key: str, token: str) -> bool:
    """Returns whether a call has this token in its metadata; compares in constant time."""
    from hmac import compare_digest  # noqa: PLC0415 - a process without tokens needs no OpenSSL

    given = call.metadata.get(key, "")
    return bool(token) and compare_digest(given.encode(), token.encode())


async def require_own_user(call: IncomingCall, *, uid: int | None = None) -> None:
    """Raises StatusError UNAUTHENTICATED unless the caller is a process of our own user.

    Checked for each call, never cached: the next connection from the same address may be another
    process's. Root is refused too: programs that run as root for others could be made to call.
    """
    host, port = split_peer(call.peer)
    expected = os.geteuid() if uid is None else uid
    try:
        # In a thread: the kernel takes its time on a machine with many connections.
        await asyncio.to_thread(
            check_peer, host, port, server_ports=call.server_ports, uid=expected
        )
    except PeerError as error:
        raise StatusError(
            "UNAUTHENTICATED", f"only processes of the user {expected} are served: {error}"
        ) from error


def split_peer(peer: str) -> tuple[str, int]:
    """Returns the address and port in `ipv4:10.0.0.7:41808` or `ipv6:%5B::1%5D:41808`.

    Raises StatusError UNAUTHENTICATED when it has none.
    """
    family, _, rest = peer.partition(":")
    host, _, port = urllib.parse.unquote(rest).rpartition(":")
    if family not in {"ipv4", "ipv6"} or not (port.isascii() and port.isdigit()):
        raise StatusError("UNAUTHENTICATED", f"nobody can tell who is calling from {peer!r}")
    return host.strip("[]"), int(port)


class RefusalLog:
    """Logs refused calls, at most one line in each `LOG_INTERVAL`."""

    def __init__(self) -> None:
        self._since: float | None = None
        self._unsaid = 0

    def note(self, call: IncomingCall, refusal: StatusError) -> None:
        """Logs a refusal, with the number of those since the last line; else only counts it."""
        now = time.monotonic()
        if self._since is not None and now - self._since < LOG_INTERVAL.total_seconds():
            self._unsaid += 1
            return
        fields = {"peer": call.peer, "reason": refusal.message, "others": self._unsaid}
        log.warning("rpc.caller_refused", extra={"fields": fields})
        self._since, self._unsaid = now, 0
