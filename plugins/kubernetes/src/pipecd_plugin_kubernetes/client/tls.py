# SPDX-License-Identifier: Apache-2.0
"""The TLS side of a connection: whom we trust, and the certificate that says who we are."""

import os
import ssl
from dataclasses import dataclass, field

from pipecd_plugin_kubernetes.client.errors import ConnectionConfigError
from pipecd_plugin_kubernetes.client.materials import Material


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientCertificate:
    """A certificate and its key, PEM. Two are equal when their bytes are."""

    certificate: bytes = field(repr=False)
    key: bytes = field(repr=False)
    named_by: str = field(default="", compare=False)
    """Where they come from, for messages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsSettings:
    """What is asked of the server's certificate."""

    authority: Material | None = None
    """The certificates that are trusted; those of the system when there are none."""
    authority_named_by: str = ""
    is_insecure: bool = False
    """Any certificate is accepted."""
    server_name: str = ""
    """The name in the certificate, when it is not that of the address."""

    def read_authority(self) -> bytes:
        """Returns the trusted certificates, PEM; empty for those of the system."""
        return self.authority.read() if self.authority and not self.is_insecure else b""


def build_context(
    settings: TlsSettings, authority: bytes, certificate: ClientCertificate | None
) -> ssl.SSLContext:
    """Makes the context of a connection; slow, so it runs in a thread. May raise a sentence."""
    if authority:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        try:
            context.load_verify_locations(cadata=_drop_text(authority))
        except (ssl.SSLError, ValueError):
            raise ConnectionConfigError(
                f"{settings.authority_named_by}: no certificate in PEM form"
            ) from None
    else:
        context = ssl.create_default_context()
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    # As Go does: a certificate that is trusted need not be a root, and many authorities of clusters
    # lack what the strict mode of newer Pythons asks for.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if settings.is_insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if certificate:
        _load_certificate(context, certificate)
    return context


def _drop_text(pem: bytes) -> str:
    """Files may have comments in any encoding beside their certificates."""
    return pem.decode("ascii", "ignore")


def _load_certificate(context: ssl.SSLContext, certificate: ClientCertificate) -> None:
    """Loads a key that is never on disk: `ssl` reads only files, so it is one in memory."""
    number = os.memfd_create("pipecd-client-certificate")
    try:
        with os.fdopen(number, "wb", closefd=False) as file:
            file.write(certificate.certificate.rstrip() + b"\n" + certificate.key.rstrip() + b"\n")
        context.load_cert_chain(f"/proc/self/fd/{number}", password=_refuse_password)
    except ssl.SSLError as error:
        raise ConnectionConfigError(
            f"{certificate.named_by}: certificate and key cannot be used: "
            f"{error.reason or 'not in PEM form, or they do not belong together'}"
        ) from None
    except _EncryptedKeyError:
        raise ConnectionConfigError(
            f"{certificate.named_by}: the key is encrypted",
            hint="give one without a password",
        ) from None
    finally:
        os.close(number)


class _EncryptedKeyError(Exception):
    """The key asks for a password; without this, OpenSSL would ask on the terminal."""


def _refuse_password() -> bytes:
    raise _EncryptedKeyError
