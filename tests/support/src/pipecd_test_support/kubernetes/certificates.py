# SPDX-License-Identifier: Apache-2.0
"""The certificates and keys of a cluster, made anew for each."""

from dataclasses import dataclass
from pathlib import Path

import trustme
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

ADMINISTRATORS = "system:masters"


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificates:
    """Where they are; each is a file in the PEM format."""

    authority: Path
    server: Path
    server_key: Path
    admin: Path
    admin_key: Path
    accounts_key: Path
    """Signs the tokens of service accounts."""


def make_certificates(folder: Path) -> Certificates:
    """Write an authority's certificate, and those of the server and of an administrator."""
    made = Certificates(
        authority=folder / "ca.pem",
        server=folder / "server.pem",
        server_key=folder / "server.key",
        admin=folder / "admin.pem",
        admin_key=folder / "admin.key",
        accounts_key=folder / "accounts.key",
    )
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(made.authority))
    server = authority.issue_cert("127.0.0.1", "localhost", "kubernetes.default.svc")
    server.private_key_pem.write_to_path(str(made.server_key))
    server.cert_chain_pems[0].write_to_path(str(made.server))
    admin = authority.issue_cert(
        "admin.test", common_name="admin", organization_name=ADMINISTRATORS
    )
    admin.private_key_pem.write_to_path(str(made.admin_key))
    admin.cert_chain_pems[0].write_to_path(str(made.admin))
    key = ec.generate_private_key(ec.SECP256R1())
    made.accounts_key.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.TraditionalOpenSSL,
            serialization.NoEncryption(),
        )
    )
    return made
