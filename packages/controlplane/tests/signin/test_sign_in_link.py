# SPDX-License-Identifier: Apache-2.0
"""A one-time link signs in one browser of this machine, and nobody else: over real HTTP."""

import asyncio
import logging
from pathlib import Path

import httpx2
import pytest

from pipecd_controlplane.auth.sign_in_links import LIFETIME_SECONDS, MOST, SignInLinks
from pipecd_controlplane.http.sign_in_link import PROXY_HEADERS
from pipecd_controlplane.ops.operator import ask_for_link
from pipecd_controlplane.ops.sign_in_link import find_loopback
from pipecd_controlplane.usecases.in_process import InProcessState
from pipecd_model.errors import PipecdError, StateError, UnauthenticatedError
from pipecd_test_support.sign_in_site import SignInSite, SiteWith
from pipecd_test_support.stored_rows import opening_rows, read_tables

PAGE = "/auth/link"


async def make_link(site: SignInSite, project_id: str = "shop") -> str:
    """Returns the secret of a new link."""
    url = await asyncio.to_thread(ask_for_link, site.plane.running.data_dir, project_id)
    address, _, secret = url.partition("#")
    assert address == f"{site.url}{PAGE}"
    return secret


async def open_link(
    site: SignInSite, secret: str, headers: dict[str, str] | None = None
) -> httpx2.Response:
    """Sends the form, as the script of the page does."""
    browser = await site.browser(headers={"origin": site.url} | (headers or {}))
    return await browser.post(PAGE, data={"secret": secret})


async def test_a_link_signs_a_browser_in_once(site: SignInSite) -> None:
    secret = await make_link(site)
    page = await (await site.browser()).get(PAGE)
    assert (page.status_code, secret in page.text) == (200, False)
    assert page.headers["cache-control"] == "no-store"

    first = await open_link(site, secret)
    again = await open_link(site, secret)

    assert (first.status_code, first.headers["location"]) == (303, "/")
    token = first.cookies["token"]
    assert await site.me(token) != "UNAUTHENTICATED"
    attributes = first.headers["set-cookie"].lower()
    assert "httponly" in attributes
    assert "samesite=strict" in attributes
    assert again.status_code == 401
    assert "not good any more" in again.text
    assert not again.cookies


async def test_two_browsers_at_the_same_moment_get_one_session(site: SignInSite) -> None:
    secret = await make_link(site)
    answers = await asyncio.gather(*(open_link(site, secret) for _ in range(8)))
    assert sorted(each.status_code for each in answers)[:2] == [303, 401]


@pytest.mark.parametrize("header", PROXY_HEADERS)
async def test_a_browser_behind_a_proxy_is_refused_and_the_link_stays_good(
    site: SignInSite, header: str
) -> None:
    secret = await make_link(site)
    refused = await open_link(site, secret, {header: "127.0.0.1"})
    assert (refused.status_code, "proxy" in refused.text) == (403, True)
    assert (await open_link(site, secret)).status_code == 303


async def test_a_trusted_proxy_on_the_same_machine_cannot_bring_anybody(
    site_with: SiteWith,
) -> None:
    async with site_with(trusted_proxies=("127.0.0.0/8",)) as site:
        secret = await make_link(site, "default")
        for told in ("203.0.113.9", "127.0.0.1", "::1", "203.0.113.9, 127.0.0.1"):
            refused = await open_link(site, secret, {"x-forwarded-for": told})
            assert refused.status_code == 403
        assert (await open_link(site, secret)).status_code == 303


@pytest.mark.parametrize(
    "host", ["pipecd.example", "127.0.0.1.evil.example", "localhost.evil", "10.0.0.1", "[", ""]
)
async def test_another_name_for_this_machine_is_refused(site: SignInSite, host: str) -> None:
    """Else a page could make its own name lead here, and so run in the same origin."""
    secret = await make_link(site)
    refused = await open_link(site, secret, {"host": host, "origin": f"http://{host}"})
    assert refused.status_code in {400, 403}
    assert (await open_link(site, secret)).status_code == 303


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ],
)
async def test_another_sites_page_cannot_send_the_form(
    site: SignInSite, headers: dict[str, str]
) -> None:
    secret = await make_link(site)
    assert (await open_link(site, secret, headers)).status_code == 403
    program = await site.browser()  # sends no header of browsers
    assert (await program.post(PAGE, data={"secret": secret})).status_code == 403


