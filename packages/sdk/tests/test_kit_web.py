# SPDX-License-Identifier: Apache-2.0
"""Addresses that an application names reach no private host, whatever they look like."""

import asyncio
import ssl
from collections.abc import Iterator
from typing import Any

import pytest
import trustme

from pipecd_sdk.kit.hosts import HostNotAllowedError, Hosts
from pipecd_sdk.kit.web import WebClient, WebError, show_address
from pipecd_test_support.web_server import Answer, Question, WebServer


@pytest.fixture
def web() -> Iterator[WebServer]:
    with WebServer() as server:
        yield server


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[str]]:
    """What names mean: a list for each, its first item for the first question and so on."""
    known: dict[str, list[str]] = {}
    real = asyncio.base_events.BaseEventLoop.getaddrinfo

    async def look_up(loop: Any, host: Any, *args: Any, **more: Any) -> Any:
        if host in known:
            answers = known[host]
            address = answers.pop(0) if len(answers) > 1 else answers[0]
            family = 10 if ":" in address else 2
            return [(family, 1, 6, "", (address, 0))]
        return await real(loop, host, *args, **more)

    monkeypatch.setattr(asyncio.base_events.BaseEventLoop, "getaddrinfo", look_up)
    return known


PRIVATE = [
    "http://127.0.0.1/",
    "http://[::1]/",
    "http://169.254.169.254/latest/meta-data/",
    "http://10.0.0.1/",
    "http://100.64.0.1/",
    "http://0.0.0.0/",
    "http://224.0.0.1/",
    "http://255.255.255.255/",
    "http://[fe80::1]/",
    "http://[fe80::1%25eth0]/",
    "http://[fd00:ec2::254]/",
    "http://[fec0::1]/",
    "http://[ff02::1]/",
    "http://[::]/",
    # IPv4 inside IPv6: mapped, compatible, translated in two ways, 6to4
    "http://[::ffff:10.0.0.1]/",
    "http://[::ffff:a9fe:a9fe]/",
    "http://[::127.0.0.1]/",
    "http://[64:ff9b::a00:1]/",
    "http://[64:ff9b:1::a00:1]/",
    "http://[2002:7f00:1::]/",
    # names, and numbers that a resolver reads as addresses
    "http://localhost/",
    "http://LOCALHOST./",
    "http://inside.example/",
    "http://mapped.example/",
    "http://2130706433/",
    "http://0x7f.1/",
    # who asks stands before the host; what looks like a host may be that
    "http://shop.example@127.0.0.1/",
    "http://shop.example:80@10.0.0.1/",
    "http://user:pass@[::1]/",
    "http://shop.example%40127.0.0.1/",
    "http://127.0.0.1#@shop.example/",
    "http://127.0.0.1?@shop.example/",
    "http://shop.example\\@127.0.0.1/",
    "http://127.0.0.1\\@shop.example/",
    "http://shop.example\t.evil/",
    # not of the web
    "file:///etc/passwd",
    "gopher://shop.example/",
    "//127.0.0.1/",
    "127.0.0.1",
    "http://",
    "http://[::1",
]


@pytest.mark.parametrize("url", PRIVATE)
async def test_a_private_host_is_refused(url: str, names: dict[str, list[str]]) -> None:
    """Whatever stands around it: either it is refused, or nothing is connected to."""
    names |= {"inside.example": ["192.168.1.7"], "mapped.example": ["::ffff:127.0.0.1"]}
    names |= {"localhost": ["127.0.0.1"], "2130706433": ["127.0.0.1"], "0x7f.1": ["127.0.0.1"]}
    connected: list[object] = []
    loop = asyncio.get_running_loop()
    real = loop.create_connection

    async def connect(*args: Any, **more: Any) -> Any:
        connected.append(args)
        return await real(*args, **more)

    loop.create_connection = connect  # type: ignore[method-assign]
    async with WebClient(Hosts([], public=True), uses_proxy=False) as client:
        with pytest.raises((HostNotAllowedError, WebError)):
            await client.request("GET", url)

    assert connected == []


