# SPDX-License-Identifier: Apache-2.0
"""The requests that google-auth makes for tokens, through the project's HTTP client. Blocking."""

from collections.abc import Mapping
from typing import Any, Final

import httpx2
from google.auth import exceptions, transport

ANSWER_SECONDS: Final = 20.0
LARGEST_ANSWER_BYTES: Final = 1024 * 1024


class TokenResponse(transport.Response):
    """An answer as google-auth reads it."""

    def __init__(self, status: int, headers: Mapping[str, str], data: bytes) -> None:
        self._status = status
        self._headers = headers
        self._data = data

    @property
    def status(self) -> int:
        return self._status

    @property
    def headers(self) -> Mapping[str, str]:
        return self._headers

    @property
    def data(self) -> bytes:
        return self._data


class TokenTransport(transport.Request):
    """Makes one request of google-auth; redirects are not followed, answers are bounded."""

    def __call__(
        self,
        url: str,
        method: str = "GET",
        body: bytes | str | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float | None = None,
        **_: Any,
    ) -> TokenResponse:
        """Returns the answer. Raises TransportError, google-auth's own, when there is none."""
        limit = min(timeout or ANSWER_SECONDS, ANSWER_SECONDS)
        content = body.encode() if isinstance(body, str) else body
        try:
            with (
                httpx2.Client(timeout=limit) as client,
                client.stream(method, url, headers=dict(headers or {}), content=content) as answer,
            ):
                parts, size = [], 0
                for chunk in answer.iter_bytes():
                    size += len(chunk)
                    if size > LARGEST_ANSWER_BYTES:
                        raise _make_error("the answer is too large")
                    parts.append(chunk)
                return TokenResponse(answer.status_code, dict(answer.headers), b"".join(parts))
        except (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError, OSError) as error:
            raise _make_error(str(error) or type(error).__name__) from error


def _make_error(text: str) -> exceptions.TransportError:
    return exceptions.TransportError(text)  # type: ignore[no-untyped-call]
