# SPDX-License-Identifier: Apache-2.0
"""Signing in through OpenID Connect, at a provider that checks what it gets."""

import asyncio
import json
from typing import Any

import pytest
from joserfc.jwk import OctKey, RSAKey

from pipecd_controlplane.auth.sso.journey import Journeys
from pipecd_controlplane.auth.sso.oidc import Oidc
from pipecd_controlplane.usecases.vault import Vault
from pipecd_test_support.identity_providers import OidcIssuer, WalkThrough
from pipecd_test_support.sign_in_site import ReadError, SignInSite, SiteWith
from pipecd_test_support.stored_rows import read_tables
from pipecd_wire.model import project_pb2
from pipecd_wire.rpc import CallError
from pipecd_wire.webservice import service_pb2 as web

Sso = project_pb2.ProjectSSOConfig


@pytest.fixture
async def shop(site_with: SiteWith, issuer: OidcIssuer) -> Any:
    """A site whose project `shop` signs in at the issuer; `ops` may do everything."""
    async with site_with() as site:
        await site.project(
            user_groups=[project_pb2.ProjectUserGroup(sso_group="ops", role="Admin")]
        )
        browser = await site.browser()
        await site.sign_in(browser)
        oidc = Sso.Oidc(client_id="client", client_secret="s3cret", issuer=issuer.url)  # noqa: S106
        request = web.UpdateProjectSSOConfigRequest(
            sso=Sso(provider=Sso.OIDC, session_ttl=2, oidc=oidc)
        )
        await site.call(browser.cookies["token"], "UpdateProjectSSOConfig", request)
        yield site


async def test_a_member_of_a_group_gets_its_role(
    shop: SignInSite, issuer: OidcIssuer, through: WalkThrough
) -> None:
    issuer.claims = {"groups": ["dev", "ops"], "picture": "https://example.com/a.png"}
    browser = await shop.browser()

    answer = await through(browser)

    assert (answer.status_code, answer.headers["location"]) == (302, "/")
    me = await shop.call(browser.cookies["token"], "GetMe", web.GetMeRequest())
    assert (me.subject, me.project_id) == ("ada", "shop")
    assert me.avatar_url == "https://example.com/a.png"
    await shop.call(browser.cookies["token"], "ListAPIKeys", web.ListAPIKeysRequest())


async def test_a_sign_in_for_a_terminal_leads_back_to_the_page_for_its_code(
    shop: SignInSite, issuer: OidcIssuer, through: WalkThrough
) -> None:
    """By a page of ours: the browser sends a strict cookie on no redirect from another site."""
    issuer.claims = {"groups": ["ops"]}
    browser = await shop.browser()

    answer = await through(browser, next="/auth/terminal")

    assert answer.status_code == 200
    assert 'http-equiv="refresh" content="0; url=/auth/terminal"' in answer.text
    assert "ada" in (await browser.get("/auth/terminal")).text


async def test_a_sign_in_for_a_terminal_that_fails_says_why_there(
    shop: SignInSite, issuer: OidcIssuer, through: WalkThrough
) -> None:
    issuer.claims = {"groups": ["strangers"]}
    browser = await shop.browser()

    answer = await through(browser, next="/auth/terminal")

    assert "url=/auth/terminal" in answer.text
    assert "you have no role in this project" in (await browser.get("/auth/terminal")).text


async def test_the_session_lasts_as_long_as_the_project_says(
    shop: SignInSite, issuer: OidcIssuer, through: WalkThrough
) -> None:
    issuer.claims = {"groups": "ops"}

    answer = await through(await shop.browser())

    assert "max-age=7200" in answer.headers["set-cookie"].lower()


async def test_the_sign_in_asks_with_state_nonce_and_challenge(
    shop: SignInSite, issuer: OidcIssuer, through: WalkThrough
) -> None:
    issuer.claims = {"groups": ["ops"]}
    await through(await shop.browser())
    await through(await shop.browser())

    first, second = issuer.asked
    assert first["code_challenge_method"] == "S256"
    assert first["response_type"] == "code"
    assert "openid" in first["scope"].split()
    assert first["state"].endswith(":shop")
    for name in ("state", "nonce", "code_challenge"):
        assert len(first[name]) >= 32
        assert first[name] != second[name]


