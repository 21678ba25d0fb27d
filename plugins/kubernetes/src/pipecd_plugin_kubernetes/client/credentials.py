# SPDX-License-Identifier: Apache-2.0
"""Who we are to an API server: tokens, passwords, certificates, and plugins that fetch them."""

import base64
from dataclasses import dataclass, field
from typing import Protocol

from pipecd_plugin_kubernetes.client.errors import CredentialsError
from pipecd_plugin_kubernetes.client.materials import Material
from pipecd_plugin_kubernetes.client.tls import ClientCertificate


@dataclass(frozen=True, slots=True, kw_only=True)
class Credential:
    """What a single request proves itself with; shows nothing of it."""

    authorization: str = field(default="", repr=False)
    """The header's value; empty for none."""
    certificate: ClientCertificate | None = field(default=None, repr=False)


class ClusterCredentials(Protocol):
    """Gives the credential of each request, fresh where it must be."""

    async def fetch(self) -> Credential:
        """Returns what is valid now. Raises ClusterError."""
        ...

    def forget(self, refused: Credential) -> None:
        """The server did not accept this one: the next is fetched anew."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificateMaterials:
    """A certificate and its key, each inline or in a file."""

    certificate: Material
    key: Material
    named_by: str

    def read(self) -> ClientCertificate:
        """Returns both as they are now."""
        return ClientCertificate(
            certificate=self.certificate.read(), key=self.key.read(), named_by=self.named_by
        )


class StoredCredentials:
    """What stands in the kubeconfig or in files that it names."""

    def __init__(
        self,
        *,
        token: Material | None = None,
        basic: tuple[str, str] | None = None,
        certificate: CertificateMaterials | None = None,
        named_by: str = "",
    ) -> None:
        self._token = token
        self._basic = basic
        self._certificate = certificate
        self._named_by = named_by

    async def fetch(self) -> Credential:
        """Reads files that changed since the last time."""
        return Credential(
            authorization=self._make_header(),
            certificate=self._certificate.read() if self._certificate else None,
        )

    def forget(self, refused: Credential) -> None:
        """Nothing to do: files that changed are read again at every fetch."""

    def _make_header(self) -> str:
        if self._token is not None:
            return format_bearer(self._token.read(), named_by=self._named_by)
        if self._basic is not None:
            pair = ":".join(self._basic).encode()
            return f"Basic {base64.b64encode(pair).decode()}"
        return ""


def format_bearer(token: bytes, *, named_by: str) -> str:
    """Returns the header of a token. Raises CredentialsError when it can be none."""
    text = token.strip().decode("ascii", "replace")
    if not text or not text.isprintable() or "\ufffd" in text or " " in text:
        raise CredentialsError(f"{named_by}: the token has characters that no token has")
    return f"Bearer {text}"
