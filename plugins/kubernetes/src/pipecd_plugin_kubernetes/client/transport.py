# SPDX-License-Identifier: Apache-2.0
"""HTTP/1.1 to one server: kept connections for calls, a connection of its own for each stream.

Credentials are added here and nowhere else. When the certificate or the authority changed, new
connections are made with the new ones, and those in use end with their requests.
"""

import asyncio
import ssl
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Final
from urllib.parse import urlsplit

import httpx2

from pipecd_plugin_kubernetes.client.connection import Connection
from pipecd_plugin_kubernetes.client.credentials import Credential
from pipecd_plugin_kubernetes.client.errors import (
    ConnectionConfigError,
    TooLargeError,
    UnavailableError,
)
from pipecd_plugin_kubernetes.client.proxies import find_proxy, read_proxy_variables
from pipecd_plugin_kubernetes.client.refusals import clean_message
from pipecd_plugin_kubernetes.client.requests import ApiAnswer, OpenAnswer, Request
from pipecd_plugin_kubernetes.client.tls import ClientCertificate, build_context

MOST_CALLS: Final = 32
"""Calls at the same time."""
MOST_STREAMS: Final = 1000
IDLE_SECONDS: Final = 30.0
"""How long an unused connection is kept; servers and balancers close them after 60 or more."""
CONNECT_SECONDS: Final = 10.0
READ_SECONDS: Final = 70.0
"""Without a byte; a server gives itself 60 seconds for a call."""
STREAM_READ_SECONDS: Final = 150.0
"""Without a byte on a watch; a server sends a bookmark every minute."""
LARGEST_REFUSAL: Final = 1024 * 1024
AGENT: Final = "pipecd-plugin-kubernetes"


class _Pools:
    """Connections that were made with the same certificates.

    Each call has a pool of a single connection for itself, the one that was used last: a shared
    pool looks at all its connections for every request.
    """

    def __init__(
        self,
        authority: bytes,
        certificate: ClientCertificate | None,
        make_pool: Callable[[int, int], httpx2.AsyncHTTPTransport],
    ) -> None:
        self.authority = authority
        self.certificate = certificate
        self.users = 0
        self.is_retired = False
        self._make_pool = make_pool
        self._streams = make_pool(MOST_STREAMS, 0)
        self._lanes: set[httpx2.AsyncHTTPTransport] = set()
        self._free: deque[tuple[float, httpx2.AsyncHTTPTransport]] = deque()

    @asynccontextmanager
    async def use(self, *, is_stream: bool) -> AsyncIterator[httpx2.AsyncHTTPTransport]:
        """Gives the pool for a request; one that failed or was cancelled is not used again."""
        if is_stream:
            yield self._streams
            return
        lane = self._free.pop()[1] if self._free else self._make_pool(1, 1)
        self._lanes.add(lane)
        try:
            yield lane
        except BaseException:
            await self._drop(lane)
            raise
        now = time.monotonic()
        self._free.append((now, lane))
        if self._free[0][0] < now - IDLE_SECONDS:
            await self._drop(self._free.popleft()[1])

    async def close(self) -> None:
        """Closes all; what is being sent fails."""
        self._free.clear()
        for lane in tuple(self._lanes):
            await self._drop(lane)
        await _close_quietly(self._streams)

    async def _drop(self, lane: httpx2.AsyncHTTPTransport) -> None:
        self._lanes.discard(lane)
        await _close_quietly(lane)


async def _close_quietly(pool: httpx2.AsyncHTTPTransport) -> None:
    with suppress(httpx2.HTTPError, OSError, RuntimeError):  # what is in use cannot be closed
        await pool.aclose()


