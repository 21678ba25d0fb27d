# SPDX-License-Identifier: Apache-2.0
"""Traces of pipeds: received at the control plane's address, forwarded to a collector if any.

Pipeds of both generations export spans to their control plane. The control plane does not read the
spans: it forwards the request as it is, with all of its unknown fields.
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
    """Returns the trace service, with messages that declare none of their fields.

    It has its own descriptor pool: in the default pool it would conflict with a library that
    registers the full definition.
    """
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
                # A piped can do nothing about our collector, and must not retry because of it.
                log.debug("traces.dropped", piped_id=caller.piped_id, error=str(error))
        return ExportResponse()


@asynccontextmanager
async def forwarding(endpoint: str) -> AsyncIterator[TelemetryApi]:
    """Yields the API, connected to the collector at `http://host:port` (or `https://`, or bare).

    Without an endpoint, spans are dropped.
    """
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
