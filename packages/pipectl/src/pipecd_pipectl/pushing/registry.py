# SPDX-License-Identifier: Apache-2.0
"""Pushes to an OCI registry: blobs first, then the documents that name them, the tag last.

A client that pulls meanwhile gets the old artifact or the new one, never half of it.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import urljoin, urlsplit

import httpx2

from pipecd_model.errors import DeniedError, PipecdError, UnavailableError
from pipecd_model.oci import Descriptor, OciDocument, Reference, parse_challenge

CHUNK: Final = 1024 * 1024
TIMEOUT: Final = httpx2.Timeout(60, write=300, read=300)
"""A registry may take its time to store what it got."""

LONGEST_REFUSAL: Final = 300


class RegistryClient:
    """One repository of a registry, while the block runs."""

    def __init__(
        self, reference: Reference, *, insecure: bool, login: tuple[str, str] | None
    ) -> None:
        self._base = f"{'http' if insecure else 'https'}://{reference.server}"
        self._insecure = insecure
        self._repository = reference.repository
        self._login = login
        self._authorization = ""
        self._client = httpx2.Client(timeout=TIMEOUT, headers={"User-Agent": "pipectl"})

    def put_blob(self, described: Descriptor, content: bytes | Path) -> bool:
        """Uploads content unless the registry has it; returns whether it was uploaded."""
        known = self._ask("HEAD", f"blobs/{described.digest}", expected=(200, 404))
        if known.status_code == 200:
            return False
        begun = self._ask("POST", "blobs/uploads/", expected=(202,))
        place = urljoin(str(begun.request.url), begun.headers.get("Location", ""))
        self._check_place(place)
        joint = "&" if urlsplit(place).query else "?"
        self._ask(
            "PUT",
            f"{place}{joint}digest={described.digest}",
            expected=(201,),
            content=content,
            headers={
                "Content-Type": "application/octet-stream",
                "Content-Length": str(described.size),
            },
        )
        return True

    def put_document(self, version: str, document: OciDocument) -> None:
        """Uploads a manifest or an index under a digest or a tag."""
        headers = {"Content-Type": document.media_type}
        content = document.encode()
        self._ask("PUT", f"manifests/{version}", expected=(201,), content=content, headers=headers)

    def _ask(
        self,
        method: str,
        path: str,
        *,
        expected: tuple[int, ...],
        content: bytes | Path = b"",
        headers: Mapping[str, str] | None = None,
    ) -> httpx2.Response:
        url = urljoin(f"{self._base}/v2/{self._repository}/", path)
        response = self._send(method, url, content, headers or {})
        if response.status_code == 401:
            self._authorization = self._introduce(response.headers.get("WWW-Authenticate", ""))
            response = self._send(method, url, content, headers or {})
        if response.status_code not in expected:
            raise _refusal(f"{method} {urlsplit(url).path}", response)
        return response

    def _send(
        self, method: str, url: str, content: bytes | Path, headers: Mapping[str, str]
    ) -> httpx2.Response:
        given = dict(headers)
        if self._authorization and url.startswith(f"{self._base}/"):
            given["Authorization"] = self._authorization
        body: Any = _chunks(content) if isinstance(content, Path) else content
        try:
            return self._client.request(
                # A blob may be on another host, so HEAD follows redirects; uploads do not.
                method,
                url,
                content=body,
                headers=given,
                follow_redirects=method == "HEAD",
            )
        except httpx2.HTTPError as error:
            raise UnavailableError(
                f"cannot reach the registry {self._base}: {str(error) or type(error).__name__}",
                hint="a registry without TLS needs --insecure",
            ) from None

    def _introduce(self, header: str) -> str:
        """Returns the Authorization header that the registry's challenge asks for.

        Raises DeniedError when it asks for credentials that we do not have.
        """
        challenge = parse_challenge(header)
        basic = httpx2.BasicAuth(*self._login) if self._login else None
        if challenge.scheme == "basic" and basic is not None:
            asked = httpx2.Request("GET", self._base)
            return str(next(basic.auth_flow(asked)).headers["Authorization"])
        if challenge.scheme != "bearer" or not challenge.realm:
            raise DeniedError(f"the registry {self._base} wants to know who you are", hint=_LOG_IN)
        self._check_place(challenge.realm)
        scope = challenge.scope or f"repository:{self._repository}:pull,push"
        try:
            answer = self._client.get(
                challenge.realm, params={"service": challenge.service, "scope": scope}, auth=basic
            )
        except httpx2.HTTPError as error:
            raise UnavailableError(f"cannot reach {challenge.realm!r}: {error}") from None
        if answer.status_code != 200:
            raise _refusal(f"a token from {challenge.realm}", answer)
        try:
            given = answer.json()
            return f"Bearer {given.get('token') or given['access_token']}"
        except (ValueError, KeyError, AttributeError):
            raise PipecdError(f"{challenge.realm!r} gave no token") from None

    def _check_place(self, url: str) -> None:
        if urlsplit(url).scheme != "https" and not self._insecure:
            raise PipecdError(f"the registry {self._base} sends to {url!r}, which has no TLS")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._client.close()


_LOG_IN: Final = "log in with docker, or give --username and --password-stdin"


def _refusal(what: str, response: httpx2.Response) -> PipecdError:
    told = " ".join(response.text.split())[:LONGEST_REFUSAL]
    message = f"the registry refused {what}: {response.status_code} {told}".rstrip()
    if response.status_code in (401, 403):
        return DeniedError(message, hint=_LOG_IN)
    if response.status_code == 429 or response.status_code >= 500:
        return UnavailableError(message)
    return PipecdError(message)


def _chunks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            yield chunk
