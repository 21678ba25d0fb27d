# SPDX-License-Identifier: Apache-2.0
"""RPCs as the protos declare them: who may call them, and which function handles them."""

import inspect
import typing
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple, TypeVar

from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from pipecd_wire.model import project_pb2, rbac_pb2
from pipecd_wire.options import rights_pb2

Metadata = Mapping[str, str]
"""The metadata of a call: lower-case keys, text values; the last one wins."""

PEER: Final = ":peer"
"""The key under which the transport puts the caller's IP address, empty when there is none.

No caller can send a key that starts with a colon.
"""

Handler = Callable[[Any, Any], Awaitable[Message]] | Callable[[Any, Any], AsyncIterator[Message]]

F = TypeVar("F", bound=Callable[..., Any])

Prepare = Callable[[Any], None]
"""Changes a request before its rules are checked, to correct what a known client gets wrong."""

_READING: Final = frozenset({project_pb2.ProjectRBACPolicy.GET, project_pb2.ProjectRBACPolicy.LIST})

_MARK = "__rpc_name__"
_PREPARE = "__rpc_prepare__"


class NoHandlerError(Exception):
    """An RPC of a service has no handler and is not among the unimplemented ones."""


class TwoHandlersError(Exception):
    """An RPC has two handlers, or has one although it is listed as unimplemented."""


class HandlerTypeError(Exception):
    """A handler does not fit its RPC: wrong messages, or a stream where none is."""


class NoRightError(Exception):
    """The protos do not declare who may call an RPC."""


class Method(NamedTuple):
    """One RPC as declared in the protos."""

    path: str
    service: str
    name: str
    request: type[Message]
    response: type[Message]
    streams: bool
    callers: frozenset[int]
    """Kinds of caller, `pipecd.options.Caller`."""
    role: int
    """The role an API key needs, `pipecd.options.Role`."""
    rbac: rbac_pb2.RBAC | None
    """The right a session needs."""
    without_lease: bool
    """Whether a piped may call it although its lease went to another instance."""
    checks_labels: bool
    """Whether its handler checks labels; a right limited to labels allows no other methods."""
    own_right: int = rights_pb2.OWN_RIGHT_UNSPECIFIED
    """A right that upstream's roles have no word for, `pipecd.options.OwnRight`."""
    is_audited: bool = False
    """Whether a call of it is written to the audit of its project."""


def rpc(name: str, *, prepare: Prepare | None = None) -> Callable[[F], F]:
    """Marks `async def f(self, caller, request) -> response` as the handler of the RPC `name`."""

    def mark(function: F) -> F:
        setattr(function, _MARK, name)
        setattr(function, _PREPARE, prepare)
        return function

    return mark


def preparation(handler: Handler | None) -> Prepare | None:
    """Returns the function that prepares the requests of a handler, None without one."""
    found: Prepare | None = getattr(handler, _PREPARE, None)
    return found


