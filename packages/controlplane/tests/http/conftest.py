# SPDX-License-Identifier: Apache-2.0
"""A tiny service and a page for the tests of the server, and a certificate authority for TLS."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import trustme
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from pipecd_controlplane.http.server import CertificateFiles
from pipecd_wire.pipecd.api import api_pb2 as pb
from pipecd_wire.rpc import PEER, Endpoints, Metadata, admit_all, rpc


@dataclass
class Api:
    """Echoes; waits where the test says so; tells the caller's address when asked for `peer`."""

    started: asyncio.Event = field(default_factory=asyncio.Event)
    finish: asyncio.Event = field(default_factory=asyncio.Event)
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    @rpc("ReleaseHold")
    async def release_hold(
        self, caller: Metadata, request: pb.ReleaseHoldRequest
    ) -> pb.ReleaseHoldResponse:
        if request.application_id == "wait":
            self.started.set()
            try:
                await self.finish.wait()
            finally:
                self.ended.set()
        answer = caller[PEER] if request.application_id == "peer" else request.application_id
        return pb.ReleaseHoldResponse(command_id=answer)

    @property
    def watch(self) -> "Watch":
        return Watch(self)


class Watch:
    """Streams a message, and the next when the test says so."""

    def __init__(self, api: Api) -> None:
        self._api = api

    @rpc("WatchChanges")
    async def watch_changes(
        self, caller: Metadata, request: pb.WatchChangesRequest
    ) -> AsyncIterator[pb.WatchChangesResponse]:
        self._api.started.set()
        try:
            yield pb.WatchChangesResponse(changes=[pb.Change(id="first")])
            await self._api.finish.wait()
            yield pb.WatchChangesResponse(changes=[pb.Change(id="second")])
        finally:
            self._api.ended.set()


@pytest.fixture
def api() -> Api:
    return Api()


@pytest.fixture
def endpoints(api: Api) -> Endpoints:
    made = Endpoints(admit=admit_all)
    services: Any = pb.DESCRIPTOR.services_by_name
    applications = services["ApplicationService"]
    made.add(applications, api, unimplemented=set(applications.methods_by_name) - {"ReleaseHold"})
    made.add(services["ProjectService"], api.watch, unimplemented=["ListAudit"])
    return made


@pytest.fixture
def pages() -> Starlette:
    async def healthz(_request: Request) -> PlainTextResponse:
        return PlainTextResponse("ok")

    return Starlette(routes=[Route("/healthz", healthz)])


@pytest.fixture(scope="session")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def roots(authority: trustme.CA) -> bytes:
    """What a client trusts, as PEM."""
    return authority.cert_pem.bytes()


@pytest.fixture
def tls(authority: trustme.CA, tmp_path: Path) -> CertificateFiles:
    certificate = authority.issue_cert("127.0.0.1", "localhost")
    chain, key = tmp_path / "server.crt", tmp_path / "server.key"
    chain.write_bytes(b"".join(blob.bytes() for blob in certificate.cert_chain_pems))
    certificate.private_key_pem.write_to_path(str(key))
    return CertificateFiles(cert_file=chain, key_file=key)
