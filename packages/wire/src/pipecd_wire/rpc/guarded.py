# SPDX-License-Identifier: Apache-2.0
"""A router with an authenticator: a stranger's call is refused before it is read."""

from collections.abc import Awaitable, Callable, Iterable
from typing import Any, TypeAlias, cast

import grpc
from google.protobuf.message import Message

from pipecd_wire.rpc.authentication import Authenticator, IncomingCall, RefusalLog
from pipecd_wire.rpc.status import CODES, to_status

RpcHandler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"
Context: TypeAlias = "grpc.aio.ServicerContext[bytes, Message]"
Behaviour = Callable[[object, Context], Awaitable[Any]]


class GuardedRouter(grpc.GenericRpcHandler):
    """Passes only those calls to another router that the authenticator accepts.

    Calls of unknown methods are authenticated too: a stranger does not learn what is served.
    `ports` is filled while the server is set up.
    """

    def __init__(
        self, router: grpc.GenericRpcHandler, authenticator: Authenticator, ports: set[int]
    ) -> None:
        self._router = router
        self._authenticator = authenticator
        self._ports = ports
        self._refusals = RefusalLog()
        self._unknown: RpcHandler = grpc.stream_stream_rpc_method_handler(
            cast(Any, self._guard(_not_found))
        )
        self._built: dict[str, RpcHandler] = {}

    def service(self, details: grpc.HandlerCallDetails) -> RpcHandler:
        path = details.method
        if path not in self._built:
            handler = self._router.service(details)
            if handler is None:
                return self._unknown
            self._built[path] = self._guard_handler(handler)
        return self._built[path]

    def _guard_handler(self, handler: RpcHandler) -> RpcHandler:
        make: Callable[..., RpcHandler]
        if handler.response_streaming:
            make, inner = grpc.stream_stream_rpc_method_handler, handler.stream_stream
        else:
            make, inner = grpc.stream_unary_rpc_method_handler, handler.stream_unary
        behaviour = self._guard(cast(Behaviour, inner))
        return make(behaviour, response_serializer=handler.response_serializer)

    def _guard(self, behaviour: Behaviour) -> Behaviour:
        async def authenticate_first(requests: object, context: Context) -> Any:
            await self._authenticate(context)
            return await behaviour(requests, context)

        return authenticate_first

    async def _authenticate(self, context: Context) -> None:
        call = IncomingCall(
            metadata=text_metadata(context.invocation_metadata() or ()),
            peer=context.peer(),
            server_ports=frozenset(self._ports),
        )
        try:
            await self._authenticator(call)
        except Exception as error:  # noqa: BLE001 - any error refuses the call
            refusal = to_status(error, method="authenticator")
            self._refusals.note(call, refusal)
            await context.abort(CODES[refusal.status], refusal.message)


async def _not_found(_requests: object, context: Context) -> None:
    await context.abort(grpc.StatusCode.UNIMPLEMENTED, "Method not found!")


def text_metadata(given: Iterable[tuple[str, str | bytes]]) -> dict[str, str]:
    """Returns the metadata of a call that is text, of equal keys the last.

    Binary values (`…-bin`) belong to gRPC's own extensions; nothing of ours reads them.
    """
    return {key: value for key, value in given if isinstance(value, str)}
