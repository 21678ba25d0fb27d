# SPDX-License-Identifier: Apache-2.0
"""Talk to a web server that gives out programs: limits, redirects, and who is to blame.

Nothing that a server sends is trusted here: sizes, times and the way to other servers are bounded.
What comes in is judged by the caller, who knows what it must hash to.
"""

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from piped.programs.errors import ProgramSourceError, SourceAwayError
from piped.programs.source import ProgramSource

if TYPE_CHECKING:
    import httpx2

REDIRECTS: Final = 5
BATCH: Final = 1024 * 1024
"""Bytes that are handed on at once."""

MEBIBYTE: Final = 1024 * 1024
WAITING: Final = frozenset({408, 425, 429})
"""Answers that mean later, beside those from 500 on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DownloadLimits:
    """What a server may cost."""

    size: int = 1024 * MEBIBYTE
    """Bytes of a program."""
    silence: float = 30
    """Seconds without a byte."""
    whole: float = 600
    """Seconds for everything."""
    tell: float = 2
    """Seconds between two words about the progress."""


def redact_url(url: str) -> str:
    """An address as others may read it: without passwords, and without tokens in its query."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()


@asynccontextmanager
async def conversation(
    source: ProgramSource, limits: DownloadLimits, tell: Callable[[str], None]
) -> AsyncIterator["Conversation"]:
    """Talk to one source. Its troubles become ProgramSourceError and SourceAwayError."""
    import httpx2  # noqa: PLC0415 - a piped whose plugins are all installed never needs it

    where = redact_url(source.url)
    for each in ("httpx2", "httpcore2"):  # they log addresses as they are, tokens included
        logging.getLogger(each).setLevel(logging.WARNING)
    try:
        async with (
            asyncio.timeout(limits.whole),
            httpx2.AsyncClient(
                timeout=limits.silence,
                # What is compressed on the way has another sum, and a size that nobody told.
                headers={"User-Agent": "piped", "Accept-Encoding": "identity"},
            ) as client,
        ):
            yield Conversation(client, source, limits, tell)
    except TimeoutError:
        raise SourceAwayError(
            f"the source {where} took longer than {limits.whole:g}s to give the {source.kind}"
        ) from None
    except httpx2.TimeoutException:
        raise SourceAwayError(f"the source {where} said nothing for {limits.silence:g}s") from None
    except (httpx2.InvalidURL, httpx2.UnsupportedProtocol) as error:
        raise ProgramSourceError(f"cannot ask {where}: {error}") from None
    except httpx2.TransportError as error:
        reason = _reason(error)
        hint = "SSL_CERT_FILE names the certificates to trust" if "CERTIFICATE" in reason else ""
        raise SourceAwayError(f"the source {where} is away: {reason}", hint=hint) from None


class Conversation:
    """Questions to one source, within the limits of all of them together."""

    def __init__(
        self,
        client: "httpx2.AsyncClient",
        source: ProgramSource,
        limits: DownloadLimits,
        tell: Callable[[str], None],
    ) -> None:
        self.where = redact_url(source.url)
        self._kind = source.kind
        self._client = client
        self._limits = limits
        self._tell = tell
        self._came = 0
        """Bytes of the program that are there."""
        self._told = 0.0

    @asynccontextmanager
    async def get(
        self, url: str, headers: Mapping[str, str] | None = None
    ) -> AsyncIterator["httpx2.Response"]:
        """The answer of the server that has it, whatever its status; the body is still to come."""
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
        """Refuse every answer that is not the content."""
        status = response.status_code
        if status == 200:
            return
        told = f"the source {self.where} answered {status} {response.reason_phrase}".rstrip()
        if status in WAITING or status >= 500:
            raise SourceAwayError(told)
        raise ProgramSourceError(told, hint="see whether the address is right")

    async def body(self, response: "httpx2.Response", largest: int) -> bytes:
        """A small answer, whole."""
        content = bytearray()
        async for chunk in self._raw(response):
            content += chunk
            if len(content) > largest:
                raise ProgramSourceError(
                    f"the source {self.where} sent more than {largest} bytes of description"
                )
        return bytes(content)

    async def content(self, response: "httpx2.Response") -> AsyncIterator[bytes]:
        """The program's bytes, in large pieces."""
        length = int(response.headers.get("Content-Length", "0"))
        self._check_size(self._came + length)
        batch = bytearray()
        async for chunk in self._raw(response):
            batch += chunk
            self._came += len(chunk)
            self._check_size(self._came)
            self._tell_progress(length)
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
        if size > self._limits.size:
            raise ProgramSourceError(
                f"the source {self.where} gives more than {self._limits.size / MEBIBYTE:g} MiB",
                hint=f"a {self._kind} is one executable file",
            )

    def _tell_progress(self, length: int) -> None:
        now = asyncio.get_running_loop().time()
        if now >= self._told + self._limits.tell:
            self._told = now
            of = f" of {length / MEBIBYTE:.1f}" if length else ""
            self._tell(f"getting {self.where}: {self._came / MEBIBYTE:.1f}{of} MiB")


def is_framed(response: "httpx2.Response") -> bool:
    """Would we see that the body was cut off? Not when its end is the end of the connection."""
    headers = response.headers
    return "Content-Length" in headers or "chunked" in headers.get("Transfer-Encoding", "")


def _reason(error: BaseException) -> str:
    """What the system said, which stands at the bottom of what libraries made of it."""
    deepest = error
    while cause := deepest.__cause__ or deepest.__context__:
        deepest = cause
    if isinstance(deepest, OSError) and str(deepest):
        return re.sub(r"^\[Errno -?\d+\] ", "", str(deepest))
    return str(error) or type(error).__name__
