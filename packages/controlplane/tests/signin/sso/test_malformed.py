# SPDX-License-Identifier: Apache-2.0
"""Whatever a provider answers, a person gets a sentence: never a broken page."""

from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest

from pipecd_controlplane.auth.sso import claims
from pipecd_controlplane.auth.sso.github import GitHub
from pipecd_controlplane.auth.sso.journey import Journeys
from pipecd_controlplane.auth.sso.oidc import Oidc
from pipecd_controlplane.auth.sso.sign_in import SsoSignIn
from pipecd_controlplane.store.database import Transaction
from pipecd_controlplane.store.stores import Stores
from pipecd_controlplane.usecases import sessions
from pipecd_controlplane.usecases.project import ProjectSettings
from pipecd_controlplane.usecases.sso_settings import SsoSettings
from pipecd_controlplane.usecases.vault import Vault
from pipecd_model.errors import PipecdError, StateError, UnauthenticatedError
from pipecd_test_support.identity_providers import GitHubServer, OidcIssuer
from pipecd_wire.model import project_pb2

Sso = project_pb2.ProjectSSOConfig

UNUSABLE = "the sign-in provider cannot be used now"
DISCOVERY = "the provider cannot be used: "
OTHER_NAME = "the provider calls itself by another name"
TOKEN = "the provider's ID token is not good"  # noqa: S105 - a sentence
REFUSED = "the provider did not accept the sign-in"
TWO_PEOPLE = "the provider speaks of two different people"
NOBODY = "the provider did not say who signed in"
IN = ""

# No JSON, or none that can be read.
BODIES: list[bytes] = [
    b"",
    b"<html>",
    b"{",
    b"\xff\xfe",
    b'{"issuer": "\\ud800"}',
    b"[" * 100_000,
    b'"' + b"x" * 2_000_000 + b'"',
]
# JSON of a wrong type.
NO_OBJECTS: list[bytes] = [b"null", b"5", b'"text"', b"[]", b"[[]]", b"true", b"1e999"]


def each(*values: object) -> tuple[object, ...]:
    """Returns values of any types."""
    return values


def urls(name: str) -> list[tuple[str, Any, str]]:
    wrong: list[object] = [None, 5, [], {}, True, ["https://x.example.com"]]
    wrong += ["", "no url", "javascript:alert(1)"]
    wrong += ["http://", "http://[", "http://x.example.com\n/y", "ftp://x.example.com"]
    return [("discovery", {name: value}, DISCOVERY + name) for value in wrong]


CASES: list[tuple[str, Any, str]] = [
    *[("discovery", body, UNUSABLE) for body in BODIES],
    *[("discovery", body, OTHER_NAME) for body in [*NO_OBJECTS, b"{}"]],
    *[("discovery", {"issuer": value}, OTHER_NAME) for value in each(None, 5, [], "x")],
    *urls("authorization_endpoint"),
    *urls("token_endpoint"),
    *urls("jwks_uri"),
    *[
        ("discovery", {"userinfo_endpoint": value}, DISCOVERY + "userinfo_endpoint")
        for value in each(5, [], {"a": 1}, "no url")
    ],
    *[
        ("discovery", {"token_endpoint_auth_methods_supported": value}, IN)
        for value in each(None, 5, {}, "x", [None, 5], ["client_secret_post"], True)
    ],
    *[("token", body, UNUSABLE) for body in BODIES],
    *[("token", body, REFUSED) for body in [*NO_OBJECTS, b"{}"]],
    *[("token", {"id_token": value}, REFUSED) for value in each(None, 5, [], {})],
    *[("token", {"id_token": value}, TOKEN) for value in each("", "x", "a.b.c", "..", "é.é.é")],
    *[("token", {"access_token": value}, IN) for value in each(None, 5, [])],
    *[("keys", body, UNUSABLE) for body in BODIES],
    *[("keys", body, TOKEN) for body in [*NO_OBJECTS, b"{}"]],
    *[
        ("keys", {"keys": value}, TOKEN)
        for value in each(None, 5, "x", {}, [], [5], [None], ["x"], [[]], [{}])
    ],
    *[
        ("keys", {"keys": [key]}, TOKEN)
        for key in (
            {"kty": "RSA"},
            {"kty": 5},
            {"kty": "RSA", "kid": "k1", "n": 5, "e": []},
            {"kty": "RSA", "kid": "k1", "n": "!", "e": "AQAB"},
            {"kty": "RSA", "kid": "k1", "n": "AA", "e": "AA"},
            {"kty": "EC", "kid": "k1", "crv": "nothing", "x": "AA", "y": "AA"},
            {"kty": "oct", "kid": "k1", "k": "c2VjcmV0"},
        )
    ],
]

