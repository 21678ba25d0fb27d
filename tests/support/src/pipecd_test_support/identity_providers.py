# SPDX-License-Identifier: Apache-2.0
"""Providers that people sign in through: small ones, over real HTTP, that check what they get."""

import base64
import hashlib
import secrets
import time
from dataclasses import dataclass, field
from typing import Any, Protocol
from urllib.parse import parse_qs, parse_qsl, urlencode, urlsplit

import httpx2
from joserfc import jwt
from joserfc.jwk import OctKey, RSAKey
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

CLIENT = ("client", "s3cret")


@dataclass
class CodeGrant:
    """What was agreed to when the browser was at the provider."""

    query: dict[str, str]


@dataclass
class IdentityProvider:
    """Gives codes to browsers and takes them back from whoever knows the verifier."""

    url: str = ""
    grants: dict[str, CodeGrant] = field(default_factory=dict)
    asked: list[dict[str, str]] = field(default_factory=list)
    claims: dict[str, Any] = field(default_factory=dict)
    """Of the ID token, over what is right."""
    user_info: dict[str, Any] = field(default_factory=dict)
    key: RSAKey = field(default_factory=lambda: RSAKey.generate_key(2048, {"kid": "k1"}))
    signed_with: RSAKey | OctKey | None = None
    algorithm: str = "RS256"
    teams: list[str] = field(default_factory=list)
    instead: dict[str, Any] = field(default_factory=dict)
    """What is answered in place of what is right, by the name of the route: bytes, or fields of
    which None leaves one out."""

    def answer(self, name: str, right: object) -> Response:
        wrong = self.instead.get(name, {})
        if isinstance(wrong, bytes):
            return Response(wrong, media_type="application/json")
        if isinstance(wrong, dict) and isinstance(right, dict):
            mixed = {**right, **wrong}
            return JSONResponse({key: mixed[key] for key in mixed if mixed[key] is not None})
        return JSONResponse(wrong if name in self.instead else right)

    def authorize(self, request: Request) -> Response:
        query = dict(request.query_params)
        self.asked.append(query)
        code = secrets.token_hex(8)
        self.grants[code] = CodeGrant(query)
        target = query["redirect_uri"]
        joint = "&" if "?" in target else "?"
        back = urlencode({"code": code, "state": query["state"]})
        return RedirectResponse(f"{target}{joint}{back}", status_code=302)

    async def redeem(self, request: Request) -> CodeGrant | None:
        """The grant of a code, once, for the client that began with the verifier's hash."""
        form = dict(parse_qsl((await request.body()).decode()))
        grant = self.grants.pop(form.get("code", ""), None)
        basic = base64.b64encode(":".join(CLIENT).encode()).decode()
        posted = (form.get("client_id"), form.get("client_secret")) == CLIENT
        digest = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        known = posted or request.headers.get("authorization") == f"Basic {basic}"
        right = grant is not None and grant.query.get("code_challenge") == challenge
        same = grant is not None and form.get("redirect_uri") == grant.query["redirect_uri"]
        return grant if known and right and same else None


@dataclass
class OidcIssuer(IdentityProvider):
    """A provider of OpenID Connect."""

    def app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/.well-known/openid-configuration", self.discovery),
                Route("/authorize", self.authorize),
                Route("/token", self.token, methods=["POST"]),
                Route("/keys", self.keys),
                Route("/me", self.me),
            ]
        )

    async def discovery(self, _request: Request) -> Response:
        return self.answer(
            "discovery",
            {
                "issuer": self.url,
                "authorization_endpoint": f"{self.url}/authorize",
                "token_endpoint": f"{self.url}/token",
                "jwks_uri": f"{self.url}/keys",
                **({"userinfo_endpoint": f"{self.url}/me"} if self.user_info else {}),
            },
        )

    async def token(self, request: Request) -> Response:
        grant = await self.redeem(request)
        if grant is None:
            return JSONResponse({"error": "invalid_grant"}, status_code=400)
        now = int(time.time())
        claims = {
            "iss": self.url,
            "sub": "1",
            "aud": CLIENT[0],
            "iat": now,
            "exp": now + 60,
            "nonce": grant.query["nonce"],
            "preferred_username": "ada",
            **self.claims,
        }
        header = {"alg": self.algorithm, "kid": "k1"}
        key = self.signed_with or self.key
        signed = jwt.encode(header, claims, key, algorithms=[self.algorithm])
        answer = {"id_token": signed, "access_token": "a", "token_type": "Bearer"}
        return self.answer("token", answer)

    async def keys(self, _request: Request) -> Response:
        return self.answer("keys", {"keys": [self.key.as_dict(private=False)]})

    async def me(self, _request: Request) -> Response:
        return self.answer("me", self.user_info)


@dataclass
class GitHubServer(IdentityProvider):
    """A GitHub server of one's own."""

    def app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/login/oauth/authorize", self.authorize),
                Route("/login/oauth/access_token", self.token, methods=["POST"]),
                Route("/api/v3/user", self.user),
                Route("/api/v3/user/teams", self.list_teams),
            ]
        )

    async def token(self, request: Request) -> Response:
        if await self.redeem(request) is None:
            return JSONResponse({"error": "bad_verification_code"})
        return self.answer("token", {"access_token": "gho_x", "token_type": "bearer"})

    async def user(self, request: Request) -> Response:
        assert request.headers["authorization"] == "Bearer gho_x"
        known = {"login": "ada", "avatar_url": "https://example.com/ada.png"}
        return self.answer("user", known)

    async def list_teams(self, request: Request) -> Response:
        size, page = int(request.query_params["per_page"]), int(request.query_params["page"])
        shown = self.teams[(page - 1) * size : page * size]
        return self.answer(
            "teams",
            [
                {"organization": {"login": org}, "slug": slug}
                for org, _, slug in (name.partition("/") for name in shown)
            ],
        )


class WalkThrough(Protocol):
    """Walks a browser through a sign-in; see `walk_through`."""

    async def __call__(
        self,
        browser: httpx2.AsyncClient,
        project: str = "shop",
        *,
        back_with: httpx2.AsyncClient | None = None,
        **fields: str,
    ) -> httpx2.Response: ...


async def walk_through(
    browser: httpx2.AsyncClient,
    project: str = "shop",
    *,
    back_with: httpx2.AsyncClient | None = None,
    **fields: str,
) -> httpx2.Response:
    """Walks a browser through a sign-in; returns what the last step, the way back, got."""
    begun = await browser.post("/auth/login", data={"project": project, **fields})
    assert begun.status_code == 302, begun.text
    if begun.headers["location"] == "/":
        return begun
    there = await browser.get(begun.headers["location"])
    back = urlsplit(there.headers["location"])
    query = {name: values[0] for name, values in parse_qs(back.query).items()}
    return await (back_with or browser).get("/auth/callback", params=query)