async def test_one_who_comes_back_without_end_is_told_to_wait(
    shop: SignInSite, error_of: ReadError
) -> None:
    """Each time the provider would be called; the number of tries is for slow machines."""
    browser = await shop.browser()

    said = ""
    for _ in range(300):
        said = error_of(await browser.get("/auth/callback?state=made-up&code=made-up"))
        if not said.startswith("the sign-in was not begun in this browser"):
            break

    assert said.startswith("too many attempts to sign in")


async def test_a_code_brought_back_by_another_browser_is_refused(
    shop: SignInSite, issuer: OidcIssuer, through: WalkThrough, error_of: ReadError
) -> None:
    issuer.claims = {"groups": ["ops"]}

    answer = await through(await shop.browser(), back_with=await shop.browser())

    assert error_of(answer).startswith("the sign-in was not begun in this browser")


@pytest.mark.parametrize(
    "claims",
    [
        {"nonce": "another"},
        {"nonce": None},
        {"aud": "somebody else"},
        {"aud": ["client", "another"]},
        {"iss": "https://evil.example.com"},
        {"exp": 1},
        {"iat": 2**40},
        {"sub": None},
    ],
)
async def test_a_token_that_is_not_for_this_sign_in_is_refused(
    shop: SignInSite,
    issuer: OidcIssuer,
    through: WalkThrough,
    error_of: ReadError,
    claims: dict[str, Any],
) -> None:
    issuer.claims = {"groups": ["ops"], **claims}

    answer = await through(await shop.browser())

    assert error_of(answer) == "the provider's ID token is not good"


async def test_a_token_signed_by_somebody_else_is_refused(
    shop: SignInSite, issuer: OidcIssuer, through: WalkThrough, error_of: ReadError
) -> None:
    issuer.claims = {"groups": ["ops"]}
    issuer.signed_with = RSAKey.generate_key(2048, {"kid": "k1"})
    assert error_of(await through(await shop.browser())) == "the provider's ID token is not good"

    # A secret that is shared proves nothing: the client's own is known to more than the provider.
    issuer.algorithm = "HS256"
    issuer.signed_with = OctKey.import_key("s3cret" * 6, {"kid": "k1"})
    assert error_of(await through(await shop.browser())) == "the provider's ID token is not good"


async def test_the_user_info_must_be_of_the_same_person(
    shop: SignInSite, issuer: OidcIssuer, through: WalkThrough, error_of: ReadError
) -> None:
    issuer.user_info = {"sub": "1", "preferred_username": "lovelace", "groups": ["ops"]}
    browser = await shop.browser()
    await through(browser)
    assert await shop.me(browser.cookies["token"]) == "lovelace"

    issuer.user_info = {"sub": "2", "groups": ["ops"]}
    error = error_of(await through(await shop.browser()))
    assert error == "the provider speaks of two different people"


async def test_who_has_no_role_is_not_let_in_unless_strays_may_look(
    shop: SignInSite, issuer: OidcIssuer, through: WalkThrough, error_of: ReadError
) -> None:
    issuer.claims = {"groups": ["unknown"]}
    assert error_of(await through(await shop.browser())).startswith("you have no role")

    def allow(project: project_pb2.Project) -> None:
        project.allow_stray_as_viewer = True

    await shop.plane.stores.projects.update("shop", allow)
    browser = await shop.browser()
    await through(browser)
    assert await shop.me(browser.cookies["token"]) == "ada"


async def test_a_role_that_is_taken_from_a_group_is_gone_at_once(
    shop: SignInSite, issuer: OidcIssuer, through: WalkThrough
) -> None:
    issuer.claims = {"groups": ["ops"]}
    browser = await shop.browser()
    await through(browser)
    token = browser.cookies["token"]
    assert await shop.me(token) == "ada"

    request = web.DeleteProjectUserGroupRequest(sso_group="ops")
    await shop.call(token, "DeleteProjectUserGroup", request)

    assert await shop.me(token) == "PERMISSION_DENIED"


