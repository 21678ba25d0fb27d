# SPDX-License-Identifier: Apache-2.0
"""gRPC servers and clients: the only package of ours that imports grpc.

A service is written as small objects with `@rpc` methods, gathered by `Endpoints`, and served by
`serving` (gRPC) or by `pipecd_wire.rpc.web` (gRPC-Web). A client is `connect`, a generated stub,
and `call` or `stream`.
"""

from pipecd_wire.rpc.authentication import (
    Authenticator,
    IncomingCall,
    has_token,
    require_own_user,
)
from pipecd_wire.rpc.calls import RelayedClient
from pipecd_wire.rpc.channel import (
    Channel,
    Retry,
    call,
    connect,
    stream,
    wait_until_ready,
)
from pipecd_wire.rpc.endpoint import (
    Admit,
    Endpoint,
    Endpoints,
    GuardStream,
    Observe,
    ReadRequest,
    RunAudited,
    admit_all,
)
from pipecd_wire.rpc.handlers import (
    PEER,
    HandlerTypeError,
    Metadata,
    Method,
    NoHandlerError,
    NoRightError,
    TwoHandlersError,
    rpc,
)
from pipecd_wire.rpc.limits import MAX_MESSAGE, CallLimits
from pipecd_wire.rpc.server import AddressError, Server, ServerTls, serving
from pipecd_wire.rpc.status import CallError, StatusError
from pipecd_wire.rpc.tls import (
    ClientTls,
    has_certificate,
    is_local,
    make_ssl_context,
)
from pipecd_wire.rpc.unreachable import ConnectionTrouble, explain_unreachable

__all__ = [
    "MAX_MESSAGE",
    "PEER",
    "AddressError",
    "Admit",
    "Authenticator",
    "CallError",
    "CallLimits",
    "Channel",
    "ClientTls",
    "ConnectionTrouble",
    "Endpoint",
    "Endpoints",
    "GuardStream",
    "HandlerTypeError",
    "IncomingCall",
    "Metadata",
    "Method",
    "NoHandlerError",
    "NoRightError",
    "Observe",
    "ReadRequest",
    "RelayedClient",
    "Retry",
    "RunAudited",
    "Server",
    "ServerTls",
    "StatusError",
    "TwoHandlersError",
    "admit_all",
    "call",
    "connect",
    "explain_unreachable",
    "has_certificate",
    "has_token",
    "is_local",
    "make_ssl_context",
    "require_own_user",
    "rpc",
    "serving",
    "stream",
    "wait_until_ready",
]
