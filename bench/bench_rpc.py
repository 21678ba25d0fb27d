# SPDX-License-Identifier: Apache-2.0
"""What our chain and the one-port front cost, against a bare grpc.aio server with the same answer.

Unary calls per second from a client in another process. The three servers are called in short
turns, and a ratio is taken within each round of turns: a machine that is busy for a while slows
down all of them alike. The order changes with each round. What a call costs this process in
processor time is measured beside it: it does not depend on what else runs.
"""

import asyncio
import statistics
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
from report import Bar, info, report

from pipecd_controlplane.http.server import serve_public
from pipecd_wire.apiservice import service_pb2 as pb
from pipecd_wire.model import application_pb2
from pipecd_wire.rpc import Endpoints, Metadata, Method, rpc, serving
from pipecd_wire.rpc.server import OPTIONS

ROUNDS = 60
SECONDS = 0.2
CALLERS = 16
WARM_UP = 3
"""Rounds that are not counted."""

CLIENT = Path(__file__).with_name("rpc_client.py")
KEYS = {"API-KEY bench": "bench"}
ANSWER = pb.GetApplicationResponse(
    application=application_pb2.Application(
        id="application-1", name="payment", piped_id="piped-1", project_id="default"
    )
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """What one turn with one server showed."""

    rate: float
    """Calls per second."""
    cpu: float
    """What a call costs this process, in microseconds of processor time."""


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


class Client:
    """The client process, with a connection to each server."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        if process.stdin is None or process.stdout is None:
            raise RuntimeError("the client was started without pipes")
        self._process = process
        self._input = process.stdin
        self._output = process.stdout

    async def measure(self, index: int) -> Turn:
        """Calls one server for `SECONDS`."""
        started = time.process_time()
        self._input.write(f"{index} {SECONDS}\n".encode())
        line = await self._output.readline()
        cpu = time.process_time() - started
        if not line:
            raise RuntimeError(f"the client ended with {await self._process.wait()}")
        calls, seconds = map(float, line.split())
        return Turn(rate=calls / seconds, cpu=cpu / calls * 1e6)


@asynccontextmanager
async def client(addresses: list[str]) -> AsyncIterator[Client]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(CLIENT),
        str(CALLERS),
        *addresses,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        yield Client(process)
    finally:
        process.kill()
        await process.wait()


async def main() -> None:
    turns: dict[str, list[Turn]] = {"bare": [], "chain": [], "front": []}
    async with (
        bare() as plain,
        serving(endpoints(), "127.0.0.1:0") as port,
        serve_public(no_pages, endpoints(), "127.0.0.1", 0) as front,
        client([plain, f"127.0.0.1:{port}", front]) as calling,
    ):
        order = list(enumerate(turns))
        for number in range(WARM_UP + ROUNDS):
            for index, name in order:
                turn = await calling.measure(index)
                if number >= WARM_UP:
                    turns[name].append(turn)
            order = order[1:] + order[:1]
    for name, measured in turns.items():
        info(f"rpc-{name}-rate", statistics.median(turn.rate for turn in measured), "calls/s")
        info(f"rpc-{name}-cpu", statistics.median(turn.cpu for turn in measured), "µs/call")
    for name, limit in (("chain", 0.70), ("front", 0.75)):
        pairs = list(zip(turns[name], turns["bare"], strict=True))
        ratio = statistics.median(ours.rate / plain.rate for ours, plain in pairs)
        cpu_ratio = statistics.median(plain.cpu / ours.cpu for ours, plain in pairs)
        report(f"rpc-{name}-ratio", ratio, "x", Bar(">=", limit))
        info(f"rpc-{name}-cpu-ratio", cpu_ratio, "x")


if __name__ == "__main__":
    asyncio.run(main())
