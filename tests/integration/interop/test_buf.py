# SPDX-License-Identifier: Apache-2.0
"""`buf curl`, a client written in Go over another gRPC implementation, against our one port.

It reads our protos itself, so that it also shows that they are understood elsewhere.
"""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from pipecd_test_support.interop import InteropServer, ServeInterop

BUF = Path(sys.executable).with_name("buf")
PROTO = Path(__file__).parents[3] / "proto"

LIMIT = 60.0

NOT_FOUND = 5
UNAUTHENTICATED = 16
INVALID_ARGUMENT = 3

GET_APPLICATION = "grpc.service.apiservice.APIService/GetApplication"
FOLLOW_LOG = "pipecd.api.v1.DeploymentService/FollowStageLog"

# What a v0 piped compiled against an older gateway calls.
LEGACY = """
syntax = "proto3";
package pipe.api.service.pipedservice;
service PipedService {
  rpc GetDesiredVersion(GetDesiredVersionRequest) returns (GetDesiredVersionResponse);
}
message GetDesiredVersionRequest {}
message GetDesiredVersionResponse { string version = 1; }
"""

pytestmark = pytest.mark.parametrize("protocol", ["grpc", "grpcweb"])


class Buf:
    """One call; `answers` are the messages received, `code` is the gRPC status."""

    def __init__(self, returncode: int, output: str, errors: str) -> None:
        self.code = returncode >> 3
        self.returncode = returncode
        self.answers = documents(output)
        self.errors = errors

    @property
    def message(self) -> str:
        return str(json.loads(self.errors)["message"])


def documents(text: str) -> list[Any]:
    """JSON documents, one after the other."""
    decoder, found = json.JSONDecoder(), []
    text = text.strip()
    while text:
        document, end = decoder.raw_decode(text)
        found.append(document)
        text = text[end:].lstrip()
    return found


async def buf(
    place: InteropServer,
    protocol: str,
    method: str,
    data: dict[str, Any],
    *,
    schema: Path = PROTO,
    key: str = "API-KEY interop",
) -> Buf:
    arguments = ["curl", "--protocol", protocol, "--schema", schema, "--data", json.dumps(data)]
    arguments += ["--header", f"authorization: {key}"]
    if protocol == "grpc":
        # A gRPC client offers HTTP/2 alone. buf, which speaks more than that, must be told to.
        arguments += ["--http2-prior-knowledge"]
    if place.roots_file is not None:
        arguments += ["--cacert", place.roots_file]
    async with asyncio.timeout(LIMIT):
        process = await asyncio.create_subprocess_exec(
            BUF,
            *map(str, arguments),
            f"{place.url}/{method}",
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        output, errors = await process.communicate()
    assert process.returncode is not None
    return Buf(process.returncode, output.decode(), errors.decode())


async def test_a_unary_call(serve: ServeInterop, protocol: str) -> None:
    async with serve() as place:
        called = await buf(place, protocol, GET_APPLICATION, {"applicationId": "app-1"})

    assert called.returncode == 0, called.errors
    assert called.answers == [
        {
            "application": {
                "id": "app-1",
                "name": "payment",
                "labels": {"env": "prod"},
                "createdAt": "1",
            }
        }
    ]


async def test_a_server_stream(serve: ServeInterop, protocol: str) -> None:
    request = {"deploymentId": "d", "stageId": "s", "fromIndex": "1"}

    async with serve() as place:
        called = await buf(place, protocol, FOLLOW_LOG, request)

    assert called.returncode == 0, called.errors
    assert called.answers == [
        {"blocks": [{"index": "1", "log": "line 1"}]},
        {"blocks": [{"index": "2", "log": "line 2"}]},
        {"completed": True},
    ]


async def test_a_refusal_with_its_sentence(serve: ServeInterop, protocol: str) -> None:
    async with serve() as place:
        called = await buf(place, protocol, GET_APPLICATION, {"applicationId": "none"})

    assert called.code == NOT_FOUND
    assert called.message == "no application 'none' (größer?)"


async def test_an_error_after_some_messages_of_a_stream(serve: ServeInterop, protocol: str) -> None:
    request = {"deploymentId": "d", "stageId": "lost"}

    async with serve() as place:
        called = await buf(place, protocol, FOLLOW_LOG, request)

    assert called.code == NOT_FOUND
    assert called.message == "the log is lost"
    assert len(called.answers) == 3


async def test_a_request_that_breaks_a_rule(serve: ServeInterop, protocol: str) -> None:
    async with serve() as place:
        called = await buf(place, protocol, GET_APPLICATION, {})

    assert called.code == INVALID_ARGUMENT
    assert called.message.startswith("invalid request: application_id")


async def test_a_stranger(serve: ServeInterop, protocol: str) -> None:
    async with serve() as place:
        called = await buf(place, protocol, GET_APPLICATION, {}, key="API-KEY wrong")

    assert called.code == UNAUTHENTICATED
    assert called.message == "who are you?"


async def test_the_legacy_path_of_a_service(
    serve: ServeInterop, protocol: str, tmp_path: Path
) -> None:
    schema = tmp_path / "legacy"
    schema.mkdir()
    (schema / "service.proto").write_text(LEGACY)
    method = "pipe.api.service.pipedservice.PipedService/GetDesiredVersion"

    async with serve() as place:
        called = await buf(place, protocol, method, {}, schema=schema)

    assert called.returncode == 0, called.errors
    assert called.answers == [{"version": "v1.2.3"}]
