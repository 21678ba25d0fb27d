# SPDX-License-Identifier: Apache-2.0
"""The control plane that clients of other makes call, with and without TLS."""

from functools import partial
from pathlib import Path

import pytest
import trustme

from pipecd_controlplane.http.server import CertificateFiles
from pipecd_test_support.interop import ServeInterop, serving_interop


@pytest.fixture(scope="session")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(params=["plaintext", "tls"])
def serve(request: pytest.FixtureRequest, authority: trustme.CA, tmp_path: Path) -> ServeInterop:
    """Start the control plane: `async with serve() as place`."""
    tls, roots = None, None
    if request.param == "tls":
        certificate = authority.issue_cert("127.0.0.1")
        tls = CertificateFiles(cert_file=tmp_path / "server.crt", key_file=tmp_path / "server.key")
        chain = b"".join(blob.bytes() for blob in certificate.cert_chain_pems)
        tls.cert_file.write_bytes(chain)
        certificate.private_key_pem.write_to_path(str(tls.key_file))
        roots = tmp_path / "roots.pem"
        authority.cert_pem.write_to_path(str(roots))

    return partial(serving_interop, tls, roots)
