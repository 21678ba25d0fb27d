# SPDX-License-Identifier: Apache-2.0
"""Signing in through OpenID Connect: authorization code with PKCE, state and nonce."""

import time
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlencode, urlsplit

from pipecd_controlplane.auth.sso import claims as told_claims
from pipecd_controlplane.auth.sso.client import Provider, provider
from pipecd_controlplane.auth.sso.journey import Journey
from pipecd_controlplane.usecases.sessions import UserIdentity
from pipecd_model.errors import StateError, UnauthenticatedError
from pipecd_runtime.logs import logger
from pipecd_wire.model import project_pb2

log = logger(__name__)

DISCOVERY: Final = "/.well-known/openid-configuration"
# Signatures by a key that only the provider has; nothing with a shared secret, never "none".
ALGORITHMS: Final = ["RS256", "RS384", "RS512", "PS256", "PS384", "ES256", "ES384", "EdDSA"]
AUTHORIZATION: Final = "authorization_endpoint"
LEEWAY_SECONDS: Final = 60
"""Seconds by which our clock and the provider's may differ."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OidcEndpoints:
    """The URLs of a provider, and how its token endpoint takes the client's secret."""

    authorization: str
    token: str
    userinfo: str
    keys: str
    basic: bool
    """Whether it takes the client's secret in a header."""


class Oidc:
    """Signs in as one client of one OpenID Connect provider."""

    def __init__(self, client: project_pb2.ProjectSSOConfig.Oidc, public_url: str) -> None:
        self._client = client
        self._redirect_uri = client.redirect_uri or f"{public_url.rstrip('/')}/auth/callback"

    async def start(self, journey: Journey) -> str:
        """Returns the URL that the browser is sent to."""
        async with provider(self._client.proxy_url) as issuer:
            endpoints = await self._discover(issuer)
        scopes = dict.fromkeys(["openid", *self._client.scopes])
        query = {
            "client_id": self._client.client_id,
            "redirect_uri": self._redirect_uri,
            "response_type": "code",
            "scope": " ".join(scopes),
            "state": f"{journey.state}:{journey.project_id}",
            "nonce": journey.nonce,
            "code_challenge": journey.challenge,
            "code_challenge_method": "S256",
        }
        joint = "&" if "?" in endpoints.authorization else "?"
        return f"{endpoints.authorization}{joint}{urlencode(query)}"

    async def finish(self, journey: Journey, code: str) -> UserIdentity:
        """Returns who has signed in. Raises UnauthenticatedError for tokens that are not valid."""
        async with provider(self._client.proxy_url) as issuer:
            endpoints = await self._discover(issuer)
            tokens = await self._exchange(issuer, endpoints, journey, code)
            known = self._verify_token(
                tokens["id_token"], await issuer.get(endpoints.keys), journey
            )
            access_token = tokens.get("access_token")
            if endpoints.userinfo and isinstance(access_token, str):
                more = await issuer.get(endpoints.userinfo, token=access_token)
                if not isinstance(more, dict) or more.get("sub") != known.get("sub"):
                    raise UnauthenticatedError("the provider speaks of two different people")
                known = {**known, **more}
        return told_claims.identity(self._client, known)

    async def _discover(self, issuer: Provider) -> OidcEndpoints:
        told = await issuer.get(self._client.issuer.rstrip("/") + DISCOVERY)
        if not isinstance(told, dict) or told.get("issuer") != self._client.issuer:
            raise StateError(
                "the provider calls itself by another name than its configured issuer",
                hint="the issuer must be written as the provider writes it",
            )
        methods = told.get("token_endpoint_auth_methods_supported")
        client = self._client
        return OidcEndpoints(
            authorization=client.authorization_endpoint or _endpoint(told, AUTHORIZATION),
            token=client.token_endpoint or _endpoint(told, "token_endpoint"),
            userinfo=client.user_info_endpoint
            or _endpoint(told, "userinfo_endpoint", needed=False),
            keys=_endpoint(told, "jwks_uri"),
            # What is not said, or not as a list, is the default of the specification.
            basic=not isinstance(methods, list) or "client_secret_basic" in methods,
        )

    async def _exchange(
        self, issuer: Provider, endpoints: OidcEndpoints, journey: Journey, code: str
    ) -> dict[str, Any]:
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": self._redirect_uri,
            "code_verifier": journey.verifier,
        }
        secret = (self._client.client_id, self._client.client_secret)
        if not endpoints.basic:
            form |= {"client_id": secret[0], "client_secret": secret[1]}
        answer = await issuer.post(endpoints.token, form, basic=secret if endpoints.basic else None)
        if not isinstance(answer, dict) or not isinstance(answer.get("id_token"), str):
            raise UnauthenticatedError("the provider did not accept the sign-in")
        return answer

    def _verify_token(self, id_token: str, keys: Any, journey: Journey) -> dict[str, Any]:
        """Returns the claims of an ID token that is whole, for us, of now and of this sign-in."""
        from joserfc import jwt  # noqa: PLC0415 - see provider
        from joserfc.jwk import KeySet  # noqa: PLC0415

        refusal = UnauthenticatedError("the provider's ID token is not good")
        rules = jwt.JWTClaimsRegistry(
            leeway=LEEWAY_SECONDS,
            iss={"essential": True, "value": self._client.issuer},
            sub={"essential": True},
            aud={"essential": True, "value": self._client.client_id},
            exp={"essential": True},
            iat={"essential": True},
            nonce={"essential": True, "value": journey.nonce},
        )
        try:
            token = jwt.decode(id_token, KeySet.import_key_set(keys), algorithms=ALGORITHMS)
            rules.validate(token.claims)
            claims = dict(token.claims)
            is_good = self._is_for_us(claims) and claims["iat"] <= time.time() + LEEWAY_SECONDS
        except Exception as error:  # noqa: BLE001 - whatever a library makes of a stranger's bytes
            log.info("sso.token_refused", error=type(error).__name__)
            raise refusal from None
        if not is_good:
            raise refusal
        return claims

    def _is_for_us(self, claims: dict[str, Any]) -> bool:
        """Returns whether the token is ours: with several audiences, `azp` must name us."""
        for_others = isinstance(claims["aud"], list) and len(claims["aud"]) > 1
        return not for_others or bool(claims.get("azp") == self._client.client_id)


def _endpoint(told: dict[str, Any], name: str, *, needed: bool = True) -> str:
    """Returns the URL that the discovery names; empty when it names none and need not.

    Raises StateError for one that is missing, or is no URL.
    """
    url = told.get(name)
    if url is None or url == "":
        if not needed:
            return ""
        raise _bad_discovery(name, "is missing")
    if not isinstance(url, str):
        raise _bad_discovery(name, "is no text")
    try:
        parts = urlsplit(url)
        is_url = parts.scheme in {"http", "https"} and bool(parts.hostname) and url.isprintable()
    except ValueError:
        is_url = False
    if not is_url:
        raise _bad_discovery(name, "is no URL")
    return url


def _bad_discovery(name: str, why: str) -> StateError:
    log.warning("sso.discovery_refused", field=name, error=why)
    return StateError(
        f"the provider cannot be used: {name} {why} in its discovery document",
        hint="see that the configured issuer is right",
    )