async def test_opening_the_page_uses_nothing_up(site: SignInSite) -> None:
    """What fetches links ahead, a preview for example, must not take the sign-in away."""
    secret = await make_link(site)
    browser = await site.browser()
    for method in ("GET", "HEAD"):
        await browser.request(method, f"{PAGE}?secret={secret}")
    assert (await open_link(site, secret)).status_code == 303


async def test_guessing_is_slowed_down(site: SignInSite) -> None:
    statuses = [(await open_link(site, f"guess-{number}")).status_code for number in range(12)]
    assert statuses[0] == 401
    assert statuses[-1] == 429


async def test_a_link_does_not_outlive_the_server(site_with: SiteWith) -> None:
    async with site_with() as site:
        secret = await make_link(site, "default")
    async with site_with() as site:
        assert (await open_link(site, secret)).status_code == 401


async def test_the_secret_is_in_no_log_no_audit_and_no_file(
    site: SignInSite, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    used, unused = await make_link(site), await make_link(site)
    await open_link(site, used)
    await open_link(site, used)
    folder = site.plane.running.data_dir
    for secret in (used, unused):
        assert secret not in caplog.text
        for file in (each for each in folder.rglob("*") if each.is_file()):
            assert secret.encode() not in file.read_bytes(), file
    with opening_rows(folder) as rows:
        found = rows.run("SELECT data FROM audit_record WHERE action = 'SignIn'")
    assert b"LINK" in found[-1]["data"]
    assert all(secret not in str(read_tables(folder)) for secret in (used, unused))


async def test_the_page_tells_no_other_site_where_it_was(site: SignInSite) -> None:
    page = await (await site.browser()).get(PAGE)
    # Not "no-referrer": with it browsers say of the form that it comes from nowhere.
    assert page.headers["referrer-policy"] == "same-origin"
    assert "unsafe-inline" not in page.headers["content-security-policy"]
    assert "frame-ancestors 'none'" in page.headers["content-security-policy"]


async def test_which_project_must_be_said_where_there_are_several(site: SignInSite) -> None:
    with pytest.raises(StateError, match="several projects") as failed:
        await make_link(site, "")
    assert "default, shop" in failed.value.hint
    with pytest.raises(StateError, match="no project 'nowhere'"):
        await make_link(site, "nowhere")


async def test_it_ends_after_ten_minutes_and_there_are_never_many(
    site: SignInSite, tmp_path: Path
) -> None:
    now = 0.0
    stores = site.plane.stores
    links = SignInLinks(stores, InProcessState(tmp_path, lambda: now), lambda: now)
    good, late = await links.make("shop", "ann"), await links.make("shop", "ann")
    now = LIFETIME_SECONDS - 1
    assert (await links.take(good, address="::1")).name == "ann"
    now = LIFETIME_SECONDS
    with pytest.raises(UnauthenticatedError):
        await links.take(late, address="::1")
    made = [await links.make("shop", "ann") for _ in range(MOST + 1)]
    with pytest.raises(UnauthenticatedError):
        await links.take(made[0], address="::1")
    assert (await links.take(made[1], address="::1")).project_id == "shop"


def test_a_link_leads_to_the_loopback_address() -> None:
    assert find_loopback("127.0.0.1:80") == "127.0.0.1:80"
    assert find_loopback("0.0.0.0:80") == "127.0.0.1:80"
    assert find_loopback("[::]:80") == "[::1]:80"
    for elsewhere in ("10.0.0.7:80", "pipecd.example:80"):
        with pytest.raises(PipecdError):
            find_loopback(elsewhere)


async def test_there_is_none_without_a_server(tmp_path: Path) -> None:
    with pytest.raises(StateError, match="no server runs"):
        ask_for_link(tmp_path, "")
