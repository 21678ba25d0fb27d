# SPDX-License-Identifier: Apache-2.0
"""A tiny service and a page for the tests of the server, and a certificate authority for TLS."""

from pathlib import Path

import pytest
import trustme
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from pipecd_controlplane.http.server import CertificateFiles
from pipecd_test_support.echo_service import EchoApi, make_echo_endpoints
from pipecd_wire.rpc import Endpoints, admit_all


@pytest.fixture
def api() -> EchoApi:
    return EchoApi()


@pytest.fixture
def endpoints(api: EchoApi) -> Endpoints:
    return make_echo_endpoints(api, admit_all)


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
