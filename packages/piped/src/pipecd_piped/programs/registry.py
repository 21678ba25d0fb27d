# SPDX-License-Identifier: Apache-2.0
"""Finds a program in an OCI registry: the index, the manifest of this platform, its layers.

Each document contains the digests of the next ones, and everything is verified against its digest:
pinning the first pins all. Only public repositories are read, with an anonymous token if the
registry requires one.
"""

import hashlib
import platform
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final
from urllib.parse import urlencode, urlsplit

import msgspec

from pipecd_model.errors import ConfigError
from pipecd_model.oci import (
    LARGEST_DOCUMENT,
    LAYER,
    READABLE,
    Descriptor,
    OciDocument,
    Platform,
    Reference,
    parse_challenge,
    parse_document,
)
from pipecd_piped.programs.download import DownloadSession
from pipecd_piped.programs.errors import ProgramSourceError

if TYPE_CHECKING:
    import httpx2

LARGEST_TOKEN: Final = 256 * 1024

# Python's names of machines to Go's, which registries and install scripts expect.
GO_ARCH: Final = {"x86_64": "amd64", "aarch64": "arm64", "armv7l": "arm", "i686": "386"}


class _Token(msgspec.Struct, frozen=True):
    """The response of a token server; registries use either of the two names."""

    token: str = ""
    access_token: str = ""


def this_platform() -> Platform:
    """Returns the platform that programs are started on."""
    machine = platform.machine()
    return Platform(os=platform.system().lower(), architecture=GO_ARCH.get(machine, machine))


class OciRepository:
    """One repository of a registry."""

    def __init__(self, session: DownloadSession, reference: Reference, *, insecure: bool) -> None:
        self._session = session
        self._reference = reference
        self._insecure = insecure
        self._scheme = "http" if insecure else "https"
        self._token = ""

    async def layers(self) -> tuple[Descriptor, ...]:
        """Returns the layers of the executable for this platform. Raises ProgramSourceError."""
        reference = self._reference
        document = await self._document(reference.version, reference.digest)
        if document.manifests:
            chosen = self._choose(document)
            document = await self._document(chosen.digest, chosen.digest)
        layers = tuple(layer for layer in document.layers if layer.media_type == LAYER)
        if not layers:
            raise ProgramSourceError(
                f"{str(reference)!r} is no plugin: it has no layer of the type {LAYER}",
                hint="push it with `pipectl plugin push`",
            )
        return layers

    @asynccontextmanager
    async def blob(self, layer: Descriptor) -> AsyncIterator["httpx2.Response"]:
        """Yields the response with the content of a layer, which the caller must verify."""
        async with self._get(f"blobs/{layer.digest}") as response:
            self._session.check(response)
            yield response

    def _choose(self, index: OciDocument) -> Descriptor:
        wanted = this_platform()
        for each in index.manifests:
            if each.platform == wanted:
                return each
        offered = ", ".join(str(each.platform) for each in index.manifests if each.platform)
        raise ProgramSourceError(
            f"{str(self._reference)!r} is not made for {wanted}",
            hint=f"it is for {offered}" if offered else "its index names no platforms",
        )

    async def _document(self, version: str, digest: str) -> OciDocument:
        accept = {"Accept": ", ".join(READABLE)}
        async with self._get(f"manifests/{version}", accept) as response:
            self._session.check(response)
            content = await self._session.body(response, LARGEST_DOCUMENT)
            claimed = digest or response.headers.get("Docker-Content-Digest", "")
        check_digest(claimed, hashlib.new(_algorithm(claimed), content).hexdigest(), "manifest")
        try:
            return parse_document(content)
        except ConfigError as error:
            raise ProgramSourceError(f"{str(self._reference)!r}: {error}") from None

    @asynccontextmanager
    async def _get(
        self, path: str, headers: dict[str, str] | None = None
    ) -> AsyncIterator["httpx2.Response"]:
        server, repository = self._reference.server, self._reference.repository
        url = f"{self._scheme}://{server}/v2/{repository}/{path}"
        if not self._token:
            async with self._session.get(url, headers) as response:
                if response.status_code != 401:
                    yield response
                    return
                challenge = response.headers.get("WWW-Authenticate", "")
            self._token = await self._ask_token(challenge)
        given = {**(headers or {}), "Authorization": f"Bearer {self._token}"}
        async with self._session.get(url, given) as response:
            yield response

    async def _ask_token(self, header: str) -> str:
        challenge = parse_challenge(header)
        if challenge.scheme != "bearer" or not challenge.realm:
            raise ProgramSourceError(
                f"the registry of {str(self._reference)!r} wants a password",
                hint="piped reads only what anybody may read",
            )
        if urlsplit(challenge.realm).scheme != "https" and not self._insecure:
            raise ProgramSourceError(
                f"the registry of {str(self._reference)!r} gives out tokens without TLS"
            )
        asked = {
            "service": challenge.service,
            "scope": challenge.scope or f"repository:{self._reference.repository}:pull",
        }
        query = urlencode({name: value for name, value in asked.items() if value})
        joint = "&" if urlsplit(challenge.realm).query else "?"
        async with self._session.get(f"{challenge.realm}{joint}{query}") as response:
            self._session.check(response)
            content = await self._session.body(response, LARGEST_TOKEN)
        try:
            given = msgspec.json.decode(content, type=_Token)
        except msgspec.DecodeError as error:
            raise ProgramSourceError(f"{challenge.realm!r} gave no token: {error}") from None
        return given.token or given.access_token


def check_digest(wanted: str, found: str, what: str) -> None:
    """Raises ProgramSourceError when the digest differs from the wanted one, if any."""
    if wanted and wanted != f"{_algorithm(wanted)}:{found}":
        raise ProgramSourceError(
            f"the {what} has the digest {_algorithm(wanted)}:{found}, not {wanted}",
            hint="it was not started",
        )


def _algorithm(digest: str) -> str:
    return "sha512" if digest.startswith("sha512:") else "sha256"


def new_hash(layer: Descriptor) -> "hashlib._Hash":
    """Returns a new hash of the algorithm that a layer's digest names."""
    return hashlib.new(_algorithm(layer.digest))
