# SPDX-License-Identifier: Apache-2.0
"""A request and its answer, as the transport sees them."""

import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from typing import Final, Protocol
from urllib.parse import quote, urlencode

JSON: Final = "application/json"
LARGEST_ANSWER: Final = 64 * 1024 * 1024
"""Bytes of an answer; the largest object that a server keeps has about two million."""


_SECRETS: Final = re.compile(r"/api/v1/(?:namespaces/[^/]+/)?secrets(?:/|$)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One call of the API."""

    what: str
    """For people, after "cannot": `apply Deployment 'web' in namespace 'shop'`."""
    method: str
    path: str
    query: Sequence[tuple[str, str]] = ()
    body: bytes = field(default=b"", repr=False)
    content_type: str = ""
    accept: str = JSON
    is_idempotent: bool = False
    """Doing it twice is doing it once: it can be made again when its outcome is not known."""
    asks_version: bool = False
    """Only one version of the object is meant: a 409 says that there is another one now."""
    largest_answer: int = LARGEST_ANSWER

    @property
    def target(self) -> str:
        """Path and query."""
        return f"{self.path}?{urlencode(self.query)}" if self.query else self.path

    @property
    def sends_secret(self) -> bool:
        """Whether values of a Secret are sent, which the server may quote when it refuses them."""
        return bool(self.body and _SECRETS.match(self.path))

    def add_query(self, *pairs: tuple[str, str]) -> "Request":
        """Returns the same with more in its query."""
        return replace(self, query=(*self.query, *pairs))


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiAnswer:
    """What came back: a whole body, of bounded size."""

    http_status: int
    content_type: str
    headers: Mapping[str, str]
    """Names in lower case; of several lines the last."""
    warnings: Sequence[str]
    body: bytes = field(repr=False)

    @property
    def is_success(self) -> bool:
        return 200 <= self.http_status < 300


class OpenAnswer(Protocol):
    """An answer whose body comes bit by bit."""

    head: ApiAnswer
    """The whole answer if it is no success; without a body if it is."""

    def iter_chunks(self) -> AsyncIterator[bytes]:
        """Yields what comes, decompressed. Raises UnavailableError."""
        ...


class Transport(Protocol):
    """Sends requests over kept connections. Raises UnavailableError and errors of credentials."""

    async def send(self, request: Request) -> ApiAnswer:
        """Returns the whole answer, whatever its status."""
        ...

    def stream(self, request: Request) -> AbstractAsyncContextManager[OpenAnswer]:
        """Opens a stream on a connection of its own."""
        ...

    async def close(self) -> None:
        """Closes all connections."""
        ...


def join_path(*segments: str) -> str:
    """Returns a path; what a segment holds never adds another one."""
    return "/" + "/".join(quote(each, safe="") for each in segments if each)
