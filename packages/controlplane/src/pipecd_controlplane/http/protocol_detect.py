# SPDX-License-Identifier: Apache-2.0
"""Detects the protocol of each new connection of `server`.

HTTP/2 goes to the gRPC server through `grpc_proxy`, anything else to HTTP/1.1.
"""

import asyncio
import ssl
from collections.abc import Callable
from typing import Final, cast

from pipecd_controlplane.http.connections import ClientConnection
from pipecd_controlplane.http.grpc_proxy import GrpcProxy

# Browsers offer both and get the first of these, because gRPC-Web and pages come over HTTP/1.1.
# gRPC clients offer `h2` alone.
ALPN: Final = ["http/1.1", "h2"]

PREFACE: Final = b"PRI"
"""How every HTTP/2 connection begins, and no request of HTTP/1.1 does."""


class ProtocolDetector(asyncio.Protocol):
    """Reads the first bytes of a connection, and hands it to the protocol that they are of."""

    def __init__(
        self,
        connection: ClientConnection,
        proxy: GrpcProxy,
        make_http: Callable[[ClientConnection], asyncio.Protocol],
        header_seconds: float,
    ) -> None:
        self._connection = connection
        self._proxy = proxy
        self._make_http = make_http
        self._header_seconds = header_seconds
        self._first = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self._connection.attach(self.transport)
        if self._proxy.refusing:
            self.transport.abort()
            return
        secured: ssl.SSLObject | None = transport.get_extra_info("ssl_object")
        if secured is not None and secured.selected_alpn_protocol() == "h2":
            self._proxy.take(self.transport, b"", self._connection)
            return
        if secured is not None:
            self._connection.accepted_at = asyncio.get_running_loop().time()  # after the handshake
        deadline = self._connection.accepted_at + self._header_seconds
        self._connection.expect(deadline, self.transport.close)

    def data_received(self, data: bytes) -> None:
        self._first += data
        if len(self._first) < len(PREFACE) and PREFACE.startswith(self._first):
            return
        if self._first.startswith(PREFACE):
            self._proxy.take(self.transport, self._first, self._connection)
        else:
            http = self._make_http(self._connection)
            self.transport.set_protocol(http)
            http.connection_made(self.transport)
            http.data_received(self._first)

    def connection_lost(self, error: Exception | None) -> None:
        self._connection.leave()
