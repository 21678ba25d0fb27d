# SPDX-License-Identifier: Apache-2.0
"""One call over gRPC: authenticates the caller, reads the request, sends the response."""

import urllib.parse
from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing
from typing import Any, Protocol

import grpc
from google.protobuf.message import Message

from pipecd_wire.rpc.deadlines import Deadlines
from pipecd_wire.rpc.endpoint import Endpoint, ReadRequest
from pipecd_wire.rpc.guarded import Context, RpcHandler, text_metadata
from pipecd_wire.rpc.handlers import PEER, Metadata
from pipecd_wire.rpc.limits import CallLimits
from pipecd_wire.rpc.status import CODES, StatusError


class RelayedClient(Protocol):
    """A caller whose connection is proxied by this process."""

    def address(self, metadata: Metadata) -> str:
        """Returns the caller's IP address."""

    def identify(self) -> None:
        """Called for each of its calls that was authenticated."""

    def abort(self, reason: str) -> None:
        """Ends its connection, because it does not read responses."""


def method_handler(
    endpoint: Endpoint, relayed: Mapping[str, RelayedClient], limits: CallLimits
) -> RpcHandler:
    # Requests are single messages, but gRPC would read one to its end before it calls us. As a
    # stream it is ours to read, once its caller is authenticated.
    serialize = endpoint.method.response.SerializeToString
    # No deserializer: for bytes that are no message grpc would send UNKNOWN and log a traceback.
    if endpoint.method.streams:
        return grpc.stream_stream_rpc_method_handler(
            _make_stream_behaviour(endpoint, relayed, limits), response_serializer=serialize
        )
    return grpc.stream_unary_rpc_method_handler(
        _make_unary_behaviour(endpoint, relayed, limits), response_serializer=_same
    )


def _same(data: bytes) -> bytes:
    return data


def _make_unary_behaviour(
    endpoint: Endpoint, relayed: Mapping[str, RelayedClient], limits: CallLimits
) -> Callable[[Any, Context], Awaitable[bytes]]:
    reads, answers = Deadlines(limits.read_seconds), Deadlines(limits.answer_seconds)
    forget: Any = answers.stop  # Any: the stub says that a callback takes nothing

    async def behaviour(_requests: Any, context: Context) -> bytes:
        peer = context.peer()
        client = relayed.get(peer)
        try:
            metadata = _metadata(context, peer, client, limits)
            request = _make_reader(endpoint, context, client, reads)
            answer = (await endpoint.unary(request, metadata)).SerializeToString()
        except StatusError as refusal:
            await context.abort(CODES[refusal.status], refusal.message, tuple(refusal.trailers))
        if client is not None:
            # Most have been sent long before their deadline.
            answers.start(context, lambda: client.abort("answer not taken"))
            context.add_done_callback(forget)
        return answer

    return behaviour


def _make_stream_behaviour(
    endpoint: Endpoint, relayed: Mapping[str, RelayedClient], limits: CallLimits
) -> Callable[[Any, Context], Awaitable[None]]:
    # Written with `write` and not as a generator: grpc.aio leaves a generator of a cancelled call
    # to the garbage collector, and the handler's `finally` would run at some time, in some task.
    reads, answers = Deadlines(limits.read_seconds), Deadlines(limits.answer_seconds)

    async def behaviour(_requests: Any, context: Context) -> None:
        peer = context.peer()
        client = relayed.get(peer)
        try:
            metadata = _metadata(context, peer, client, limits)
            request = _make_reader(endpoint, context, client, reads)
            async with aclosing(endpoint.stream(request, metadata)) as responses:
                async for response in responses:
                    await answers.wait(context.write(response))
        except TimeoutError:
            await context.abort(CODES["CANCELLED"], "the caller does not take the answer")
        except StatusError as refusal:
            await context.abort(CODES[refusal.status], refusal.message, tuple(refusal.trailers))

    return behaviour


def _make_reader(
    endpoint: Endpoint, context: Context, client: RelayedClient | None, reads: Deadlines
) -> ReadRequest:
    """Returns a function that reads the one message of a request of an authenticated caller."""

    async def read() -> Message:
        if client is not None:
            client.identify()
        try:
            data: Any = await reads.wait(context.read())
        except TimeoutError:
            raise StatusError(
                "DEADLINE_EXCEEDED",
                f"the request did not arrive within {reads.limit_seconds:g} seconds",
            ) from None
        if data is grpc.aio.EOF:
            raise StatusError(
                "UNIMPLEMENTED", "a request must be exactly one message, this has none"
            )
        return endpoint.parse(data)

    return read


def _metadata(
    context: Context, peer: str, client: RelayedClient | None, limits: CallLimits
) -> Metadata:
    given = context.invocation_metadata() or ()
    if limits.max_header_fields is not None and len(given) > limits.max_header_fields:
        raise StatusError(
            "RESOURCE_EXHAUSTED", f"more than {limits.max_header_fields} header fields"
        )
    metadata = text_metadata(given)
    metadata[PEER] = client.address(metadata) if client else _address(peer)
    return metadata


def _address(peer: str) -> str:
    """Returns the IP address in a name such as `ipv4:10.0.0.7:41808` or `ipv6:%5B::1%5D:41808`."""
    family, _, rest = peer.partition(":")
    if family not in {"ipv4", "ipv6"}:
        return ""
    return urllib.parse.unquote(rest).rpartition(":")[0].strip("[]")