@pytest.mark.parametrize("allowed", ["127.0.0.0/8", "127.0.0.1"])
async def test_the_piped_file_can_open_a_network(web: WebServer, allowed: str) -> None:
    web.give("/", lambda _: Answer(body=b"hello"))
    async with WebClient(Hosts([allowed], public=True)) as client:
        answer = await client.request("GET", web.url + "/")

    assert answer.text == "hello"


async def test_a_name_that_means_another_host_a_moment_later_changes_nothing(
    web: WebServer, names: dict[str, list[str]]
) -> None:
    """The connection goes to the address that was checked, and asks for the host by its name."""
    names["rebinding.example"] = ["127.0.0.1", "127.0.0.99"]
    web.give("/", lambda question: Answer(body=question.headers["Host"].encode()))
    async with WebClient(Hosts(["127.0.0.1/32"], public=True)) as client:
        answer = await client.request("GET", f"http://rebinding.example:{web.port}/")

    assert answer.text == f"rebinding.example:{web.port}"
    assert names["rebinding.example"] == ["127.0.0.99"], "it was looked up once"


async def test_a_name_that_means_a_private_host_a_moment_later_is_refused_then(
    web: WebServer, names: dict[str, list[str]]
) -> None:
    """Each step of a way is looked up and checked for itself."""
    names["rebinding.example"] = ["127.0.0.1", "169.254.169.254"]
    web.give("/", lambda _: Answer(302, headers={"Location": "/again"}))
    async with WebClient(Hosts(["127.0.0.1/32"], public=True)) as client:
        with pytest.raises(HostNotAllowedError, match=r"the private address 169\.254\.169\.254"):
            await client.request("GET", f"http://rebinding.example:{web.port}/")

    assert web.asked == ["GET /"]


