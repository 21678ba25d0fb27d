# SPDX-License-Identifier: Apache-2.0
"""HTTP of plugins: answers of bounded size, from the hosts that an address may lead to.

An address that an application names is looked up once, and the connection goes to an address that
was checked: a name that means another host a moment later changes nothing. Each redirect is checked
like the first address. What goes wrong is told without the query part of an address, without who
asks, and with only a little of the answer.

The library is loaded with the first request; `pipecd-sdk[web]` installs it.

Example:
    async with WebClient(Hosts(config.allowed_hosts, public=True)) as web:
        answer = await web.request("GET", "https://shop.example.com/health")
"""

import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from types import ModuleType, TracebackType
from typing import TYPE_CHECKING, Final, Self
from urllib.parse import urljoin, urlsplit

from pipecd_model.errors import MissingExtraError
from pipecd_sdk.kit.hosts import HostNotAllowedError, Hosts, IpAddress, hide_password, parse_address
from pipecd_sdk.kit.text import make_printable_line

if TYPE_CHECKING:
    import ssl

    import httpx2

__all__ = ["WebAnswer", "WebClient", "WebError", "show_address", "show_text"]

MOST_REDIRECTS: Final = 5
LARGEST_ANSWER: Final = 4 * 1024 * 1024
LONGEST_SHOWN: Final = 300
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_KEEP_METHOD: Final = frozenset({307, 308})

for _name in ("httpx2", "httpcore2"):  # they log whole addresses, with what is secret in them
    logging.getLogger(_name).setLevel(logging.WARNING)