CLAIMS: list[tuple[dict[str, Any], str]] = [
    *[({name: value}, TOKEN) for name in ("exp", "iat") for value in each("x", [], {}, None)],
    *[({"aud": value}, TOKEN) for value in each(5, [], {}, [5], None, "")],
    *[({"iss": value}, TOKEN) for value in each(5, [], None)],
    *[({"nonce": value}, TOKEN) for value in each(5, [], {})],
    *[({"preferred_username": value}, NOBODY) for value in each(5, [], {}, None, "")],
    *[
        ({"groups": value}, "you have no role")
        for value in each(5, {}, {"ops": 1}, [5, None, {}, []], None, "")
    ],
    *[({"picture": value}, IN) for value in each(5, [], {})],
]


Outcome = Callable[[], Awaitable[str]]
Begin = Callable[[Sso], Awaitable[Outcome]]


@pytest.fixture
async def begin(kept: Stores) -> Begin:
    """`outcome = await begin(sso)`: a project that signs in so, and what a sign-in comes to.

    Without the page, which has its own limit of attempts: `outcome()` is the sentence that it would
    show, empty for who is let in. An error of any other kind goes through.
    """

    async def make(sso: Sso) -> Callable[[], Awaitable[str]]:
        project = project_pb2.Project(id="shop", created_at=1, updated_at=1)
        project.user_groups.add(sso_group="ops", role="Admin")
        project.user_groups.add(sso_group="org/ops", role="Viewer")

        async def work(transaction: Transaction) -> None:
            await kept.projects.add_in(transaction, project)

        await kept.database.write(work)
        vault = Vault([b"k" * 32])
        settings = SsoSettings(kept, ProjectSettings(kept), vault, {})
        await settings.change("shop", sso)
        sign_in = SsoSignIn(
            kept,
            settings,
            Journeys(vault, lambda: 1),
            lambda: "http://pipecd.example.com",
        )

        async def outcome() -> str:
            try:
                url, cookie = await sign_in.begin("shop")
                async with httpx2.AsyncClient(trust_env=False, timeout=30) as browser:
                    there = await browser.get(url)
                back = parse_qs(urlsplit(there.headers["location"]).query)
                arrival = await sign_in.finish(cookie, back["state"][0], back["code"][0])
                await sessions.start(kept, "shop", arrival.identity, now=lambda: 1)
            except PipecdError as error:
                return str(error)
            return IN

        return outcome

    return make


@pytest.fixture
async def outcome(begin: Begin, issuer: OidcIssuer) -> Outcome:
    issuer.claims = {"groups": ["ops"]}
    oidc = Sso.Oidc(client_id="client", client_secret="s3cret", issuer=issuer.url)  # noqa: S106
    return await begin(Sso(provider=Sso.OIDC, session_ttl=2, oidc=oidc))


async def test_an_answer_of_openid_connect_that_is_none_is_a_sentence(
    outcome: Outcome, issuer: OidcIssuer
) -> None:
    wrong = []
    for route, instead, expected in CASES:
        issuer.instead = {route: instead}
        got = await outcome()
        if not got.startswith(expected) or (not expected and got):
            wrong.append(f"{route} {str(instead)[:80]!r}: {got!r}, not {expected!r}")
    assert not wrong, "\n".join(wrong)


async def test_claims_of_any_type_are_a_sentence(outcome: Outcome, issuer: OidcIssuer) -> None:
    wrong = []
    for changed, expected in CLAIMS:
        issuer.claims = {"groups": ["ops"], **changed}
        got = await outcome()
        if not got.startswith(expected) or (not expected and got):
            wrong.append(f"{changed!r}: {got!r}, not {expected!r}")
    assert not wrong, "\n".join(wrong)


