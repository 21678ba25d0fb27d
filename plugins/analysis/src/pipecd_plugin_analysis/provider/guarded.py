# SPDX-License-Identifier: Apache-2.0
"""HTTP to addresses that an application names: only to hosts that the piped file allows.

A name is looked up once, and the connection goes to an address that was checked: a name that means
another host a moment later changes nothing. Each redirect is checked like the first address. No
proxy is used: it would look the name up again.
"""

from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self
from urllib.parse import urljoin, urlsplit

from pipecd_plugin_analysis.provider.base import EvaluationError
from pipecd_plugin_analysis.provider.http import (
    HttpAnswer,
    read_answer,
    show_address,
    translate_errors,
)
from pipecd_sdk.kit.hosts import HostNotAllowedError, Hosts, IpAddress

if TYPE_CHECKING:
    import ssl

    import httpx2

LARGEST_ANSWER: Final = 4 * 1024 * 1024
MOST_REDIRECTS: Final = 5
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_KEEP_METHOD: Final = frozenset({307, 308})


class GuardedHttp:
    """The connections of one stage to addresses of applications."""

    def __init__(self, hosts: Hosts, *, verify: "ssl.SSLContext | bool" = True) -> None:
        self._hosts = hosts
        self._verify = verify
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

    async def request(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        body: str = "",
    ) -> HttpAnswer:
        """Returns the answer of an address, redirects followed. Raises EvaluationError."""
        sent = dict(headers or {})
        for _ in range(MOST_REDIRECTS + 1):
            answer = await self._ask(method, url, sent, body)
            place = answer.headers.get("location", "")
            if answer.status not in _REDIRECTS or not place:
                return answer
            following = urljoin(url, place)
            if _origin(following) != _origin(url):
                sent = {}  # what was meant for one host is not for another
                body = ""
            if answer.status not in _KEEP_METHOD and method != "HEAD":
                method, body = "GET", ""
            url = following
        raise EvaluationError(f"{show_address(url)} redirects more than {MOST_REDIRECTS} times")

    async def _ask(
        self, method: str, url: str, headers: Mapping[str, str], body: str
    ) -> HttpAnswer:
        import httpx2  # noqa: PLC0415 - loaded with the first check

        try:
            addresses = await self._hosts.check(url, "the address")
        except HostNotAllowedError as error:
            raise EvaluationError(error.reason()) from None
        if self._client is None:
            # Connections are not kept: one to an address must not serve two names.
            self._client = httpx2.AsyncClient(
                timeout=None,
                trust_env=False,
                verify=self._verify,
                limits=httpx2.Limits(max_keepalive_connections=0),
            )
        for number, address in enumerate(addresses or [None], 1):
            async with translate_errors(url):
                request = self._make_request(method, url, headers, body, address)
                try:
                    response = await self._client.send(request, stream=True)
                except httpx2.ConnectError:
                    if number < len(addresses):
                        continue
                    raise
                return await read_answer(response, LARGEST_ANSWER)
        raise AssertionError

    def _make_request(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        body: str,
        address: IpAddress | None,
    ) -> "httpx2.Request":
        """Returns a request that connects to an address, and asks it for the host by its name."""
        import httpx2  # noqa: PLC0415

        assert self._client is not None, "it is made before"  # noqa: S101
        named = httpx2.URL(url)
        request = self._client.build_request(
            method, named, headers=dict(headers), content=body.encode() or None
        )
        if address is not None:
            request.url = named.copy_with(host=str(address))
            request.extensions = {**request.extensions, "sni_hostname": named.host}
        return request


def _origin(url: str) -> tuple[str, str]:
    parts = urlsplit(url)
    return parts.scheme, parts.netloc
