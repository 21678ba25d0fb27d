# SPDX-License-Identifier: Apache-2.0
"""Downloads programs over HTTP, with limits on size, time and redirects.

Nothing that a server sends is trusted: sizes, times and redirects are limited here. The caller
verifies the content, because it knows the expected checksum.
"""

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from pipecd_piped.programs.errors import ProgramSourceError, SourceAwayError
from pipecd_piped.programs.source import ProgramSource

if TYPE_CHECKING:
    import httpx2

REDIRECTS: Final = 5
BATCH: Final = 1024 * 1024
"""The number of bytes that are yielded at once."""

MEBIBYTE: Final = 1024 * 1024
RETRIABLE: Final = frozenset({408, 425, 429})
"""Statuses after which a retry may succeed, in addition to those from 500 on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DownloadLimits:
    """The limits of a download."""

    size_bytes: int = 1024 * MEBIBYTE
    """The largest size of a program."""
    silence_seconds: float = 30
    """The longest time without a received byte."""
    total_seconds: float = 600
    """The longest time of a whole session."""
    progress_seconds: float = 2
    """The time between two reports of the progress."""


def redact_url(url: str) -> str:
    """Returns an address without passwords, and without tokens in its query."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()


@asynccontextmanager
async def download_session(
    source: ProgramSource, limits: DownloadLimits, on_progress: Callable[[str], None]
) -> AsyncIterator["DownloadSession"]:
    """Opens a session with one source while the block runs.

    Raises SourceAwayError when the source is unreachable or too slow, ProgramSourceError when it
    cannot be used at all.
    """
    import httpx2  # noqa: PLC0415 - a piped whose plugins are all installed never needs it

    where = redact_url(source.url)
    for each in ("httpx2", "httpcore2"):  # they log whole addresses, with tokens
        logging.getLogger(each).setLevel(logging.WARNING)
    try:
        async with (
            asyncio.timeout(limits.total_seconds),
            httpx2.AsyncClient(
                timeout=limits.silence_seconds,
                # A compressed transfer would have another checksum, and an unknown size.
                headers={"User-Agent": "piped", "Accept-Encoding": "identity"},
            ) as client,
        ):
            yield DownloadSession(client, source, limits, on_progress)
    except TimeoutError:
        raise SourceAwayError(
            f"the source {where} took longer than {limits.total_seconds:g}s "
            f"to give the {source.kind}"
        ) from None
    except httpx2.TimeoutException:
        raise SourceAwayError(
            f"the source {where} said nothing for {limits.silence_seconds:g}s"
        ) from None
    except (httpx2.InvalidURL, httpx2.UnsupportedProtocol) as error:
        raise ProgramSourceError(f"cannot ask {where}: {error}") from None
    except httpx2.TransportError as error:
        reason = _reason(error)
        hint = "SSL_CERT_FILE names the certificates to trust" if "CERTIFICATE" in reason else ""
        raise SourceAwayError(f"the source {where} is away: {reason}", hint=hint) from None


class DownloadSession:
    """Requests to one source; the limits apply to all of them together."""

    def __init__(
        self,
        client: "httpx2.AsyncClient",
        source: ProgramSource,
        limits: DownloadLimits,
        on_progress: Callable[[str], None],
    ) -> None:
        self.where = redact_url(source.url)
        self._kind = source.kind
        self._client = client
        self._limits = limits
        self._on_progress = on_progress
        self._received = 0
        """The number of bytes of the program received so far."""
        self._reported_at = 0.0

    @asynccontextmanager
    async def get(
        self, url: str, headers: Mapping[str, str] | None = None
    ) -> AsyncIterator["httpx2.Response"]:
        """Yields the response after redirects, with any status; its body is not read yet."""
        request = self._client.build_request("GET", url, headers=headers)
        for _ in range(REDIRECTS):
            response = await self._client.send(request, stream=True)
            try:
                if response.next_request is None:
                    yield response
                    return
                following = response.next_request
            finally:
                await response.aclose()
            if request.url.scheme == "https" and following.url.scheme != "https":
                raise ProgramSourceError(
                    f"the source {self.where} sends from https to {following.url.scheme}",
                    hint="it was not followed; give the address it leads to",
                )
            request = following
        raise ProgramSourceError(
            f"the source {self.where} sends to another address more than {REDIRECTS} times"
        )

    def check(self, response: "httpx2.Response") -> None:
        """Raises ProgramSourceError, or SourceAwayError, unless the status is 200."""
        status = response.status_code
        if status == 200:
            return
        told = f"the source {self.where} answered {status} {response.reason_phrase}".rstrip()
        if status in RETRIABLE or status >= 500:
            raise SourceAwayError(told)
        raise ProgramSourceError(told, hint="see whether the address is right")

    async def body(self, response: "httpx2.Response", largest: int) -> bytes:
        """Returns the whole body. Raises ProgramSourceError if it has more than `largest` bytes."""
        content = bytearray()
        async for chunk in self._raw(response):
            content += chunk
            if len(content) > largest:
                raise ProgramSourceError(
                    f"the source {self.where} sent more than {largest} bytes of description"
                )
        return bytes(content)

    async def content(self, response: "httpx2.Response") -> AsyncIterator[bytes]:
        """Yields the bytes of the program in large chunks. Raises ProgramSourceError."""
        length = int(response.headers.get("Content-Length", "0"))
        self._check_size(self._received + length)
        batch = bytearray()
        async for chunk in self._raw(response):
            batch += chunk
            self._received += len(chunk)
            self._check_size(self._received)
            self._report_progress(length)
            if len(batch) >= BATCH:
                yield bytes(batch)
                batch.clear()
        yield bytes(batch)

    async def _raw(self, response: "httpx2.Response") -> AsyncIterator[bytes]:
        encoding = response.headers.get("Content-Encoding", "identity")
        if encoding != "identity":
            raise ProgramSourceError(
                f"the source {self.where} sent it in the encoding {encoding!r}"
            )
        async for chunk in response.aiter_raw():
            yield chunk

    def _check_size(self, size: int) -> None:
        if size > self._limits.size_bytes:
            raise ProgramSourceError(
                f"the source {self.where} gives more than "
                f"{self._limits.size_bytes / MEBIBYTE:g} MiB",
                hint=f"a {self._kind} is one executable file",
            )

    def _report_progress(self, length: int) -> None:
        now = asyncio.get_running_loop().time()
        if now >= self._reported_at + self._limits.progress_seconds:
            self._reported_at = now
            of = f" of {length / MEBIBYTE:.1f}" if length else ""
            self._on_progress(f"getting {self.where}: {self._received / MEBIBYTE:.1f}{of} MiB")


def is_framed(response: "httpx2.Response") -> bool:
    """Returns whether a truncated body is detected: it has a length, or is sent in chunks."""
    headers = response.headers
    return "Content-Length" in headers or "chunked" in headers.get("Transfer-Encoding", "")


def _reason(error: BaseException) -> str:
    """Returns the message of the operating system's error at the root of an exception chain."""
    deepest = error
    while cause := deepest.__cause__ or deepest.__context__:
        deepest = cause
    if isinstance(deepest, OSError) and str(deepest):
        return re.sub(r"^\[Errno -?\d+\] ", "", str(deepest))
    return str(error) or type(error).__name__
