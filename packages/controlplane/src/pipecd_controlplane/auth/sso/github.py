# SPDX-License-Identifier: Apache-2.0
"""Signing in through GitHub, or a GitHub server of one's own: a person's groups are their teams."""

from typing import Any, Final
from urllib.parse import urlencode, urlsplit

from pipecd_controlplane.auth.sso.client import Provider, provider
from pipecd_controlplane.auth.sso.journey import Journey
from pipecd_controlplane.usecases.sessions import UserIdentity
from pipecd_model.errors import StateError, UnauthenticatedError
from pipecd_wire.model import project_pb2
from pipecd_wire.pipecd.api import access_pb2

SITE: Final = "https://github.com"
API: Final = "https://api.github.com"
TEAMS_AT_ONCE: Final = 100
MOST_PAGES: Final = 10


class GitHub:
    """Signs in through one OAuth app of GitHub."""

    def __init__(self, app: project_pb2.ProjectSSOConfig.GitHub, public_url: str) -> None:
        self._app = app
        self._public_url = public_url.rstrip("/")
        try:
            base = urlsplit(app.base_url)
        except ValueError:
            raise StateError(
                "the base URL of GitHub is no URL", hint="such as https://github.example.com/api/v3"
            ) from None
        self._site = f"{base.scheme}://{base.netloc}" if app.base_url else SITE
        self._api = app.base_url.rstrip("/") or API

    async def start(self, journey: Journey) -> str:
        """Returns the URL that the browser is sent to."""
        query = {
            "client_id": self._app.client_id,
            "redirect_uri": self._redirect_uri(journey.project_id),
            "response_type": "code",
            "scope": "read:org",
            "state": journey.state,
            "code_challenge": journey.challenge,
            "code_challenge_method": "S256",
        }
        return f"{self._site}/login/oauth/authorize?{urlencode(query)}"

    async def finish(self, journey: Journey, code: str) -> UserIdentity:
        """Returns who has signed in. Raises UnauthenticatedError for a code that is not valid."""
        async with provider(self._app.proxy_url) as github:
            answer = await github.post(
                f"{self._site}/login/oauth/access_token",
                {
                    "client_id": self._app.client_id,
                    "client_secret": self._app.client_secret,
                    "code": code,
                    "redirect_uri": self._redirect_uri(journey.project_id),
                    "code_verifier": journey.verifier,
                },
            )
            token = answer.get("access_token") if isinstance(answer, dict) else None
            if not isinstance(token, str) or not token:
                raise UnauthenticatedError("GitHub did not accept the sign-in")
            user = await github.get(f"{self._api}/user", token=token)
            login = user.get("login") if isinstance(user, dict) else None
            if not isinstance(login, str) or not login:
                raise UnauthenticatedError("GitHub did not say who signed in")
            return UserIdentity(
                subject=login,
                via=access_pb2.Session.GITHUB,
                avatar_url=_text(user.get("avatar_url")),
                groups=await self._teams(github, token),
            )

    async def _teams(self, github: Provider, token: str) -> tuple[str, ...]:
        teams: list[str] = []
        for page in range(1, MOST_PAGES + 1):
            listed = await github.get(
                f"{self._api}/user/teams",
                token=token,
                per_page=str(TEAMS_AT_ONCE),
                page=str(page),
            )
            if not isinstance(listed, list):
                raise UnauthenticatedError("GitHub did not list the teams of who signed in")
            teams += [name for each in listed if (name := _team(each))]
            if len(listed) < TEAMS_AT_ONCE:
                break
        return tuple(teams)

    def _redirect_uri(self, project_id: str) -> str:
        return f"{self._public_url}/auth/callback?{urlencode({'project': project_id})}"


def _team(listed: Any) -> str:
    """Returns `organisation/team`, as user groups name it; empty for what is no team."""
    try:
        organisation, slug = _text(listed["organization"]["login"]), _text(listed["slug"])
    except (KeyError, TypeError):
        return ""
    return f"{organisation}/{slug}" if organisation and slug else ""


def _text(value: Any) -> str:
    """Returns the value if it is text, else an empty text."""
    return value if isinstance(value, str) else ""
