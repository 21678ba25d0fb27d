# SPDX-License-Identifier: Apache-2.0
"""What our chain and the one-port front cost, against a bare grpc.aio server with the same answer.

Unary calls per second from a client in another process. The rounds are interleaved and a ratio is
taken within each, so that a machine that is busy for a while slows down all of them alike.
"""

import asyncio
import statistics
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
from report import Bar, info, report

from pipecd_controlplane.http.server import serve_public
from pipecd_wire.apiservice import service_pb2 as pb
from pipecd_wire.model import application_pb2
from pipecd_wire.rpc import Endpoints, Metadata, Method, rpc, serving
from pipecd_wire.rpc.server import OPTIONS

ROUNDS = 9
SECONDS = 1
CALLERS = 16

CLIENT = Path(__file__).with_name("rpc_client.py")
KEYS = {"API-KEY bench": "bench"}
ANSWER = pb.GetApplicationResponse(
    application=application_pb2.Application(
        id="application-1", name="payment", piped_id="piped-1", project_id="default"
    )
)


class Bare(grpc.GenericRpcHandler):
    """The least that grpc.aio needs to answer a call, done as generated code does it."""

    def __init__(self) -> None:
        async def get_application(request: pb.GetApplicationRequest, context: Any) -> Any:
            return ANSWER

        self._handlers = {
            "/grpc.service.apiservice.APIService/GetApplication": (
                grpc.unary_unary_rpc_method_handler(
                    get_application,
                    request_deserializer=pb.GetApplicationRequest.FromString,
                    response_serializer=pb.GetApplicationResponse.SerializeToString,
                )
            )
        }

    def service(self, details: grpc.HandlerCallDetails) -> Any:
        return self._handlers.get(details.method)


class Api:
    @rpc("GetApplication")
    async def get_application(
        self, caller: str, request: pb.GetApplicationRequest
    ) -> pb.GetApplicationResponse:
        return ANSWER


async def admit(method: Method, metadata: Metadata) -> str:
    return KEYS[metadata["authorization"]]


def endpoints() -> Endpoints:
    service = pb.DESCRIPTOR.services_by_name["APIService"]
    made = Endpoints(admit=admit)
    unimplemented = [method.name for method in service.methods if method.name != "GetApplication"]
    made.add(service, Api(), unimplemented=unimplemented)
    return made


@asynccontextmanager
async def bare() -> AsyncIterator[str]:
    server = grpc.aio.server(options=OPTIONS)
    server.add_generic_rpc_handlers((Bare(),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(0)


async def no_pages(scope: Any, receive: Any, send: Any) -> None:
    raise AssertionError("nothing here asks for a page")


async def measure(address: str) -> tuple[float, float]:
    """Calls per second, and what one costs this process in microseconds of processor time."""
    started = time.process_time()
    arguments = [CLIENT, address, SECONDS, CALLERS]
    process = await asyncio.create_subprocess_exec(
        sys.executable, *map(str, arguments), stdout=asyncio.subprocess.PIPE
    )
    output, _ = await process.communicate()
    if process.returncode != 0:
        raise RuntimeError(f"the client ended with {process.returncode}")
    rate, calls = map(float, output.split())
    return rate, (time.process_time() - started) / calls * 1e6


async def main() -> None:
    rates: dict[str, list[float]] = {"bare": [], "chain": [], "front": []}
    cpu: dict[str, list[float]] = {"bare": [], "chain": [], "front": []}
    async with (
        bare() as plain,
        serving(endpoints(), "127.0.0.1:0") as port,
        serve_public(no_pages, endpoints(), "127.0.0.1", 0) as front,
    ):
        addresses = {"bare": plain, "chain": f"127.0.0.1:{port}", "front": front}
        for _ in range(ROUNDS):
            for name, address in addresses.items():
                rate, cost = await measure(address)
                rates[name].append(rate)
                cpu[name].append(cost)
    for name, measured in rates.items():
        info(f"rpc-{name}-rate", statistics.median(measured), "calls/s")
        info(f"rpc-{name}-cpu", statistics.median(cpu[name]), "µs/call")
    for name, limit in (("chain", 0.70), ("front", 0.75)):
        ratios = [ours / plain for ours, plain in zip(rates[name], rates["bare"], strict=True)]
        report(f"rpc-{name}-ratio", statistics.median(ratios), "x", Bar(">=", limit))


if __name__ == "__main__":
    asyncio.run(main())