async def test_a_checked_host_is_not_asked_for_by_a_proxy(
    web: WebServer, names: dict[str, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would look the name up itself."""
    names["shop.example"] = ["127.0.0.1"]
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    web.give("/", Answer(body=b"direct"))
    async with WebClient(Hosts(["127.0.0.1"], public=True)) as client:
        answer = await client.request("GET", f"http://shop.example:{web.port}/")

    assert answer.text == "direct"


async def test_a_redirect_is_checked_and_gets_no_headers_of_another_host(
    web: WebServer, names: dict[str, list[str]]
) -> None:
    names["public.example"] = ["127.0.0.1"]
    web.give("/to-private", lambda _: Answer(302, headers={"Location": "http://10.0.0.1/"}))
    web.give("/to-mapped", lambda _: Answer(302, headers={"Location": "//[::ffff:10.0.0.1]/"}))
    web.give("/to-file", lambda _: Answer(302, headers={"Location": "file:///etc/passwd"}))
    web.give("/to-other", lambda _: Answer(302, headers={"Location": f"{web.url}/seen"}))
    web.give("/loop", lambda _: Answer(302, headers={"Location": "/loop"}))
    seen: list[Question] = []

    def remember(question: Question) -> Answer:
        seen.append(question)
        return Answer(body=b"seen")

    web.give("/seen", remember)
    base = f"http://public.example:{web.port}"
    async with WebClient(Hosts(["127.0.0.1"], public=True)) as client:
        with pytest.raises(HostNotAllowedError, match=r"10\.0\.0\.1 is not an allowed host"):
            await client.request("GET", f"{base}/to-private")
        with pytest.raises(HostNotAllowedError, match="is not an allowed host"):
            await client.request("GET", f"{base}/to-mapped")
        with pytest.raises(HostNotAllowedError, match="cannot be fetched"):
            await client.request("GET", f"{base}/to-file")
        with pytest.raises(WebError, match="redirects more than 5 times"):
            await client.request("GET", f"{base}/loop")
        answer = await client.request(
            "POST", f"{base}/to-other", headers={"X-Token": "hunter2"}, login=("me", "secret")
        )

    assert answer.text == "seen"
    assert (seen[0].headers["X-Token"], seen[0].headers["Authorization"]) == (None, None)
    assert seen[0].method == "GET"


@pytest.mark.parametrize("place", ["http://[", "http://127.0.0.1:-1/", "http://127.0.0.1:65536/"])
async def test_a_redirect_to_what_is_no_address_is_a_fault_of_the_answer(
    web: WebServer, place: str
) -> None:
    web.give("/", Answer(302, headers={"Location": place}))
    async with WebClient(Hosts(["127.0.0.1"], public=True)) as client:
        with pytest.raises(WebError, match=r"redirects to what is no address|there is no port"):
            await client.request("GET", f"{web.url}/")


async def test_a_request_that_cannot_be_written_is_told(web: WebServer) -> None:
    async with WebClient(Hosts(["127.0.0.1"], public=True)) as client:
        with pytest.raises(WebError, match="letters that it cannot have"):
            await client.request("GET", f"{web.url}/", headers={"X-Name": "Zoë"})

    assert web.asked == []


async def test_a_refused_address_is_told_without_its_query() -> None:
    with pytest.raises(HostNotAllowedError) as caught:
        await Hosts([], public=True).check("http://me:se@cret@10.0.0.1/a?token=hush", "the check")

    assert caught.value.reason().startswith("the check 'http://…@10.0.0.1/a': 10.0.0.1 is not an")


async def test_the_certificate_must_be_that_of_the_name_not_of_the_address(
    names: dict[str, list[str]],
) -> None:
    """Nor may a connection that was made for one name serve another at the same address."""
    names |= {"shop.example": ["127.0.0.1"], "other.example": ["127.0.0.1"]}
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("shop.example").configure_cert(context)
    trusted = ssl.create_default_context()
    authority.configure_trust(trusted)
    with WebServer(context) as server:
        server.give("/", Answer(body=b"secret"))
        async with WebClient(Hosts(["127.0.0.1"], public=True), verify=trusted) as client:
            answer = await client.request("GET", f"https://shop.example:{server.port}/")
            with pytest.raises(WebError, match="does not answer"):
                await client.request("GET", f"https://other.example:{server.port}/")

    assert answer.text == "secret"


async def test_an_answer_without_end_is_cut(web: WebServer) -> None:
    web.give("/", Answer(body=b"x" * 5000))
    async with WebClient(largest_bytes=1000) as client:
        answer = await client.request("GET", web.url + "/")

    assert (len(answer.body), answer.is_cut) == (1000, True)


async def test_an_address_of_the_operator_is_asked_as_it_is(web: WebServer) -> None:
    """It may be in any network; where it sends others is not followed."""
    web.give("/", Answer(302, headers={"Location": "/elsewhere"}))
    async with WebClient() as client:
        answer = await client.request("GET", web.url + "/", params={"query": "up"})

    assert answer.status == 302
    assert web.asked == ["GET /"]


def test_an_address_is_shown_without_its_secrets() -> None:
    assert show_address("https://me:secret@a.example/b?token=c") == "https://…@a.example/b"
    assert show_address("https://me:p@ss@a.example/b") == "https://…@a.example/b"
    token = "t" * 300
    assert show_address(f"https://me:{token}@a.example/b") == "https://…@a.example/b"


async def test_a_private_host_is_named_as_it_is_or_by_its_network(
    names: dict[str, list[str]],
) -> None:
    """Whoever may add a name under a domain could lead anywhere."""
    names["db.corp.example"] = ["10.0.0.5"]

    for allowed in (["db.corp.example"], ["10.0.0.0/8"]):
        await Hosts(allowed, public=True).check("http://db.corp.example/", "the check")
    with pytest.raises(HostNotAllowedError, match="at the private address"):
        await Hosts(["*.corp.example"], public=True).check("http://db.corp.example/", "the check")