def describe(descriptor: MethodDescriptor) -> Method:
    """Returns one RPC as its descriptor declares it.

    Raises NoRightError when it does not say who may call it, or contradicts itself.
    """
    service = descriptor.containing_service
    callers = frozenset(service.GetOptions().Extensions[rights_pb2.callers])
    options = descriptor.GetOptions()
    role = options.Extensions[rights_pb2.role]
    rbac = options.Extensions[rbac_pb2.rbac] if options.HasExtension(rbac_pb2.rbac) else None
    without_lease = options.Extensions[rights_pb2.without_lease]
    checks_labels = options.Extensions[rights_pb2.checks_labels]
    own_right = options.Extensions[rights_pb2.own_right]
    is_audited = _is_audited(options.Extensions[rights_pb2.audit], callers, role, rbac)
    missing = None
    if not callers:
        missing = "the service names no callers"
    elif rights_pb2.API_KEY in callers and role == rights_pb2.ROLE_UNSPECIFIED:
        missing = "it takes API keys but names no role"
    elif rights_pb2.SESSION in callers and rbac is None:
        missing = "it takes sessions but names no right"
    elif without_lease and rights_pb2.PIPED not in callers:
        missing = "it needs no lease but no piped may call it"
    elif checks_labels and rights_pb2.SESSION not in callers:
        missing = "it checks labels but takes no sessions"
    elif own_right and (rbac is None or rbac.ignored):
        missing = "it names a right of ours, but not on what"
    elif is_audited and descriptor.server_streaming:
        missing = "it is audited, so it must have one answer"
    if missing:
        raise NoRightError(f"{service.full_name}.{descriptor.name} has no right: {missing}")
    return Method(
        path=f"/{service.full_name}/{descriptor.name}",
        service=service.full_name,
        name=descriptor.name,
        request=GetMessageClass(descriptor.input_type),
        response=GetMessageClass(descriptor.output_type),
        streams=descriptor.server_streaming,
        callers=callers,
        role=role,
        rbac=rbac,
        without_lease=without_lease,
        checks_labels=checks_labels,
        own_right=own_right,
        is_audited=is_audited,
    )


def _is_audited(
    declared: int, callers: frozenset[int], role: int, rbac: rbac_pb2.RBAC | None
) -> bool:
    """Returns whether an RPC is audited: as it declares, else when people may change things by it.

    Whoever adds an RPC need not think of it: only one that declares a right to read is left out.
    """
    if declared != rights_pb2.AUDIT_BY_RIGHTS:
        return declared == rights_pb2.AUDITED
    if not callers & {rights_pb2.API_KEY, rights_pb2.SESSION}:
        return False
    if rbac is None or rbac.ignored:
        return role == rights_pb2.READ_WRITE
    return rbac.action not in _READING


def gather(
    service: ServiceDescriptor, apis: Iterable[object], unimplemented: Iterable[str] = ()
) -> list[tuple[Method, Handler | None]]:
    """Returns every RPC of a service with its one handler, None for the unimplemented ones.

    Raises NoHandlerError, TwoHandlersError, HandlerTypeError or NoRightError.
    """
    methods = {descriptor.name: describe(descriptor) for descriptor in service.methods}
    found: dict[str, Handler] = {}
    for api in apis:
        for name, handler in _iter_marked(api):
            if name not in methods:
                raise NoHandlerError(f"{service.full_name} has no RPC {name!r} for {handler!r}")
            if name in found:
                raise TwoHandlersError(f"{service.full_name}.{name} has two handlers")
            _check_types(methods[name], handler)
            found[name] = handler
    unimplemented = set(unimplemented)
    if wrong := sorted(unimplemented & found.keys() | unimplemented - methods.keys()):
        raise TwoHandlersError(
            f"{service.full_name}: no longer unimplemented, strike from the list: {wrong}"
        )
    if missing := sorted(methods.keys() - found.keys() - unimplemented):
        raise NoHandlerError(f"{service.full_name} has no handler for {', '.join(missing)}")
    return [(method, found.get(name)) for name, method in methods.items()]


def _iter_marked(api: object) -> Iterable[tuple[str, Handler]]:
    for attribute, function in inspect.getmembers(type(api), inspect.isfunction):
        if name := getattr(function, _MARK, None):
            yield name, getattr(api, attribute)


def _check_types(method: Method, handler: Handler) -> None:
    """Raises HandlerTypeError for a handler that would fail at its first call."""
    is_generator = inspect.isasyncgenfunction(handler)
    if is_generator != method.streams:
        kind = "an async generator" if method.streams else "a coroutine function"
        raise HandlerTypeError(f"{method.path}: the handler must be {kind}")
    hints = typing.get_type_hints(handler)
    parameters = list(inspect.signature(handler).parameters)
    wanted = hints.get(parameters[-1])
    if wanted is not method.request:
        raise HandlerTypeError(f"{method.path}: the handler takes {wanted}, not {method.request}")