@pytest.mark.parametrize("role", ["Admin", "Editor", "Viewer", "Own"])
async def test_a_group_that_is_named_as_a_role_is_not_the_role(
    shop: SignInSite, issuer: OidcIssuer, through: WalkThrough, error_of: ReadError, role: str
) -> None:
    """Whoever names groups at the provider would give rights here."""

    def add_role(project: project_pb2.Project) -> None:
        project.rbac_roles.add(name="Own")

    await shop.plane.stores.projects.update("shop", add_role)
    for claim in ("groups", "roles", "cognito:groups", "custom:roles", "custom:groups"):
        for value in (role, [role]):
            issuer.claims = {claim: value}
            assert error_of(await through(await shop.browser())).startswith("you have no role")

    def map_it(project: project_pb2.Project) -> None:
        project.user_groups.add(sso_group=role, role="Viewer")

    await shop.plane.stores.projects.update("shop", map_it)
    browser = await shop.browser()
    await through(browser)
    token = browser.cookies["token"]
    assert await shop.me(token) == "ada"
    with pytest.raises(CallError):
        await shop.call(token, "ListAPIKeys", web.ListAPIKeysRequest())


async def test_a_provider_that_is_away_is_an_error_and_not_a_page(
    shop: SignInSite, error_of: ReadError, issuer: OidcIssuer
) -> None:
    def elsewhere(project: project_pb2.Project) -> None:
        project.sso.oidc.issuer = "http://127.0.0.1:9"

    await shop.plane.stores.projects.update("shop", elsewhere)
    browser = await shop.browser()

    answer = await browser.post("/auth/login", data={"project": "shop"})

    assert error_of(answer).startswith("the sign-in provider cannot be used now")


async def test_a_project_without_single_sign_on_is_answered_as_one_that_is_not_there(
    shop: SignInSite, error_of: ReadError
) -> None:
    await shop.project("plain")
    browser = await shop.browser()

    errors = {
        error_of(await browser.post("/auth/login", data={"project": name}))
        for name in ("plain", "nothing")
    }

    assert errors == {"single sign-on is not set up for this project"}


async def test_secrets_of_the_client_are_closed_on_disk_and_never_shown(shop: SignInSite) -> None:
    kept = await shop.plane.stores.projects.get("shop")
    assert kept.sso.oidc.client_secret.startswith("pv1.")
    folder = shop.plane.running.data_dir
    assert "s3cret" not in str(read_tables(folder))
    for path in folder.glob("pipecd.db*"):
        assert b"s3cret" not in path.read_bytes()

    browser = await shop.browser()
    await shop.sign_in(browser)
    token = browser.cookies["token"]
    shown = (await shop.call(token, "GetProject", web.GetProjectRequest())).project
    assert shown.sso.oidc.client_secret == shown.sso.oidc.client_id == "redacted"  # noqa: S105
    assert shown.static_admin.password_hash == "redacted"  # noqa: S105


async def test_everything_goes_through_the_proxy_discovery_included(issuer: OidcIssuer) -> None:
    asked = []

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        asked.append(head.split(" ")[1])
        told = {
            "issuer": "http://issuer.invalid",
            "authorization_endpoint": "http://issuer.invalid/authorize",
            "token_endpoint": "http://issuer.invalid/token",
            "jwks_uri": "http://issuer.invalid/keys",
        }
        body = json.dumps(told).encode()
        length = f"content-length: {len(body)}"
        writer.write(f"HTTP/1.1 200 OK\r\n{length}\r\nconnection: close\r\n\r\n".encode() + body)
        writer.close()

    async with await asyncio.start_server(relay, "127.0.0.1", 0) as proxy:
        port = proxy.sockets[0].getsockname()[1]
        client = Sso.Oidc(
            client_id="client",
            client_secret="s3cret",  # noqa: S106
            issuer="http://issuer.invalid",
            proxy_url=f"http://127.0.0.1:{port}",
        )
        journey = Journeys(Vault([b"k" * 32]), lambda: 1).begin("shop")
        url = await Oidc(client, "http://pipecd.example.com").start(journey)

    assert asked == ["http://issuer.invalid/.well-known/openid-configuration"]
    assert url.startswith("http://issuer.invalid/authorize?client_id=client&redirect_uri=http")
