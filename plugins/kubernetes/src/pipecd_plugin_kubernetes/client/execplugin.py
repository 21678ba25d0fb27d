# SPDX-License-Identifier: Apache-2.0
"""Credential plugins: programs that a kubeconfig names and that print a credential.

The protocol is `client.authentication.k8s.io`, v1 and v1beta1. What a program prints on its output
is a secret and never shown; what it prints as errors is.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec

from pipecd_plugin_kubernetes.client.credentials import (
    CertificateMaterials,
    Credential,
    format_bearer,
)
from pipecd_plugin_kubernetes.client.errors import CredentialsError
from pipecd_plugin_kubernetes.client.refusals import clean_message
from pipecd_plugin_kubernetes.client.tls import ClientCertificate
from pipecd_sdk.kit import shell

VERSIONS: Final = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")
LIMIT: Final = timedelta(seconds=60)
EARLY: Final = timedelta(seconds=30)
"""How long before its end a credential is fetched anew, at most a tenth of its life."""
SHORTEST: Final = timedelta(seconds=5)
"""A credential that has run out already is used this long: not every call runs a program."""
NOT_FOUND_CODE: Final = 127


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecSettings:
    """The `exec` section of a user in a kubeconfig."""

    command: str
    """A path, or a name on PATH."""
    arguments: Sequence[str] = ()
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    api_version: str = VERSIONS[0]
    cluster: Mapping[str, Any] | None = field(default=None, repr=False)
    """What the program is told about the cluster, if it asks for it."""
    install_hint: str = ""
    named_by: str
    """File and key, for messages."""


class _Status(msgspec.Struct, rename="camel"):
    token: str = ""
    expiration_timestamp: datetime | None = None
    client_certificate_data: str = ""
    client_key_data: str = ""


class _ExecCredential(msgspec.Struct, rename="camel"):
    api_version: str = ""
    kind: str = ""
    status: _Status | None = None


class ExecCredentials:
    """Runs the program when its last credential has run out or was refused."""

    def __init__(
        self, settings: ExecSettings, *, certificate: CertificateMaterials | None = None
    ) -> None:
        """`certificate` is used when the program gives a token only."""
        self._settings = settings
        self._certificate = certificate
        self._lock = asyncio.Lock()
        self._current: Credential | None = None
        self._ends: datetime | None = None

    async def fetch(self) -> Credential:
        """Returns the last credential while it is valid; runs the program once for all who ask."""
        if (current := self._find_valid()) is not None:
            return current
        async with self._lock:
            if (current := self._find_valid()) is not None:
                return current
            started = datetime.now(UTC)
            status = await self._run()
            self._current = self._make_credential(status)
            self._ends = _choose_end(started, status.expiration_timestamp)
            return self._current

    def forget(self, refused: Credential) -> None:
        """Runs the program again next time, unless somebody did since this one was fetched."""
        if self._current is refused:
            self._current = None

    def _find_valid(self) -> Credential | None:
        if self._ends is not None and datetime.now(UTC) >= self._ends:
            return None
        return self._current

    async def _run(self) -> _Status:
        settings = self._settings
        try:
            completed = await shell.run(
                [settings.command, *settings.arguments],
                env={**settings.env, "KUBERNETES_EXEC_INFO": self._make_info()},
                limit=LIMIT,
            )
        except shell.CommandFailedError as error:
            raise self._explain(error) from None
        return self._read(completed.output)

    def _make_info(self) -> str:
        spec: dict[str, Any] = {"interactive": False}
        if self._settings.cluster is not None:
            spec["cluster"] = self._settings.cluster
        info = {
            "apiVersion": self._settings.api_version,
            "kind": "ExecCredential",
            "spec": spec,
        }
        return msgspec.json.encode(info).decode()

    def _explain(self, error: shell.CommandFailedError) -> CredentialsError:
        settings, completed = self._settings, error.completed
        # Not the error's own text: it may repeat what the program printed last.
        said = clean_message(completed.errors.strip()[-1000:], 1000)
        if completed.exit_code == NOT_FOUND_CODE and not completed.output:
            ended = "could not be started"
        elif completed.exit_code < 0:
            ended = f"did not end within {LIMIT.seconds} seconds, or was killed"
        else:
            ended = f"ended with exit code {completed.exit_code}"
        reason = f": {said}" if said else ""
        return CredentialsError(
            f"{settings.named_by}: the credential plugin {settings.command!r} {ended}{reason}",
            hint=clean_message(settings.install_hint) if ended.startswith("could not") else "",
        )

    def _read(self, output: str) -> _Status:
        settings = self._settings
        name = f"{settings.named_by}: what the credential plugin {settings.command!r} printed"
        try:
            given = msgspec.json.decode(output, type=_ExecCredential)
        except (msgspec.DecodeError, ValueError, RecursionError):
            # Without the reason: it could quote a part of the credential.
            raise CredentialsError(f"{name} is no ExecCredential") from None
        if given.kind != "ExecCredential" or given.api_version != settings.api_version:
            raise CredentialsError(
                f"{name} is a {clean_message(given.kind, 60)!r} of "
                f"{clean_message(given.api_version, 60)!r}, not an ExecCredential of "
                f"{settings.api_version!r}"
            )
        status = given.status
        if status is None or not (status.token or status.client_certificate_data):
            raise CredentialsError(f"{name} has neither a token nor a certificate")
        if bool(status.client_certificate_data) != bool(status.client_key_data):
            raise CredentialsError(f"{name} has a certificate without a key, or the reverse")
        return status

    def _make_credential(self, status: _Status) -> Credential:
        named_by = f"{self._settings.named_by}: credential plugin {self._settings.command!r}"
        certificate = None
        if status.client_certificate_data:
            certificate = ClientCertificate(
                certificate=status.client_certificate_data.encode(),
                key=status.client_key_data.encode(),
                named_by=named_by,
            )
        elif self._certificate is not None:
            certificate = self._certificate.read()
        token = status.token.encode()
        return Credential(
            authorization=format_bearer(token, named_by=named_by) if token else "",
            certificate=certificate,
        )


def _choose_end(started: datetime, expires: datetime | None) -> datetime | None:
    """Returns when to fetch anew: a little before the end; None to keep it until it is refused."""
    if expires is None:
        return None
    if expires.tzinfo is None:
        expires = expires.replace(tzinfo=UTC)
    life = max(expires - started, timedelta(0))
    return max(expires - min(EARLY, life / 10), started + SHORTEST)
