# SPDX-License-Identifier: Apache-2.0
"""HTTP to systems that the operator names: answers of bounded size, and a second try for a hiccup.

The library is loaded with the first request. What goes wrong is told without the query part of an
address, without headers, and with only a little of the answer.
"""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from pipecd_plugin_analysis.provider.base import EvaluationError
from pipecd_sdk.kit.hosts import hide_password
from pipecd_sdk.kit.retries import Backoff
from pipecd_sdk.kit.text import make_printable_line

if TYPE_CHECKING:
    import httpx2

LARGEST_ANSWER: Final = 16 * 1024 * 1024
ATTEMPTS: Final = 3
PASSING: Final = frozenset({429, 502, 503, 504})
"""Statuses that may be gone a moment later."""
LONGEST_SHOWN: Final = 300

for _name in ("httpx2", "httpcore2"):  # they log whole addresses, with what is secret in them
    logging.getLogger(_name).setLevel(logging.WARNING)


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpAnswer:
    """A response that was read whole, or as far as is allowed."""

    status: int
    body: bytes
    is_cut: bool = False
    headers: Mapping[str, str]

    @property
    def text(self) -> str:
        return self.body.decode(errors="replace")


class HttpClient:
    """The connections of one stage; opened with the first request.

    Example:
        async with HttpClient() as http:
            document = await http.fetch_json("GET", url, params={"query": "up"})
    """

    def __init__(self) -> None:
        self._client: httpx2.AsyncClient | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        if self._client is not None:
            await self._client.aclose()

    async def fetch_json(
        self,
        method: str,
        url: str,
        *,
        params: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        auth: tuple[str, str] | None = None,
        content: bytes | None = None,
    ) -> Any:
        """Returns the document that an address answers with. Raises EvaluationError."""
        pauses = Backoff(first_seconds=0.3, longest_seconds=2)
        for attempt in range(1, ATTEMPTS + 1):
            last = attempt == ATTEMPTS
            try:
                answer = await self._ask(method, url, params, headers, auth, content)
            except EvaluationError:
                if last:
                    raise
            else:
                if answer.status not in PASSING or last:
                    return _read_document(url, answer)
            await asyncio.sleep(pauses.next_pause_seconds())
        raise AssertionError

    async def _ask(
        self,
        method: str,
        url: str,
        params: Mapping[str, str] | None,
        headers: Mapping[str, str] | None,
        auth: tuple[str, str] | None,
        content: bytes | None,
    ) -> HttpAnswer:
        import httpx2  # noqa: PLC0415 - a stage without providers never needs it

        if self._client is None:
            self._client = httpx2.AsyncClient(timeout=None, follow_redirects=False)
        request = self._client.build_request(
            method, url, params=params, headers=dict(headers or {}), content=content
        )
        basic = httpx2.BasicAuth(*auth) if auth else None
        async with translate_errors(url):
            response = await self._client.send(request, stream=True, auth=basic)
            return await read_answer(response, LARGEST_ANSWER)


@asynccontextmanager
async def translate_errors(url: str) -> AsyncIterator[None]:
    """Makes what the library raises an EvaluationError that names the address."""
    import httpx2  # noqa: PLC0415

    try:
        yield
    except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as error:
        said = make_printable_line(str(error))[:LONGEST_SHOWN] or type(error).__name__
        raise EvaluationError(f"{show_address(url)} does not answer: {said}") from None


async def read_answer(response: "httpx2.Response", largest: int) -> HttpAnswer:
    """Reads a response up to a size, and closes it."""
    body = bytearray()
    try:
        async for chunk in response.aiter_bytes():
            body += chunk
            if len(body) > largest:
                break
    finally:
        await response.aclose()
    return HttpAnswer(
        status=response.status_code,
        body=bytes(body[:largest]),
        is_cut=len(body) > largest,
        headers=response.headers,
    )


def _read_document(url: str, answer: HttpAnswer) -> Any:
    if answer.is_cut:
        raise EvaluationError(
            f"{show_address(url)} answers with more than {LARGEST_ANSWER:,} bytes"
        )
    if not 200 <= answer.status < 300:
        raise EvaluationError(
            f"{show_address(url)} answers with {answer.status}: {show_text(answer.text)}"
        )
    return read_json(url, answer.body)


def read_json(url: str, body: bytes) -> Any:
    """Reads JSON. Raises EvaluationError."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        shown = show_text(body[:LONGEST_SHOWN].decode(errors="replace"))
        raise EvaluationError(f"{show_address(url)} answers with no JSON: {shown}") from None


def show_address(url: str) -> str:
    """Returns an address without what may be secret in it."""
    return make_printable_line(hide_password(url.partition("?")[0]))


def show_text(text: str) -> str:
    """Returns a little of an answer."""
    return make_printable_line(text[:LONGEST_SHOWN])
