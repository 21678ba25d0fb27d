# SPDX-License-Identifier: Apache-2.0
"""Only our own page signs anybody in or out; a page of another site does neither."""

import httpx2
import pytest

from pipecd_test_support.sign_in_site import ReadError, SignInSite, SiteWith

PUBLIC = "https://pipecd.example.com"
ELSEWHERE = "the request comes from another site"

# What a browser says of a page that is not ours; `HOST` is the address of the request.
OTHERS: list[dict[str, str]] = [
    {"origin": "https://evil.example.com"},
    {"origin": "null"},
    {"origin": "null", "sec-fetch-site": "same-origin"},
    {"origin": "null", "sec-fetch-site": "none"},
    {"origin": "null", "referer": "http://HOST/"},
    {"sec-fetch-site": "cross-site"},
    {"sec-fetch-site": "same-site"},
    {"sec-fetch-site": "cross-site", "origin": "http://HOST"},
    {"sec-fetch-site": "SAME-ORIGIN"},
    {"sec-fetch-site": "none", "origin": "https://evil.example.com"},
    {"referer": "https://evil.example.com/page"},
    {"origin": "http://HOST.evil.example.com"},
    {"origin": "http://evil.example.com#HOST"},
    {"origin": "http://HOST@evil.example.com"},
    {"origin": "http://evil@HOST"},
    {"origin": "http://[bad"},
    {"origin": "http://HOST:notaport"},
    {"origin": "file://HOST"},
    {"origin": "HOST"},
    {"origin": "x"},
]

OURS: list[dict[str, str]] = [
    {"origin": "http://HOST"},
    {"origin": "http://HOST", "sec-fetch-site": "same-origin"},
    {"origin": "https://behind-a-proxy.example.com", "sec-fetch-site": "same-origin"},
    {"referer": "http://HOST/settings"},
]


def said(site: SignInSite, headers: dict[str, str]) -> dict[str, str]:
    return {name: value.replace("HOST", site.plane.address) for name, value in headers.items()}


async def token_of(site: SignInSite, browser: httpx2.AsyncClient) -> str:
    await site.sign_in(browser)
    return str(browser.cookies["token"])


@pytest.mark.parametrize("public_url", ["", PUBLIC])
async def test_a_page_of_another_site_signs_nobody_in(
    site_with: SiteWith, error_of: ReadError, public_url: str
) -> None:
    async with site_with(public_url=public_url) as site:
        await site.project()
        for headers in OTHERS:
            browser = await site.browser(headers=said(site, headers))
            for path in ("/auth/login/static", "/auth/login", "/auth/logout"):
                answer = await browser.post(path, data={"project": "shop"})
                assert error_of(answer) == ELSEWHERE, (path, headers)


async def test_our_own_page_and_a_program_sign_in(site: SignInSite) -> None:
    for headers in [*OURS, {}, {"sec-fetch-site": "none"}]:
        browser = await site.browser(headers=said(site, headers))
        assert (await site.sign_in(browser)).status_code == 302, headers


async def test_our_page_at_the_public_address_signs_in(site_with: SiteWith) -> None:
    async with site_with(public_url=PUBLIC) as site:
        await site.project()
        for origin in (PUBLIC, f"{PUBLIC}:443", PUBLIC.upper().replace("HTTPS", "https")):
            browser = await site.browser(headers={"origin": origin})
            assert (await site.sign_in(browser)).status_code == 302, origin
        browser = await site.browser(headers={"origin": f"{PUBLIC}:8443"})
        assert (await site.sign_in(browser)).status_code == 303


async def test_signing_out_ends_the_session_and_not_only_the_cookie(site: SignInSite) -> None:
    browser = await site.browser()
    token = await token_of(site, browser)

    answer = await browser.post("/auth/logout")

    assert answer.status_code == 302
    assert "token" not in browser.cookies
    assert await site.me(token) == "UNAUTHENTICATED"


async def test_the_link_of_our_own_page_signs_out(site: SignInSite) -> None:
    """Upstream's page has a link, not a form."""
    for headers in OURS:
        browser = await site.browser()
        token = await token_of(site, browser)

        answer = await browser.get("/auth/logout", headers=said(site, headers))

        assert answer.status_code == 302, headers
        assert await site.me(token) == "UNAUTHENTICATED"


async def test_any_other_link_asks_first(site: SignInSite) -> None:
    browser = await site.browser()
    token = await token_of(site, browser)
    for headers in [*OTHERS, {}, {"sec-fetch-site": "none"}]:
        answer = await browser.get("/auth/logout", headers=said(site, headers))

        assert answer.status_code == 200, headers
        assert '<form method="post" action="/auth/logout">' in answer.text
        assert "set-cookie" not in answer.headers
    assert (await browser.head("/auth/logout", headers=said(site, OURS[0]))).status_code == 200
    assert await site.me(token) == "boss"
