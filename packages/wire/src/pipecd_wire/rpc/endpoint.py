# SPDX-License-Identifier: Apache-2.0
"""The chain every call goes through, whatever transport brought it.

Admit (authenticate and authorize the caller) → read the request → validate it → the handler →
errors to statuses. A request that took long to arrive is admitted again: the right may be gone.
Handlers therefore hold no permission code, no validation and no `try`.
"""

import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator
from contextlib import aclosing
from typing import Any, Final, cast

from google.protobuf.descriptor import ServiceDescriptor
from google.protobuf.message import DecodeError, Message

from pipecd_wire.rpc import validation
from pipecd_wire.rpc.handlers import (
    Handler,
    Metadata,
    Method,
    TwoHandlersError,
    gather,
    preparation,
)
from pipecd_wire.rpc.status import StatusError, to_status

Admit = Callable[[Method, Metadata], Awaitable[Any]]
"""Returns the caller, the first argument of every handler, or raises an error with a status."""

LATE_SECONDS: Final = 1.0
"""A request that took longer to arrive is late."""

ReadRequest = Callable[[], Awaitable[Message]]
"""Reads the request of a call. Called once its caller is admitted, never for a stranger."""

GuardStream = Callable[
    [Method, Metadata, Any, Message, AsyncGenerator[Message, None]], AsyncGenerator[Message, None]
]
"""Stands between a stream's handler and its caller; takes the method, the metadata, the caller,
the request, and the handler's responses. It yields the responses while the caller keeps the right
to them, raises an error with a status otherwise, and closes the handler's generator."""

Observe = Callable[[Method, str, float], None]
"""Called after every call: with the method, the status's name, the seconds it took."""

RunAudited = Callable[
    [Method, Any, Message, Callable[[Any, Any], Awaitable[Message]]], Awaitable[Message]
]
"""Runs the handler of an audited RPC, given the method, the caller and the request: returns the
handler's response, or raises its error."""

# What an older gateway called the services of the control plane; v0 pipeds still do.
LEGACY_PREFIX: Final = "/pipe.api.service."
PREFIX: Final = "/grpc.service."


async def admit_all(_method: Method, metadata: Metadata) -> Metadata:
    """Admits every caller, for a service that only its own machine reaches."""
    return metadata


class Endpoint:
    """One RPC with everything that stands between the wire and its handler."""

    __slots__ = (
        "_admit",
        "_admit_late",
        "_clock",
        "_guard_stream",
        "_handler",
        "_observers",
        "_prepare",
        "_run_audited",
        "method",
    )

    def __init__(
        self,
        method: Method,
        handler: Handler | None,
        admit: Admit,
        observers: tuple[Observe, ...],
        guard_stream: GuardStream | None = None,
        *,
        admit_late: Admit | None = None,
        run_audited: RunAudited | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.method = method
        self._run_audited = run_audited if method.is_audited else None
        self._handler = handler
        self._admit = admit
        self._admit_late = admit_late
        self._clock = clock
        self._guard_stream = guard_stream
        self._observers = observers
        self._prepare = preparation(handler)

    def parse(self, data: bytes) -> Message:
        """Returns the request in some bytes. Raises StatusError for bytes that are none."""
        try:
            return self.method.request.FromString(data)
        except DecodeError:
            name = self.method.request.DESCRIPTOR.name
            raise StatusError("INVALID_ARGUMENT", f"invalid request: not a {name}") from None

    async def unary(self, request: Message | ReadRequest, metadata: Metadata) -> Message:
        """Handles one call and returns its response; raises only StatusError, and cancellations.

        A request that is still to be read is read once its caller is admitted: a transport gives
        `ReadRequest`, so that no bytes are held for a caller that is not authenticated.
        """
        started = time.monotonic()
        status = "CANCELLED"  # unless one of the ways below is taken
        try:
            caller, message = await self._enter(request, metadata)
            handler = cast("Callable[[Any, Any], Awaitable[Message]]", self._handler)
            if self._run_audited is None:
                response = await handler(caller, message)
            else:
                response = await self._run_audited(self.method, caller, message, handler)
            status = "OK"
        except Exception as error:  # all handlers pass here: every error becomes a status
            refusal = to_status(error, method=self.method.path)
            status = refusal.status
            raise refusal from error
        finally:
            self._observe(status, started)
        return response

    async def stream(
        self, request: Message | ReadRequest, metadata: Metadata
    ) -> AsyncGenerator[Message, None]:
        """Handles one call and yields its responses; raises as `unary` does.

        A caller that stops reading early must close the generator, which ends the handler.
        """
        started = time.monotonic()
        status = "CANCELLED"
        try:
            caller, message = await self._enter(request, metadata)
            handler = cast("Callable[[Any, Any], AsyncGenerator[Message, None]]", self._handler)
            answers = handler(caller, message)
            if self._guard_stream is not None:
                answers = self._guard_stream(self.method, metadata, caller, message, answers)
            async with aclosing(answers) as responses:
                async for response in responses:
                    yield response
            status = "OK"
        except Exception as error:
            refusal = to_status(error, method=self.method.path)
            status = refusal.status
            raise refusal from error
        finally:
            self._observe(status, started)

    async def _enter(
        self, request: Message | ReadRequest, metadata: Metadata
    ) -> tuple[Any, Message]:
        if self._handler is None:
            raise StatusError("UNIMPLEMENTED", f"{self.method.name} is not served yet")
        caller = await self._admit(self.method, metadata)
        if isinstance(request, Message):
            message = request
        else:
            admitted_at = self._clock()
            message = await request()
            if self._admit_late is not None and self._clock() - admitted_at >= LATE_SECONDS:
                caller = await self._admit_late(self.method, metadata)
        if self._prepare is not None:
            self._prepare(message)
        if violation := validation.check(message):
            raise StatusError("INVALID_ARGUMENT", f"invalid request: {violation}")
        return caller, message

    def _observe(self, status: str, started: float) -> None:
        for observe in self._observers:
            observe(self.method, status, time.monotonic() - started)


class Endpoints:
    """All RPCs a process serves, found by their path."""

    def __init__(
        self,
        *,
        admit: Admit,
        observers: Iterable[Observe] = (),
        guard_stream: GuardStream | None = None,
        admit_late: Admit | None = None,
        run_audited: RunAudited | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`admit_late` admits a call again whose request took long to arrive."""
        self._run_audited = run_audited
        self._admit = admit
        self._admit_late = admit_late
        self._clock = clock
        self._guard_stream = guard_stream
        self._observers = tuple(observers)
        self._by_path: dict[str, Endpoint] = {}

    def add(
        self, service: ServiceDescriptor, *apis: object, unimplemented: Iterable[str] = ()
    ) -> None:
        """Serves a service from several small objects, each RPC by exactly one of them.

        Raises NoHandlerError, TwoHandlersError, HandlerTypeError or NoRightError.
        """
        for method, handler in gather(service, apis, unimplemented):
            if method.path in self._by_path:
                raise TwoHandlersError(f"{service.full_name} is served twice")
            self._by_path[method.path] = Endpoint(
                method,
                handler,
                self._admit,
                self._observers,
                self._guard_stream,
                admit_late=self._admit_late,
                run_audited=self._run_audited,
                clock=self._clock,
            )

    def find(self, path: str) -> Endpoint | None:
        """Returns the endpoint of `/package.Service/Method`, also by its legacy prefix, or None."""
        if path.startswith(LEGACY_PREFIX):
            path = PREFIX + path.removeprefix(LEGACY_PREFIX)
        return self._by_path.get(path)

    def __iter__(self) -> Iterator[Endpoint]:
        return iter(self._by_path.values())
