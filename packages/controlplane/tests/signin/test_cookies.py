# SPDX-License-Identifier: Apache-2.0
"""Cookies go where they should, and nonsense in them harms nobody."""

import ssl
from pathlib import Path
from typing import Any

import pytest
import trustme

from pipecd_controlplane.http.server import CertificateFiles
from pipecd_test_support.sign_in_site import SignInSite, SiteWith
from pipecd_wire.rpc import CallError, call, connect
from pipecd_wire.rpc.frames import frame
from pipecd_wire.webservice import service_pb2 as web
from pipecd_wire.webservice import service_pb2_grpc as web_grpc


async def set_cookie(site: SignInSite, **options: Any) -> str:
    await site.project()
    answer = await site.sign_in(await site.browser(**options))
    assert answer.status_code == 302
    return str(answer.headers["set-cookie"]).lower()


async def test_in_plain_text_a_cookie_is_not_secure_so_that_it_sticks(site_with: SiteWith) -> None:
    async with site_with() as site:
        assert "secure" not in await set_cookie(site)


async def test_behind_a_proxy_with_tls_a_cookie_is_secure(site_with: SiteWith) -> None:
    async with site_with(public_url="https://pipecd.example.com") as site:
        assert "secure" in await set_cookie(site)


async def test_an_insecure_cookie_can_be_asked_for(site_with: SiteWith) -> None:
    async with site_with(public_url="https://x.example.com", insecure_cookie=True) as site:
        assert "secure" not in await set_cookie(site)


async def test_under_our_own_tls_a_cookie_is_secure(site_with: SiteWith, tmp_path: Path) -> None:
    authority = trustme.CA()
    certificate = authority.issue_cert("127.0.0.1")
    chain, key = tmp_path / "chain.pem", tmp_path / "key.pem"
    chain.write_bytes(b"".join(blob.bytes() for blob in certificate.cert_chain_pems))
    certificate.private_key_pem.write_to_path(str(key))
    roots = tmp_path / "roots.pem"
    authority.cert_pem.write_to_path(str(roots))

    async with site_with(tls=CertificateFiles(cert_file=chain, key_file=key)) as site:
        context = ssl.create_default_context(cafile=str(roots))
        assert "secure" in await set_cookie(site, verify=context)


@pytest.mark.parametrize(
    "header", ["nonsense", ";", "token", "a=b;", "=", "token=", "token=x", ";;token=a.b", "=a;b="]
)
async def test_a_cookie_that_is_none_is_no_session_and_no_crash(
    site: SignInSite, header: str
) -> None:
    async with connect(site.plane.address) as channel:
        stub = web_grpc.WebServiceStub(channel)
        for _ in range(2):
            with pytest.raises(CallError) as caught:
                await call(stub.GetMe, web.GetMeRequest(), metadata=[("cookie", header)])
            assert caught.value.status == "UNAUTHENTICATED"


async def test_every_page_has_headers_that_keep_a_browser_safe(site: SignInSite) -> None:
    answer = await (await site.browser()).get("/")

    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["x-frame-options"] == "DENY"
    assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
    assert answer.headers["x-request-id"]


async def test_a_request_keeps_the_id_that_it_came_with(site: SignInSite) -> None:
    browser = await site.browser()

    kept = await browser.get("/version", headers={"x-request-id": "abc-1"})
    replaced = await browser.get("/version", headers={"x-request-id": "a b<script>"})

    assert kept.headers["x-request-id"] == "abc-1"
    assert len(replaced.headers["x-request-id"]) == 32


async def test_the_web_clients_own_way_of_calling_takes_the_cookie(site: SignInSite) -> None:
    browser = await site.browser()
    await site.sign_in(browser)

    answer = await browser.post(
        "/grpc.service.webservice.WebService/GetMe",
        content=frame(web.GetMeRequest().SerializeToString()),
        headers={"content-type": "application/grpc-web+proto", "x-grpc-web": "1"},
    )

    size = int.from_bytes(answer.content[1:5], "big")
    me = web.GetMeResponse.FromString(answer.content[5 : 5 + size])
    assert (me.subject, me.project_id) == ("boss", "shop")
    assert b"grpc-status:0" in answer.content.replace(b" ", b"")
