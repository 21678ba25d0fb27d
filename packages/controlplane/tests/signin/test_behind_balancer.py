# SPDX-License-Identifier: Apache-2.0
"""People who come through a TCP balancer with the PROXY protocol: limits and audit by address."""

import asyncio
from collections.abc import AsyncIterator

import httpx2
import pytest

from pipecd_controlplane.ops.operator import ask_for_link
from pipecd_controlplane.store.audit import AuditFilter
from pipecd_test_support.balancer import Balancer
from pipecd_test_support.sign_in_site import ReadError, SignInSite, SiteWith

BALANCER, ONE, OTHER = "127.0.0.9", "127.0.0.1", "127.0.0.2"


@pytest.fixture
async def site(site_with: SiteWith) -> AsyncIterator[SignInSite]:
    async with site_with(trusted_proxies=(BALANCER,), proxy_protocol=True) as made:
        await made.project()
        yield made


@pytest.fixture
async def balancer(site: SignInSite) -> AsyncIterator[Balancer]:
    made = Balancer([site.plane.address], send_proxy=2, source=BALANCER)
    async with made.listening():
        yield made


async def open_browser(site: SignInSite, url: str, source: str) -> httpx2.AsyncClient:
    """Returns a browser at that address, which writes whatever it likes into its requests."""
    transport = httpx2.AsyncHTTPTransport(local_address=source)
    browser = httpx2.AsyncClient(
        base_url=url,
        transport=transport,
        timeout=30,
        headers={"x-forwarded-for": "198.51.100.66", "origin": url},
    )
    return await site.opened.enter_async_context(browser)


async def test_wrong_passwords_of_one_client_lock_out_no_other(
    site: SignInSite, balancer: Balancer, error_of: ReadError
) -> None:
    url = f"http://{balancer.address}"
    one, other = [await open_browser(site, url, source) for source in (ONE, OTHER)]
    for _ in range(10):
        await site.sign_in(one, password="wrong")  # noqa: S106

    assert error_of(await site.sign_in(one)).startswith("too many attempts to sign in")
    assert (await site.sign_in(other)).status_code == 302


async def test_the_audit_names_the_client_and_not_the_balancer(
    site: SignInSite, balancer: Balancer
) -> None:
    await site.sign_in(await open_browser(site, f"http://{balancer.address}", OTHER))

    await site.plane.running.gathered_audit.flush()
    page = await site.plane.stores.audit.page(
        "shop", AuditFilter(oldest_first=True), limit=10, cursor=""
    )
    assert [(each.action, each.address) for each in page.items] == [("SignIn", OTHER)]


async def test_a_sign_in_link_works_past_the_balancer_only(
    site: SignInSite, balancer: Balancer
) -> None:
    """A loopback address that another machine names is not this machine's."""
    url = await asyncio.to_thread(ask_for_link, site.plane.running.data_dir, "shop")
    secret = url.partition("#")[2]
    host = {"host": site.plane.address, "origin": site.url}

    through = await open_browser(site, f"http://{balancer.address}", ONE)
    del through.headers["x-forwarded-for"]
    refused = await through.post("/auth/link", data={"secret": secret}, headers=host)
    past = await open_browser(site, site.url, ONE)
    del past.headers["x-forwarded-for"]
    taken = await past.post("/auth/link", data={"secret": secret})

    assert (refused.status_code, "through a proxy" in refused.text) == (403, True)
    assert taken.status_code == 303
