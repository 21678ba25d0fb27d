# SPDX-License-Identifier: Apache-2.0
"""Calls RPCs: a channel with our limits, calls with deadlines, retries with backoff."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, NamedTuple, TypeVar

import grpc

from pipecd_runtime.backoff import Backoff
from pipecd_wire.rpc.limits import MAX_MESSAGE, message_limits
from pipecd_wire.rpc.loop import claim_loop
from pipecd_wire.rpc.status import CallError, from_rpc_error
from pipecd_wire.rpc.tls import ClientTls, find_roots, is_local

Channel = grpc.aio.Channel

Pairs = Sequence[tuple[str, str]]

Request = TypeVar("Request")
Response = TypeVar("Response")

DEADLINE_SECONDS: Final = 15.0
"""Seconds a unary call may take unless its caller says otherwise: every wait has a limit."""

UNREADABLE: Final = "the answer is not a message of the protocol"

OPTIONS: Final = (
    # gRPC's own backoff between connection attempts grows to two minutes; ours stays short, so
    # that a peer that is back is seen at once.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 1_000),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    # Calls of one channel share connections with no other: a closed channel is really closed.
    ("grpc.use_local_subchannel_pool", 1),
)


class Retry(NamedTuple):
    """Retries a call that failed with a transient status, with backoff and full jitter.

    `attempts` None retries until it succeeds. `also` names statuses that are retried although they
    look like bugs of the peer (a report must be delivered, whatever the first response was).
    """

    attempts: int | None = 3
    base_seconds: float = 0.2
    cap_seconds: float = 10.0
    also: frozenset[str] = frozenset()

    def again(self, error: CallError, attempt: int) -> bool:
        """Returns whether to retry after attempt number `attempt` (from 1) failed."""
        if self.attempts is not None and attempt >= self.attempts:
            return False
        bug = error.status in {"INTERNAL", "UNKNOWN", "DATA_LOSS"}
        return error.status in self.also or (error.transient and not bug)

    def pause(self, attempt: int) -> float:
        backoff = Backoff(
            first_seconds=self.base_seconds, longest_seconds=self.cap_seconds, jitter=1
        )
        return backoff.pause_seconds_after(attempt)


@asynccontextmanager
async def connect(
    target: str,
    *,
    tls: ClientTls | None = None,
    metadata: Callable[[], Pairs] | None = None,
    max_message: int = MAX_MESSAGE,
    keepalive: float | None = None,
) -> AsyncIterator[Channel]:
    """Yields a channel to `host:port` (or `unix:PATH`); the first call connects.

    `metadata` is called before each call. `keepalive` seconds between pings only for a peer of our
    own: a Go server cuts off a client that pings more often than every five minutes.
    """
    claim_loop()
    options: list[tuple[str, Any]] = [*OPTIONS, *message_limits(max_message)]
    if is_local(target):
        # A proxy of the environment is for the world outside, never for this machine itself.
        options.append(("grpc.enable_http_proxy", 0))
    if keepalive is not None:
        options += [
            ("grpc.keepalive_time_ms", int(keepalive * 1000)),
            ("grpc.keepalive_timeout_ms", 10_000),
            ("grpc.http2.max_pings_without_data", 0),
        ]
    interceptors: list[grpc.aio.ClientInterceptor] = []
    if metadata is not None:
        interceptors = [_UnaryMetadata(metadata), _StreamMetadata(metadata)]
    if tls is None:
        channel = grpc.aio.insecure_channel(target, options=options, interceptors=interceptors)
    else:
        channel = grpc.aio.secure_channel(
            target,
            grpc.ssl_channel_credentials(find_roots(tls)),
            options=options,
            interceptors=interceptors,
        )
    async with channel:
        yield channel


async def wait_until_ready(channel: Channel, *, limit: float) -> None:
    """Waits until the peer accepts connections. Raises CallError UNAVAILABLE after the limit."""
    try:
        async with asyncio.timeout(limit):
            await channel.channel_ready()
    except TimeoutError:
        raise CallError("UNAVAILABLE", f"not reachable within {limit:g}s") from None


async def call(
    method: "grpc.aio.UnaryUnaryMultiCallable[Request, Response]",
    request: Request,
    *,
    deadline: float | None = DEADLINE_SECONDS,
    retry: Retry | None = None,
    metadata: Pairs = (),
    on_failed: Callable[[CallError], None] = lambda _: None,
) -> Response:
    """Calls a unary RPC of a stub: `await call(stub.GetDeployment, request)`. Raises CallError.

    `on_failed` is told of every attempt that failed, also of those that are retried.
    """
    attempt = 0
    while True:
        attempt += 1
        try:
            response: Response | None = await method(
                request, timeout=deadline, metadata=tuple(metadata)
            )
        except grpc.aio.AioRpcError as failed:
            error = from_rpc_error(failed, method=_name(method))
            on_failed(error)
            if retry is None or not retry.again(error, attempt):
                raise error from None
        else:
            return _readable(response, method)
        await asyncio.sleep(retry.pause(attempt))


async def stream(
    method: "grpc.aio.UnaryStreamMultiCallable[Request, Response]",
    request: Request,
    *,
    deadline: float | None = None,
    metadata: Pairs = (),
) -> AsyncGenerator[Response, None]:
    """Yields from a server stream: `async for x in stream(stub.Watch, request)`. Raises CallError.

    Leaving the loop early cancels the call once the generator is closed: use `contextlib.aclosing`.
    """
    reading = method(request, timeout=deadline, metadata=tuple(metadata))
    try:
        async for response in reading:
            yield _readable(response, method)
    except grpc.aio.AioRpcError as failed:
        raise from_rpc_error(failed, method=_name(method)) from None
    finally:
        reading.cancel()


def _readable(response: Response | None, method: object) -> Response:
    """Returns the response. Raises CallError when gRPC could not parse it, and gives None."""
    if response is None:
        raise CallError("INTERNAL", UNREADABLE, method=_name(method))
    return response


def _name(method: object) -> str:
    path = getattr(method, "_method", b"")
    return path.decode() if isinstance(path, bytes) else str(path)


class _UnaryMetadata(grpc.aio.UnaryUnaryClientInterceptor):
    def __init__(self, metadata: Callable[[], Pairs]) -> None:
        self._metadata = metadata

    async def intercept_unary_unary(self, continuation: Any, details: Any, request: Any) -> Any:
        return await continuation(_add_metadata(details, self._metadata()), request)


class _StreamMetadata(grpc.aio.UnaryStreamClientInterceptor):
    def __init__(self, metadata: Callable[[], Pairs]) -> None:
        self._metadata = metadata

    async def intercept_unary_stream(self, continuation: Any, details: Any, request: Any) -> Any:
        return await continuation(_add_metadata(details, self._metadata()), request)


def _add_metadata(details: Any, pairs: Pairs) -> grpc.aio.ClientCallDetails:
    extended: grpc.aio.ClientCallDetails = details._replace(
        metadata=grpc.aio.Metadata(*(details.metadata or ()), *pairs)
    )
    return extended
