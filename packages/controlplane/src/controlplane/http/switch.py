# SPDX-License-Identifier: Apache-2.0
"""Which protocol does a new connection speak? Asked once, by `front`, for each of them.

HTTP/2 goes to the gRPC server through `relay`, anything else to uvicorn's HTTP/1.1.
"""

import asyncio
import ssl
from functools import partial
from typing import Any, Final, cast

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from controlplane.http.relay import Relay

# Browsers offer both and get the first of these, because gRPC-Web and pages come over HTTP/1.1.
# gRPC clients offer `h2` alone.
ALPN: Final = ["http/1.1", "h2"]

PREFACE: Final = b"PRI"
"""How every HTTP/2 connection begins, and no request of HTTP/1.1 does."""


def switch_protocol(to: Relay, limit: float) -> type[asyncio.Protocol]:
    """The protocol class of this front; uvicorn makes an instance per connection."""

    class BoundSwitch(Switch):
        relay = to
        silent = limit

    return BoundSwitch


class Switch(asyncio.Protocol):
    """Looks at the beginning of a connection, and hands it to the one who can read it."""

    relay: Relay
    silent: float

    def __init__(
        self,
        config: uvicorn.Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self._http = partial(HttpToolsProtocol, config, server_state, app_state, _loop)
        # Known to uvicorn while undecided, so that it is closed when uvicorn stops.
        self._undecided = cast(set[Any], server_state.connections)
        self._first = b""
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        if self.relay.refusing:
            self.transport.abort()
            return
        secured: ssl.SSLObject | None = transport.get_extra_info("ssl_object")
        if secured is not None and secured.selected_alpn_protocol() == "h2":
            self.relay.take(self.transport, b"")
            return
        self._undecided.add(self)
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self.silent, self.transport.close)

    def data_received(self, data: bytes) -> None:
        self._first += data
        if len(self._first) < len(PREFACE) and PREFACE.startswith(self._first):
            return
        self._leave()
        if self._first.startswith(PREFACE):
            self.relay.take(self.transport, self._first)
        else:
            http = self._http()
            self.transport.set_protocol(http)
            http.connection_made(self.transport)
            http.data_received(self._first)

    def connection_lost(self, error: Exception | None) -> None:
        self._leave()

    def shutdown(self) -> None:
        """Called by uvicorn when it stops."""
        self.transport.close()

    def _leave(self) -> None:
        self._undecided.discard(self)
        if self._timer is not None:
            self._timer.cancel()