class HttpTransport:
    """Sends requests with httpx2."""

    def __init__(self, connection: Connection, *, most_calls: int = MOST_CALLS) -> None:
        self._connection = connection
        self._proxy = connection.proxy or find_proxy(connection.server, read_proxy_variables())
        self._host = urlsplit(connection.server).netloc
        self._calls = asyncio.Semaphore(most_calls)
        self._lock = asyncio.Lock()
        self._pools: _Pools | None = None
        self._is_closed = False

    async def open(self) -> None:
        """Fetches credentials and reads certificates now: what is wrong with them is said early."""
        async with self._use_pools(await self._connection.credentials.fetch()):
            pass

    async def send(self, request: Request) -> ApiAnswer:
        async with self._calls:
            credential = await self._connection.credentials.fetch()
            answer = await self._send_with(request, credential)
            if answer.http_status != 401:
                return answer
            self._connection.credentials.forget(credential)
            renewed = await self._connection.credentials.fetch()
            if renewed == credential:
                return answer
            return await self._send_with(request, renewed)

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[OpenAnswer]:
        credentials = self._connection.credentials
        credential = await credentials.fetch()
        async with self._open(request, credential, is_stream=True) as opened:
            if opened.head.http_status != 401:
                yield opened
                return
        credentials.forget(credential)
        async with self._open(request, await credentials.fetch(), is_stream=True) as opened:
            yield opened

    async def close(self) -> None:
        self._is_closed = True
        pools, self._pools = self._pools, None
        if pools is not None:
            await pools.close()

    async def _send_with(self, request: Request, credential: Credential) -> ApiAnswer:
        async with self._open(request, credential, is_stream=False) as opened:
            return opened.head

    @asynccontextmanager
    async def _open(
        self, request: Request, credential: Credential, *, is_stream: bool
    ) -> AsyncIterator["_HttpAnswer"]:
        """Sends a request; a call's body is read, and so is that of a refused stream."""
        sent = self._make_request(request, credential, is_stream=is_stream)
        async with self._use_pools(credential) as pools, pools.use(is_stream=is_stream) as pool:
            try:
                response = await pool.handle_async_request(sent)
            except (httpx2.HTTPError, OSError) as error:
                raise explain_failure(request, error, self._host) from error
            except RuntimeError as error:  # the pool was closed while this waited for it
                raise self._make_closed(request) from error
            try:
                opened = _HttpAnswer(request, response, self._host)
                await opened.read_head(is_stream=is_stream)
                yield opened
            finally:
                with suppress(httpx2.HTTPError, OSError):
                    await response.aclose()

    def _make_request(
        self, request: Request, credential: Credential, *, is_stream: bool
    ) -> httpx2.Request:
        headers = [("Accept", request.accept), ("User-Agent", AGENT)]
        if credential.authorization:
            headers.append(("Authorization", credential.authorization))
        for name, values in self._connection.headers.items():
            headers += [(name, value) for value in values.split("\n")]
        if request.content_type:
            headers.append(("Content-Type", request.content_type))
        if not is_stream:
            headers.append(("Accept-Encoding", "gzip"))
        reading = STREAM_READ_SECONDS if is_stream else READ_SECONDS
        extensions: dict[str, object] = {
            "timeout": {
                "connect": CONNECT_SECONDS,
                "read": reading,
                "write": READ_SECONDS,
                "pool": READ_SECONDS,
            }
        }
        if self._connection.tls.server_name:
            extensions["sni_hostname"] = self._connection.tls.server_name
        return httpx2.Request(
            request.method,
            self._connection.server + request.target,
            headers=headers,
            content=request.body or None,
            extensions=extensions,
        )

    @asynccontextmanager
    async def _use_pools(self, credential: Credential) -> AsyncIterator[_Pools]:
        pools = await self._find_pools(credential)
        pools.users += 1
        try:
            yield pools
        finally:
            pools.users -= 1
            if pools.is_retired and not pools.users:
                await pools.close()

    async def _find_pools(self, credential: Credential) -> _Pools:
        authority = self._connection.tls.read_authority()
        certificate = credential.certificate
        if (found := self._match(authority, certificate)) is not None:
            return found
        async with self._lock:
            if (found := self._match(authority, certificate)) is not None:
                return found
            if self._is_closed:
                closed = UnavailableError("the connection to the cluster was closed")
                closed.is_permanent = True
                raise closed
            made = await self._make_pools(authority, certificate)
            old, self._pools = self._pools, made
            if old is not None:
                old.is_retired = True
                if not old.users:
                    await old.close()
            return made

    def _match(self, authority: bytes, certificate: ClientCertificate | None) -> _Pools | None:
        pools = self._pools
        if pools is None or pools.authority != authority or pools.certificate != certificate:
            return None
        return pools

    async def _make_pools(self, authority: bytes, certificate: ClientCertificate | None) -> _Pools:
        if self._connection.server.startswith("http:"):
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # never used; trusts nobody
        else:
            context = await asyncio.to_thread(
                build_context, self._connection.tls, authority, certificate
            )
        return _Pools(
            authority, certificate, lambda most, kept: self._make_pool(context, most, kept)
        )

    def _make_pool(
        self, context: ssl.SSLContext, most: int, most_kept: int
    ) -> httpx2.AsyncHTTPTransport:
        limits = httpx2.Limits(
            max_connections=most, max_keepalive_connections=most_kept, keepalive_expiry=IDLE_SECONDS
        )
        try:
            return httpx2.AsyncHTTPTransport(
                verify=context, trust_env=False, limits=limits, proxy=self._proxy or None
            )
        except ImportError:
            raise ConnectionConfigError(
                f"{self._connection.source}: a SOCKS proxy needs the distribution 'socksio'",
                hint="install it beside the plugin, or use an HTTP proxy",
            ) from None
        except (ValueError, httpx2.InvalidURL):
            raise ConnectionConfigError(
                f"{self._connection.source}: the address of the proxy cannot be used"
            ) from None

    def _make_closed(self, request: Request) -> UnavailableError:
        error = UnavailableError(f"cannot {request.what}: the connection was closed")
        error.is_permanent = self._is_closed
        return error