async def test_a_user_info_of_any_kind_is_a_sentence(outcome: Outcome, issuer: OidcIssuer) -> None:
    wrong = []
    cases: list[tuple[object, str]] = [
        *[(body, UNUSABLE) for body in BODIES],
        *[(body, TWO_PEOPLE) for body in [*NO_OBJECTS, b"{}"]],
        *[({"sub": value}, TWO_PEOPLE) for value in each(None, 5, [], "2")],
        ({"groups": {"ops": 1}}, "you have no role"),
    ]
    for instead, expected in cases:
        issuer.user_info = {"sub": "1", "groups": ["ops"]}
        issuer.instead = {"me": instead}
        got = await outcome()
        if not got.startswith(expected):
            wrong.append(f"{str(instead)[:80]!r}: {got!r}, not {expected!r}")
    assert not wrong, "\n".join(wrong)


GITHUB: list[tuple[str, Any, str]] = [
    *[(route, body, UNUSABLE) for route in ("token", "user", "teams") for body in BODIES],
    *[("token", body, "GitHub did not accept") for body in [*NO_OBJECTS, b"{}"]],
    *[("token", {"access_token": value}, "GitHub did not acc") for value in each(None, 5, [], "")],
    *[("user", body, "GitHub did not say who") for body in [*NO_OBJECTS, b"{}"]],
    *[("user", {"login": value}, "GitHub did not say who") for value in each(None, 5, [], {}, "")],
    *[("user", {"avatar_url": value}, IN) for value in each(None, 5, [], {})],
    *[
        ("teams", body, "GitHub did not list the teams")
        for body in (b"null", b"5", b'"text"', b"{}", b"true", b'{"message": "no"}')
    ],
    *[
        ("teams", value, "you have no role")
        for value in each(
            [],
            [5],
            [None],
            ["ops"],
            [[]],
            [{}],
            [{"slug": "ops"}],
            [{"slug": 5, "organization": {"login": "org"}}],
            [{"slug": "ops", "organization": "org"}],
            [{"slug": "ops", "organization": {"login": ["org"]}}],
            [{"slug": "ops", "organization": None}],
        )
    ],
]


async def test_an_answer_of_github_that_is_none_is_a_sentence(
    begin: Begin, github: GitHubServer
) -> None:
    app = Sso.GitHub(
        client_id="client",
        client_secret="s3cret",  # noqa: S106
        base_url=f"{github.url}/api/v3/",
    )
    outcome = await begin(Sso(provider=Sso.GITHUB, session_ttl=2, github=app))
    github.teams = ["org/ops"]
    wrong = []
    for route, instead, expected in GITHUB:
        github.instead = {route: instead}
        got = await outcome()
        if not got.startswith(expected) or (not expected and got):
            wrong.append(f"{route} {str(instead)[:80]!r}: {got!r}, not {expected!r}")
    assert not wrong, "\n".join(wrong)


async def test_a_proxy_or_a_server_that_is_no_url_is_a_sentence() -> None:
    journey = Journeys(Vault([b"k" * 32]), lambda: 1).begin("shop")
    for proxy in ("nonsense", "http://[", "ftp://proxy.example.com", "http://x:notaport"):
        client = Sso.Oidc(issuer="https://id.example.com", proxy_url=proxy)
        with pytest.raises(PipecdError):
            await Oidc(client, "http://pipecd.example.com").start(journey)
    with pytest.raises(StateError, match="no URL"):
        GitHub(Sso.GitHub(base_url="http://["), "http://pipecd.example.com")


def test_claims_that_cannot_be_written_count_as_nothing() -> None:
    """Half a pair of surrogates can be spelled in JSON, and no session could keep it."""
    client = Sso.Oidc()
    told = {"name": "ada", "picture": "\ud800", "groups": ["\ud800", "ops"], "roles": "\ud800"}

    known = claims.identity(client, told)

    assert (known.subject, known.avatar_url, known.groups) == ("ada", "", ("ops",))
    with pytest.raises(UnauthenticatedError):
        claims.identity(client, {"name": "\ud800"})
