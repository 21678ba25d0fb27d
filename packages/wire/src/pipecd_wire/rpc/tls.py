# SPDX-License-Identifier: Apache-2.0
"""TLS of clients: which certificates are trusted.

gRPC brings roots of its own and looks at none of the system's. Here the system's count, as for
every other program: the file in SSL_CERT_FILE, or the bundle of the distribution, and all files of
SSL_CERT_DIR.
"""

import os
import ssl
from pathlib import Path
from typing import Final, NamedTuple

FILE_VARIABLES: Final = ("GRPC_DEFAULT_SSL_ROOTS_FILE_PATH", "SSL_CERT_FILE")
FOLDER_VARIABLE: Final = "SSL_CERT_DIR"
BUNDLES: Final = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
)
"""Where distributions keep the system's roots in one file."""

PEM_MARKS: Final = (b"-----BEGIN CERTIFICATE-----", b"-----BEGIN TRUSTED CERTIFICATE-----")


class ClientTls(NamedTuple):
    """TLS to the server: the roots to trust as PEM, or the system's."""

    roots: bytes | None = None


def has_certificate(data: bytes) -> bool:
    """Returns whether there is a certificate in the content of a file."""
    return any(mark in data for mark in PEM_MARKS)


def find_roots(tls: ClientTls) -> bytes | None:
    """Returns the roots to trust, as PEM; None for those that gRPC brings: there are no others."""
    if tls.roots is not None:
        return tls.roots
    files = [*_list_named_files(), *map(Path, BUNDLES)]
    first = next(filter(None, map(_read_certificates, files)), b"")
    folder = os.environ.get(FOLDER_VARIABLE, "")
    more = [_read_certificates(path) for path in _list_files(folder)] if folder else []
    return b"\n".join(filter(None, [first, *more])) or None


def make_ssl_context(tls: ClientTls) -> ssl.SSLContext:
    """Returns a context for programs of Python that trusts what gRPC trusts."""
    roots = find_roots(tls)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if roots is None:
        context.load_default_certs()
    else:
        context.load_verify_locations(cadata=roots.decode("ascii", "replace"))
    return context


def is_local(target: str) -> bool:
    """Returns whether an address is of this machine."""
    host = target.rpartition(":")[0].strip("[]")
    return target.startswith("unix:") or host in {"localhost", "::1"} or host.startswith("127.")


def _list_named_files() -> list[Path]:
    return [Path(path) for name in FILE_VARIABLES if (path := os.environ.get(name))]


def _list_files(folder: str) -> list[Path]:
    try:
        # A folder of OpenSSL holds each certificate twice: under its name, and under its hash.
        return sorted({path.resolve() for path in Path(folder).iterdir() if path.is_file()})
    except OSError:
        return []


def _read_certificates(path: Path) -> bytes:
    """Returns the content of a file with certificates; empty when it is none."""
    try:
        data = path.read_bytes()
    except OSError:
        return b""
    return data if has_certificate(data) else b""