class _HttpAnswer:
    """An answer of httpx2."""

    def __init__(self, request: Request, response: httpx2.Response, host: str) -> None:
        self._request = request
        self._response = response
        self._host = host
        self.head = ApiAnswer(
            http_status=response.status_code,
            content_type=response.headers.get("content-type", ""),
            headers={name.lower(): value for name, value in response.headers.items()},
            warnings=response.headers.get_list("warning"),
            body=b"",
        )

    async def read_head(self, *, is_stream: bool) -> None:
        """Reads the body, unless it is a stream that goes on."""
        if is_stream and self.head.is_success:
            return
        largest = self._request.largest_answer if self.head.is_success else LARGEST_REFUSAL
        parts, size = [], 0
        async for chunk in self.iter_chunks():
            size += len(chunk)
            if size > largest:
                if not self.head.is_success:
                    break
                raise TooLargeError(
                    f"cannot {self._request.what}: the answer has more than {largest} bytes",
                    http_status=self.head.http_status,
                )
            parts.append(chunk)
        head = self.head
        self.head = ApiAnswer(
            http_status=head.http_status,
            content_type=head.content_type,
            headers=head.headers,
            warnings=head.warnings,
            body=b"".join(parts),
        )

    async def iter_chunks(self) -> AsyncIterator[bytes]:
        try:
            async for chunk in self._response.aiter_bytes():
                yield chunk
        except (httpx2.HTTPError, httpx2.StreamError, OSError) as error:
            raise explain_failure(self._request, error, self._host) from error


def explain_failure(request: Request, error: Exception, host: str) -> UnavailableError:
    """Returns a failure of the network as a sentence, with what is known about the outcome."""
    cause = _find_cause(error)
    said = clean_message(str(cause) or str(error) or type(error).__name__, 300)
    is_permanent = False
    if isinstance(cause, ssl.SSLCertVerificationError):
        said = f"its certificate is not trusted: {clean_message(cause.verify_message, 300)}"
        is_permanent = True
    elif isinstance(error, httpx2.TimeoutException):
        kind = "connection" if isinstance(error, httpx2.ConnectTimeout) else "answer"
        said = f"no {kind} in time"
    elif isinstance(error, httpx2.RemoteProtocolError):
        said = "the connection was closed before the answer was complete"
    elif isinstance(error, httpx2.ProxyError):
        said = f"the proxy refused: {said}"
    elif isinstance(error, (httpx2.LocalProtocolError, httpx2.UnsupportedProtocol)):
        is_permanent = True
    failure = UnavailableError(
        f"cannot {request.what}: {host}: {said}",
        message=said,
        hint="certificate-authority of the kubeconfig names whom to trust"
        if isinstance(cause, ssl.SSLCertVerificationError)
        else "",
    )
    failure.was_refused = isinstance(
        error, (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout, httpx2.ProxyError)
    )
    failure.is_permanent = is_permanent
    return failure


def _find_cause(error: BaseException) -> BaseException:
    """Returns the error of the socket or of TLS behind those of the libraries."""
    seen: BaseException | None = error
    best = error
    for _ in range(10):
        if seen is None:
            break
        if isinstance(seen, (OSError, ssl.SSLError)):
            best = seen
        seen = seen.__cause__ or seen.__context__
    return best
