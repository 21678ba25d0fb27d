# SPDX-License-Identifier: Apache-2.0
"""A gRPC server that answers every method as a test says, and remembers what it was called with."""

import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent import futures
from contextlib import contextmanager
from dataclasses import dataclass, field

import grpc
from google.protobuf.message import Message


@dataclass(kw_only=True)
class StubServer:
    """Answers a method with messages, or ends it with a status; other methods it refuses."""

    answers: Mapping[str, Sequence[Message]] = field(default_factory=dict)
    """By the name of the method."""
    status: grpc.StatusCode | None = None
    """What every call ends with, if anything."""
    statuses: Mapping[str, grpc.StatusCode] = field(default_factory=dict)
    """What calls of some methods end with, by the name of the method."""
    holds: bool = False
    """Does a stream stay open after its last message?"""
    address: str = ""
    calls: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    """Each call: the name of its method, and its metadata."""
    called: threading.Event = field(default_factory=threading.Event)
    """Set at the first call."""
    ended: threading.Event = field(default_factory=threading.Event)

    def respond(self, name: str, context: grpc.ServicerContext) -> Iterator[bytes]:
        """Answer one call."""
        metadata = {str(key): str(value) for key, value in context.invocation_metadata()}
        self.calls.append((name, metadata))
        self.called.set()
        status = self.statuses.get(name, self.status)
        if status is not None:
            context.abort(status, "as the test says")
        if name not in self.answers:
            context.abort(grpc.StatusCode.UNIMPLEMENTED, f"no answer for {name}")
        for message in self.answers[name]:
            yield message.SerializeToString()
        if self.holds:
            self.ended.wait()


class _AnyMethod(grpc.GenericRpcHandler):
    def __init__(self, server: StubServer) -> None:
        self._server = server

    def service(self, details: grpc.HandlerCallDetails) -> "grpc.RpcMethodHandler[bytes, bytes]":
        name = str(details.method).rpartition("/")[2]

        def stream(_request: bytes, context: grpc.ServicerContext) -> Iterator[bytes]:
            return self._server.respond(name, context)

        return grpc.unary_stream_rpc_method_handler(stream)


@contextmanager
def serving_stub(server: StubServer) -> Iterator[StubServer]:
    """Run the server at a free port of this machine while the block runs."""
    # A unary call is a stream of one message: the wire is the same.
    running = grpc.server(futures.ThreadPoolExecutor(max_workers=4), handlers=[_AnyMethod(server)])
    server.address = f"127.0.0.1:{running.add_insecure_port('127.0.0.1:0')}"
    running.start()
    try:
        yield server
    finally:
        server.ended.set()
        running.stop(None).wait()
