# SPDX-License-Identifier: Apache-2.0
"""Addresses that an application names reach no private host, whatever they look like."""

import asyncio
import ssl
from typing import Any

import pytest
import trustme
from pipecd_plugin_analysis.plugin import Analysis
from pipecd_plugin_analysis.provider.base import EvaluationError
from pipecd_plugin_analysis.provider.guarded import GuardedHttp

from pipecd_sdk.kit.hosts import Hosts
from pipecd_sdk.testing import StageHarness
from pipecd_test_support.web_server import Answer, Question, WebServer


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[str]]:
    """What names mean: a list for each, its first item for the first question and so on."""
    known: dict[str, list[str]] = {}
    real = asyncio.base_events.BaseEventLoop.getaddrinfo

    async def look_up(loop: Any, host: Any, *args: Any, **more: Any) -> Any:
        if host in known:
            answers = known[host]
            address = answers.pop(0) if len(answers) > 1 else answers[0]
            return [(2, 1, 6, "", (address, 0))]
        return await real(loop, host, *args, **more)

    monkeypatch.setattr(asyncio.base_events.BaseEventLoop, "getaddrinfo", look_up)
    return known


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1/",
        "http://[::1]/",
        "http://169.254.169.254/latest/meta-data/",
        "http://10.0.0.1/",
        "http://[::ffff:10.0.0.1]/",
        "http://[64:ff9b::a00:1]/",
        "http://[2002:7f00:1::]/",
        "http://0.0.0.0/",
        "http://224.0.0.1/",
        "http://localhost/",
        "http://inside.example/",
        "http://2130706433/",
        "http://0x7f.1/",
        "file:///etc/passwd",
        "gopher://example.com/",
    ],
)
async def test_a_private_host_is_refused(url: str, names: dict[str, list[str]]) -> None:
    names |= {"inside.example": ["192.168.1.7"], "localhost": ["127.0.0.1"]}
    names |= {"2130706433": ["127.0.0.1"], "0x7f.1": ["127.0.0.1"]}
    async with GuardedHttp(Hosts([], public=True)) as http:
        with pytest.raises(EvaluationError, match=r"allowed|private|begins with"):
            await http.request("GET", url)


async def test_a_public_host_is_not(names: dict[str, list[str]]) -> None:
    names["shop.example"] = ["93.184.216.34"]

    addresses = await Hosts([], public=True).check("https://shop.example/", "the check")

    assert [str(each) for each in addresses] == ["93.184.216.34"]


@pytest.mark.parametrize("allowed", ["127.0.0.0/8", "127.0.0.1"])
async def test_the_piped_file_can_open_a_network(web: WebServer, allowed: str) -> None:
    web.give("/", lambda _: Answer(body=b"hello"))
    async with GuardedHttp(Hosts([allowed], public=True)) as http:
        answer = await http.request("GET", web.url + "/")

    assert answer.text == "hello"


async def test_a_name_that_means_another_host_a_moment_later_changes_nothing(
    web: WebServer, names: dict[str, list[str]]
) -> None:
    """The connection goes to the address that was checked, and asks for the host by its name."""
    names["rebinding.example"] = ["127.0.0.1", "127.0.0.99"]
    web.give("/", lambda question: Answer(body=question.headers["Host"].encode()))
    async with GuardedHttp(Hosts(["127.0.0.1/32"], public=True)) as http:
        answer = await http.request("GET", f"http://rebinding.example:{web.port}/")

    assert answer.text == f"rebinding.example:{web.port}"
    assert names["rebinding.example"] == ["127.0.0.99"], "it was looked up once"


async def test_a_redirect_is_checked_and_gets_no_headers_of_another_host(
    web: WebServer, names: dict[str, list[str]]
) -> None:
    names["public.example"] = ["127.0.0.1"]
    web.give("/to-private", lambda _: Answer(302, headers={"Location": "http://10.0.0.1/"}))
    web.give("/to-other", lambda _: Answer(302, headers={"Location": f"{web.url}/seen"}))
    web.give("/loop", lambda _: Answer(302, headers={"Location": "/loop"}))
    seen: list[Question] = []

    def remember(question: Question) -> Answer:
        seen.append(question)
        return Answer(body=b"seen")

    web.give("/seen", remember)
    base = f"http://public.example:{web.port}"
    async with GuardedHttp(Hosts(["127.0.0.1"], public=True)) as http:
        with pytest.raises(EvaluationError, match=r"10\.0\.0\.1 is not an allowed host"):
            await http.request("GET", f"{base}/to-private")
        with pytest.raises(EvaluationError, match="redirects more than 5 times"):
            await http.request("GET", f"{base}/loop")
        answer = await http.request("GET", f"{base}/to-other", headers={"X-Token": "hunter2"})

    assert answer.text == "seen"
    assert seen[0].headers["X-Token"] is None


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
        async with GuardedHttp(Hosts(["127.0.0.1"], public=True), verify=trusted) as http:
            answer = await http.request("GET", f"https://shop.example:{server.port}/")
            with pytest.raises(EvaluationError, match="does not answer"):
                await http.request("GET", f"https://other.example:{server.port}/")

    assert answer.text == "secret"


async def test_a_stage_says_which_setting_opens_the_host(web: WebServer) -> None:
    harness = StageHarness(Analysis())

    result = await harness.run(
        "ANALYSIS", {"duration": "1m", "https": [{"url": web.url, "interval": "1m"}]}
    )

    assert "127.0.0.1 is not an allowed host (add it to allowedHosts" in result.reason
    assert web.asked == []