class WebError(Exception):
    """There is no answer; the message says why, without secrets.

    Example:
        try:
            answer = await web.request("GET", url)
        except WebError as error:
            raise StageFailedError(str(error)) from None
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class WebAnswer:
    """A response that was read whole, or as far as is allowed.

    Example:
        if answer.status != 200 or answer.is_cut:
            raise StageFailedError(f"the server answers {answer.status}")
    """

    status: int
    body: bytes
    is_cut: bool = False
    headers: Mapping[str, str]

    @property
    def text(self) -> str:
        return self.body.decode(errors="replace")


class WebClient:
    """Connections of one piece of work; the first request opens them, the block ends them.

    Without `hosts` the addresses are the operator's own: nothing is checked, no redirect is
    followed, connections are kept. With `hosts` they are what an application names. A proxy of the
    environment is used unless `uses_proxy` is false, and never for a host whose addresses were
    checked: it would look the name up again.

    Example:
        async with WebClient() as web:
            answer = await web.request("GET", url, params={"query": "up"})
    """

    def __init__(
        self,
        hosts: Hosts | None = None,
        *,
        what: str = "the address",
        largest_bytes: int = LARGEST_ANSWER,
        uses_proxy: bool = True,
        verify: "ssl.SSLContext | bool" = True,
    ) -> None:
        self._hosts = hosts
        self._what = what
        self._largest_bytes = largest_bytes
        self._uses_proxy = uses_proxy
        self._verify = verify
        self._clients: dict[bool, httpx2.AsyncClient] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        for client in self._clients.values():
            await client.aclose()

    async def request(
        self,
        method: str,
        url: str,
        *,
        params: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        login: tuple[str, str] | None = None,
        body: bytes = b"",
    ) -> WebAnswer:
        """Returns the answer of an address. Raises WebError and HostNotAllowedError.

        There is no limit of time: the caller has one.
        """
        auth = _load().BasicAuth(*login) if login else None
        for _ in range(MOST_REDIRECTS + 1):
            addresses = await self._check(url)
            sent = _WebRequest(
                method=method, url=url, params=params, headers=headers, auth=auth, body=body
            )
            answer = await self._send(sent, addresses)
            place = answer.headers.get("location", "")
            if self._hosts is None or answer.status not in _REDIRECTS or not place:
                return answer
            following = _follow(url, place)
            if _origin(following) != _origin(url):
                headers, auth, body = None, None, b""  # meant for one host, not for another
            if answer.status not in _KEEP_METHOD and method != "HEAD":
                method, body = "GET", b""
            url, params = following, None
        raise WebError(f"{show_address(url)} redirects more than {MOST_REDIRECTS} times")

    async def _check(self, url: str) -> list[IpAddress]:
        """Returns where the host may be; none means anywhere. Raises HostNotAllowedError."""
        if self._hosts is None:
            return []
        addresses = await self._hosts.check(url, self._what)
        return list(dict.fromkeys(addresses))

    async def _send(self, sent: "_WebRequest", addresses: list[IpAddress]) -> WebAnswer:
        client = self._open(is_checked=bool(addresses))
        for number, address in enumerate(addresses or [None], 1):
            async with _translate_errors(sent.url):
                request = sent.build(client, address, is_named=self._hosts is not None)
                try:
                    response = await client.send(request, stream=True, auth=sent.auth)
                except _load().ConnectError:
                    if number < len(addresses):
                        continue
                    raise
                return await _read_answer(response, self._largest_bytes)
        raise AssertionError

    def _open(self, *, is_checked: bool) -> "httpx2.AsyncClient":
        if is_checked not in self._clients:
            httpx2 = _load()
            # A connection to an address must not serve two names: such ones are not kept.
            kept = 0 if self._hosts is not None else 20
            self._clients[is_checked] = httpx2.AsyncClient(
                timeout=None,
                follow_redirects=False,
                trust_env=self._uses_proxy and not is_checked,
                verify=self._verify,
                limits=httpx2.Limits(max_keepalive_connections=kept),
            )
        return self._clients[is_checked]


@dataclass(frozen=True, slots=True, kw_only=True)
class _WebRequest:
    """One request of the way."""

    method: str
    url: str
    params: Mapping[str, str] | None
    headers: Mapping[str, str] | None
    auth: "httpx2.BasicAuth | None"
    body: bytes

    def build(
        self, client: "httpx2.AsyncClient", address: IpAddress | None, *, is_named: bool
    ) -> "httpx2.Request":
        """Returns a request that connects to an address, and asks it for the host by its name.

        Raises HostNotAllowedError for an application's address that the library reads as another
        host than the one that was checked.
        """
        named = _load().URL(self.url)
        if named.port is not None and not 0 < named.port < 65536:
            raise _load().InvalidURL(f"there is no port {named.port}")
        request = client.build_request(
            self.method,
            named,
            params=self.params,
            headers=dict(self.headers or {}),
            content=self.body or None,
        )
        if address is not None:
            request.url = request.url.copy_with(host=str(address))
            request.extensions = {**request.extensions, "sni_hostname": named.host}
        elif is_named:
            checked = parse_address(self.url)
            if checked is None or named.host.rstrip(".").lower() != checked.host:
                raise HostNotAllowedError(f"{show_address(self.url)} can be read in two ways")
        return request


def _load() -> ModuleType:
    """Returns the library; the first request loads it. Raises MissingExtraError without it."""
    try:
        import httpx2  # noqa: PLC0415 - many plugins never ask
    except ModuleNotFoundError:
        raise MissingExtraError(
            "requests of plugins", distribution="httpx2", extras="pipecd-sdk[web]"
        ) from None
    return httpx2


@asynccontextmanager
async def _translate_errors(url: str) -> AsyncIterator[None]:
    """Makes what the library raises a WebError that names the address."""
    httpx2 = _load()
    try:
        yield
    except UnicodeEncodeError:
        raise WebError(
            f"{show_address(url)} cannot be asked: the request has letters that it cannot have"
        ) from None
    except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as error:
        said = show_text(str(error)) or type(error).__name__
        raise WebError(f"{show_address(url)} does not answer: {said}") from None


async def _read_answer(response: "httpx2.Response", largest: int) -> WebAnswer:
    """Reads a response up to a size, and closes it."""
    body = bytearray()
    try:
        async for chunk in response.aiter_bytes():
            body += chunk
            if len(body) > largest:
                break
    finally:
        await response.aclose()
    return WebAnswer(
        status=response.status_code,
        body=bytes(body[:largest]),
        is_cut=len(body) > largest,
        headers=response.headers,
    )


def _follow(url: str, place: str) -> str:
    """Returns where a redirect leads to. Raises WebError for what is no address."""
    try:
        return urljoin(url, place)
    except ValueError:
        raise WebError(
            f"{show_address(url)} redirects to what is no address: {show_address(place)}"
        ) from None


def _origin(url: str) -> tuple[str, str]:
    parts = urlsplit(url)
    return parts.scheme, parts.netloc


def show_address(url: str) -> str:
    """Returns an address without what may be secret in it.

    Example:
        >>> show_address("https://me:secret@example.com/a?token=b")
        'https://…@example.com/a'
    """
    return make_printable_line(hide_password(url.partition("?")[0]))


def show_text(text: str) -> str:
    """Returns a little of an answer, on one line.

    Example:
        >>> show_text("not\\nfound")
        'not found'
    """
    return make_printable_line(text[:LONGEST_SHOWN])
