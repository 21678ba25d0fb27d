# SPDX-License-Identifier: Apache-2.0
"""Traces of pipeds: taken at the address they know, sent on to a collector when there is one.

Pipeds of both generations export spans to their control plane. What the spans hold is nothing to
us: the request is taken as it is, unknown fields and all, and sent on unread.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from google.protobuf import descriptor_pb2, descriptor_pool
from google.protobuf.descriptor import ServiceDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from pipecd_controlplane.auth.caller import Agent
from pipecd_runtime.logs import logger
from pipecd_wire.options import rights_pb2
from pipecd_wire.rpc import CallError, ClientTls, call, connect, rpc

log = logger(__name__)

PACKAGE: Final = "opentelemetry.proto.collector.trace.v1"
EXPORT: Final = f"/{PACKAGE}.TraceService/Export"
EXPORT_TIMEOUT_SECONDS: Final = 5.0


def _describe() -> ServiceDescriptor:
    """The service with messages that know none of their fields, in a pool of its own: in the
    common one it would be in the way of a library that brings the whole of it."""
    file = descriptor_pb2.FileDescriptorProto(
        name="pipecd/otlp/trace_service.proto", package=PACKAGE, syntax="proto3"
    )
    for name in ("ExportTraceServiceRequest", "ExportTraceServiceResponse"):
        file.message_type.add(name=name)
    service = file.service.add(name="TraceService")
    service.options.Extensions[rights_pb2.callers].append(rights_pb2.PIPED)
    export = service.method.add(
        name="Export",
        input_type=f".{PACKAGE}.ExportTraceServiceRequest",
        output_type=f".{PACKAGE}.ExportTraceServiceResponse",
    )
    export.options.Extensions[rights_pb2.without_lease] = True
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    described: ServiceDescriptor = pool.FindServiceByName(f"{PACKAGE}.TraceService")
    return described


SERVICE: Final = _describe()

if TYPE_CHECKING:
    ExportRequest = Message
    ExportResponse = Message
else:
    ExportRequest = GetMessageClass(SERVICE.methods[0].input_type)
    ExportResponse = GetMessageClass(SERVICE.methods[0].output_type)


class TelemetryApi:
    """Forwards spans; drops them when there is no collector."""

    def __init__(self, export: Any = None) -> None:
        self._export = export

    @rpc("Export")
    async def export(self, caller: Agent, request: ExportRequest) -> ExportResponse:
        if self._export is not None:
            try:
                await call(self._export, request, deadline=EXPORT_TIMEOUT_SECONDS)
            except CallError as error:
                # A piped can do nothing about our collector, and must not try again for it.
                log.debug("traces.dropped", piped_id=caller.piped_id, error=str(error))
        return ExportResponse()


@asynccontextmanager
async def forwarding(endpoint: str) -> AsyncIterator[TelemetryApi]:
    """The intake, connected to `http://host:port` (or `https://`, or bare) while the block runs."""
    if not endpoint:
        yield TelemetryApi()
        return
    url = urlsplit(endpoint if "//" in endpoint else f"http://{endpoint}")
    tls = ClientTls() if url.scheme == "https" else None
    async with connect(f"{url.hostname}:{url.port or 4317}", tls=tls) as channel:
        yield TelemetryApi(
            channel.unary_unary(
                EXPORT,
                request_serializer=ExportRequest.SerializeToString,
                response_deserializer=ExportResponse.FromString,
            )
        )
