# SPDX-License-Identifier: Apache-2.0
"""HTTP/1.1 with limits: how large heads and bodies may be, and how long they may take.

uvicorn's protocol parses requests and writes responses; it limits idle connections only.
"""

import asyncio
import http
from collections import deque
from typing import Any, Final, cast

import httptools
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from pipecd_controlplane.http.addresses import TrustedProxies
from pipecd_controlplane.http.connections import ClientConnection
from pipecd_model.config.frontlimits import FrontLimitsConfig
from pipecd_runtime.logs import logger

log = logger(__name__)

CONNECTION: Final = "pipecd.connection"
"""The key of the connection in the scope of each of its requests."""

LINGER_SECONDS: Final = 2.0
LINGER_BYTES: Final = 16 * 1024 * 1024
"""How long, and how much of, the rest of a refused request is thrown away.

A connection that is closed before all was read is reset, and its client never sees the refusal.
"""

FRAMING_BYTES: Final = 64 * 1024
FRAMING_FACTOR: Final = 8
"""What chunks may cost beside their content: a fixed part, and a multiple of the content."""


class _RefusedError(Exception):
    """Ends the parsing of a request; it carries the status of the response."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


class BoundedHttp(HttpToolsProtocol):
    """One connection of HTTP/1.1, within the limits."""

    def __init__(
        self,
        config: uvicorn.Config,
        state: ServerState,
        connection: ClientConnection,
        limits: FrontLimitsConfig,
        proxies: TrustedProxies,
    ) -> None:
        super().__init__(config, state, {})
        self._connection = connection
        self._limits = limits
        self._proxies = proxies
        self._requests = 0
        self._is_refused = False
        self._discarded = 0
        self._awaits_head = False
        self._in_head = False
        self._in_body = False
        self._head_bytes = 0
        self._header_bytes = 0
        self._unanswered: deque[int] = deque()
        """Bytes of the heads of all requests without a response yet."""
        self._body_ends_at = 0.0
        self._body_bytes = 0
        self._raw_body_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if self._connection.is_proxied:
            self.client = (self._connection.peer, 0)
        self._expect_head(self._connection.accepted_at)

    def connection_lost(self, exc: Exception | None) -> None:
        self._unset_keepalive_if_required()
        super().connection_lost(exc)
        self._connection.leave()

    def data_received(self, data: bytes) -> None:
        if self._is_refused:
            self._discard(data)
            return
        if self.transport.is_closing():
            return
        requests = self._requests
        self._unset_keepalive_if_required()
        if not self._awaits_head and not self._in_body and not self._is_answering():
            self._expect_head(self.loop.time())
        try:
            self.parser.feed_data(data)
            if requests == self._requests:  # otherwise some of it belongs to the one before
                self._count(data)
        except httptools.HttpParserUpgrade:
            pass  # the response is the one to a request without an upgrade
        except httptools.HttpParserError as error:
            cause = error.__context__
            self._refuse(cause.status if isinstance(cause, _RefusedError) else 400)
        except _RefusedError as refused:
            self._refuse(refused.status)
        if not self._connection.is_known:
            self._connection.hold(self._count_held_bytes())

    def on_message_begin(self) -> None:
        super().on_message_begin()
        if not self._awaits_head:
            self._expect_head(self.loop.time())
        self._requests += 1
        self._in_head = True
        self._in_body = False
        self._head_bytes = self._header_bytes = 0

    def on_url(self, url: bytes) -> None:
        super().on_url(url)
        if len(self.url) > self._limits.max_url_bytes:
            raise _RefusedError(414)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._header_bytes += len(name) + len(value) + len(": \r\n")
        if (
            self._header_bytes > self._limits.max_header_bytes
            or len(self.headers) >= self._limits.max_header_fields
        ):
            raise _RefusedError(431)
        if self._in_head:  # a trailer is dropped: the application has the request already
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        if len(self.pipeline) >= self._limits.max_pipelined_requests:
            raise _RefusedError(429)
        self._awaits_head = False
        self._in_head = False
        self._in_body = True
        self._body_bytes = self._raw_body_bytes = 0
        self._body_ends_at = self.loop.time() + self._limits.body_timeout.total_seconds()
        self._expect_body()
        scope = cast(dict[str, Any], self.scope)
        scope[CONNECTION] = self._connection
        self._unanswered.append(len(self.url) + self._header_bytes)
        if self._proxies:
            self._find_client(scope)
        super().on_headers_complete()
        self.cycle.transport = cast(asyncio.Transport, _Outlet(self))

    def on_body(self, body: bytes) -> None:
        self._body_bytes += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._in_body = False
        self._connection.relax()
        if self.cycle.response_complete:  # a refusal that was lingering
            self.transport.close()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._unanswered.popleft()
        self._connection.hold(self._count_held_bytes())
        if self._in_body and not self.pipeline and not self.transport.is_closing():
            self._linger()

    def close_after_answer(self) -> None:
        """Closes the connection after its last response; reads off the rest of a request first."""
        if self._in_body:
            self._stop_listening()
        else:
            self.transport.close()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._connection.stall()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._connection.flow()

    def shutdown(self) -> None:
        """Called by uvicorn when it stops: also closes a connection that is within a head."""
        super().shutdown()
        if self._in_head:
            self.transport.close()

    def _expect_head(self, since: float) -> None:
        self._awaits_head = True
        limit = self._limits.header_timeout.total_seconds()
        self._connection.expect(since + limit, self._expire)

    def _expect_body(self) -> None:
        idle = self.loop.time() + self._limits.body_idle_timeout.total_seconds()
        self._connection.expect(min(idle, self._body_ends_at), self._expire)

    def _is_answering(self) -> bool:
        cycle = self._current()
        return cycle is not None and not cycle.response_complete

    def _count(self, data: bytes) -> None:
        """Counts bytes that the parser makes no callback for: parts of a field, sizes of chunks."""
        if self._in_head:
            self._head_bytes += len(data)
            if self._head_bytes > self._limits.max_url_bytes + self._limits.max_header_bytes:
                raise _RefusedError(431)
        elif self._in_body:
            self._raw_body_bytes += len(data)
            if self._raw_body_bytes > FRAMING_BYTES + (FRAMING_FACTOR + 1) * self._body_bytes:
                raise _RefusedError(400)
            if self._is_answering():
                self._expect_body()

    def _count_held_bytes(self) -> int:
        """Returns the received bytes of all requests that have no response yet."""
        held = sum(self._unanswered)
        if self._in_head:
            held += self._head_bytes
        if self.pipeline:
            return held + sum(len(cycle.body) for cycle, _app in self.pipeline)
        cycle = self._current()
        return held + (len(cycle.body) if cycle is not None else 0)

    def _current(self) -> RequestResponseCycle | None:
        """Returns the last request, or None before the first; uvicorn's type leaves None out."""
        return cast(RequestResponseCycle | None, self.cycle)

    def _expire(self) -> None:
        if self._is_refused:
            self.transport.close()
        elif self._in_head or (self._in_body and self._is_answering()):
            self._refuse(408)
        else:
            self.transport.close()

    def _refuse(self, status: int) -> None:
        """Sends a response with this status, and closes.

        Only closes when another response has begun: a client would mix up the two.
        """
        reason = http.HTTPStatus(status).phrase
        log.info("front.refused", status=status, reason=reason, peer=self._connection.peer)
        self._connection.relax()
        is_free = not self._is_answering()
        if not is_free:
            is_free = self._in_body and not self.cycle.response_started and not self.pipeline
            self.cycle.disconnected = True  # what the application responds comes too late
            self.cycle.message_event.set()
        if not is_free:
            self.transport.close()
            return
        self.transport.write(_plain_answer(status, reason))
        self._stop_listening()

    def _stop_listening(self) -> None:
        """Sends nothing more on this connection, and discards what is received."""
        self._is_refused = True
        if self.transport.can_write_eof() and not self.transport.is_closing():
            self.transport.write_eof()
        self._linger()

    def _discard(self, data: bytes) -> None:
        self._discarded += len(data)
        if self._discarded > LINGER_BYTES:
            self.transport.close()

    def _linger(self) -> None:
        """Limits the time to read off the rest of a request whose response is sent already."""
        self._unset_keepalive_if_required()
        self._connection.expect(self.loop.time() + LINGER_SECONDS, self._expire)

    def _find_client(self, scope: dict[str, Any]) -> None:
        named = [value for name, value in self.headers if name == b"x-forwarded-for"]
        forwarded = b",".join(named).decode("latin-1")
        found = self._proxies.find_client(self._connection.peer, forwarded)
        if found != self._connection.peer:
            scope["client"] = (found, 0)


class _Outlet:
    """The transport that uvicorn's request gets: `close` reads off the rest of it first."""

    def __init__(self, http: BoundedHttp) -> None:
        self._http = http

    def write(self, data: bytes) -> None:
        self._http.transport.write(data)

    def is_closing(self) -> bool:
        return self._http.transport.is_closing()

    def close(self) -> None:
        self._http.close_after_answer()


def _plain_answer(status: int, reason: str) -> bytes:
    text = f"{reason}\n".encode()
    return (
        f"HTTP/1.1 {status} {reason}\r\ncontent-type: text/plain; charset=utf-8\r\n"
        f"content-length: {len(text)}\r\nconnection: close\r\n\r\n"
    ).encode() + text
