# SPDX-License-Identifier: Apache-2.0
"""Calls to a provider: JSON over HTTP, with a limit, and one kind of error."""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

from pipecd_model.errors import StateError, UnavailableError
from pipecd_runtime.logs import logger

if TYPE_CHECKING:
    import httpx2

log = logger(__name__)

REQUEST_TIMEOUT_SECONDS: Final = 10.0
MOST_BYTES: Final = 1024 * 1024


class Provider:
    """An HTTP client for the provider of a sign-in."""

    def __init__(self, client: "httpx2.AsyncClient") -> None:
        self._client = client

    async def get(self, url: str, *, token: str = "", **query: str) -> Any:
        headers = {"accept": "application/json"}
        if token:
            headers["authorization"] = f"Bearer {token}"
        return await self._json("GET", url, headers=headers, params=query)

    async def post(
        self, url: str, form: Mapping[str, str], *, basic: tuple[str, str] | None = None
    ) -> Any:
        headers = {"accept": "application/json"}
        return await self._json("POST", url, headers=headers, data=dict(form), auth=basic)

    async def _json(self, method: str, url: str, **request: Any) -> Any:
        import httpx2  # noqa: PLC0415 - a control plane without single sign-on never needs it

        try:
            async with self._client.stream(method, url, **request) as answer:
                body = b""
                async for chunk in answer.aiter_bytes():
                    body += chunk
                    if len(body) > MOST_BYTES:
                        raise _trouble(url, "it answers too much")
                answer.raise_for_status()
                return _parse_json(body)
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            # Never the request itself: it holds codes and secrets.
            raise _trouble(url, type(error).__name__) from None
        except (ValueError, RecursionError):
            raise _trouble(url, "it does not answer JSON") from None


def _parse_json(body: bytes) -> Any:
    """Raises ValueError for what is no JSON, or holds text that cannot be written anywhere."""
    value = json.loads(body)
    # Half a pair of surrogates can be spelled in JSON and is no character.
    json.dumps(value, ensure_ascii=False).encode()
    return value


def _trouble(url: str, why: str) -> UnavailableError:
    log.warning("sso.provider_failed", url=url.partition("?")[0], error=why)
    return UnavailableError("the sign-in provider cannot be used now", hint="try again later")


@asynccontextmanager
async def provider(proxy_url: str) -> AsyncIterator[Provider]:
    """Yields an HTTP client for a provider; all its calls use the proxy if there is one."""
    import httpx2  # noqa: PLC0415

    try:
        client = httpx2.AsyncClient(
            timeout=REQUEST_TIMEOUT_SECONDS, follow_redirects=False, proxy=proxy_url or None
        )
    except (ValueError, httpx2.InvalidURL):
        raise StateError(
            "the proxy of the single sign-on is no URL",
            hint="such as http://proxy.example.com:3128",
        ) from None
    async with client:
        yield Provider(client)
