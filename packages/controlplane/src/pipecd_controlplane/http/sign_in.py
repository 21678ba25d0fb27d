# SPDX-License-Identifier: Apache-2.0
"""Signing in and out: the routes of upstream's web client.

An error has no page: it is put into a cookie, and the browser is redirected to the page from which
the sign-in began. A form names that page in its field `next`; without it, it is the start page.
"""

from collections.abc import Awaitable, Callable
from typing import Final

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from pipecd_controlplane.auth.addresses import network
from pipecd_controlplane.auth.password import PasswordSignIn
from pipecd_controlplane.auth.session_authenticator import TOKEN, find_cookie
from pipecd_controlplane.auth.sso.sign_in import SsoSignIn
from pipecd_controlplane.http.cookies import STATE, CookieWriter
from pipecd_controlplane.http.forms import form
from pipecd_controlplane.http.plain_pages import NEXT_PATHS, show_onward
from pipecd_controlplane.http.senders import Sender, check_sender, sender_of
from pipecd_controlplane.store.entities import Now
from pipecd_controlplane.store.stores import Stores
from pipecd_controlplane.usecases import sessions
from pipecd_controlplane.usecases.attempts import TooManyAttemptsError
from pipecd_controlplane.usecases.sessions import DEFAULT_HOURS, UserIdentity
from pipecd_controlplane.usecases.shared_state import AttemptLimiter, SharedState
from pipecd_model.errors import PipecdError, add_hint
from pipecd_runtime.logs import logger

log = logger(__name__)

SIGN_OUT_PAGE: Final = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>Sign out</title></head>
<body><form method="post" action="/auth/logout"><button>Sign out of PipeCD</button></form></body>
</html>
"""

Page = Callable[[Request], Awaitable[Response]]


class SignInRoutes:
    """The routes under /auth."""

    def __init__(
        self,
        stores: Stores,
        shared: SharedState,
        password: PasswordSignIn,
        sso: SsoSignIn,
        cookies: CookieWriter,
        now: Now,
    ) -> None:
        self._stores = stores
        self._password = password
        self._sso = sso
        self._cookies = cookies
        self._now = now
        self._begun = shared.limit_attempts("sso-begin", burst=30, seconds=2)
        self._finished = shared.limit_attempts("sso-finish", burst=30, seconds=2)

    def routes(self) -> list[Route]:
        return [
            Route("/auth/login", self._show_errors(self.login), methods=["POST"]),
            Route("/auth/login/static", self._show_errors(self.login_static), methods=["POST"]),
            Route("/auth/callback", self._show_errors(self.callback), methods=["GET"]),
            Route("/auth/logout", self._show_errors(self.logout), methods=["GET", "POST"]),
        ]

    async def login(self, request: Request) -> Response:
        """Begins a sign-in through the project's provider."""
        check_sender(request, self._cookies.public_url)
        await _check_pace(self._begun, request)
        fields = await form(request)
        next_path = _keep_next(request, fields.get("next", ""))
        url, state = await self._sso.begin(fields.get("project", ""), next_path)
        response = RedirectResponse(url, status_code=302)
        self._cookies.set_state(request, response, state)
        return response

    async def login_static(self, request: Request) -> Response:
        """Signs in with a name and a password."""
        check_sender(request, self._cookies.public_url)
        fields = await form(request)
        next_path = _keep_next(request, fields.get("next", ""))
        project_id = fields.get("project", "")
        identity = await self._password.sign_in(
            project_id,
            fields.get("username", ""),
            fields.get("password", ""),
            address=_address(request),
        )
        response = _lead_on(request, next_path, status=302)
        return await self._let_in(request, response, project_id, identity, DEFAULT_HOURS)

    async def callback(self, request: Request) -> Response:
        """Finishes a sign-in that `login` began in this browser."""
        # A client that has begun one can repeat this, and each time we call the provider.
        await _check_pace(self._finished, request)
        query = request.query_params
        cookie, state = (
            find_cookie(request.headers.get("cookie", ""), STATE),
            query.get("state", ""),
        )
        next_path = _keep_next(request, self._sso.find_next_path(cookie, state))
        arrival = await self._sso.finish(
            cookie, state, query.get("code", ""), address=_address(request)
        )
        response = _lead_on(request, next_path, status=302)
        await self._let_in(request, response, arrival.project_id, arrival.identity, arrival.hours)
        self._cookies.forget(request, response, STATE)
        return response

    async def logout(self, request: Request) -> Response:
        """Ends the session itself, not only the cookie.

        Upstream's page follows a link to get here. A link on any other page, or on an unknown
        one, does not sign out: it leads to a page that asks the person.
        """
        sender = sender_of(request, self._cookies.public_url)
        if request.method == "POST":
            check_sender(request, self._cookies.public_url)
        elif request.method != "GET" or sender is not Sender.OWN_PAGE:
            return HTMLResponse(SIGN_OUT_PAGE, headers={"cache-control": "no-store"})
        token = find_cookie(request.headers.get("cookie", ""), TOKEN)
        session = await sessions.find(self._stores, token, now=self._now)
        if session is not None:
            await sessions.sign_out(self._stores, session, now=self._now, address=_address(request))
        response = RedirectResponse("/", status_code=302)
        self._cookies.forget(request, response, TOKEN, STATE)
        return response

    async def _let_in(
        self,
        request: Request,
        response: Response,
        project_id: str,
        identity: UserIdentity,
        hours: int,
    ) -> Response:
        """Opens a session and sets its cookie in the response."""
        token = await sessions.start(
            self._stores,
            project_id,
            identity,
            now=self._now,
            hours=hours,
            address=_address(request),
            user_agent=request.headers.get("user-agent", ""),
        )
        log.info("sign_in.done", project_id=project_id, subject=identity.subject)
        self._cookies.set_token(request, response, token, hours=hours)
        return response

    def _show_errors(self, page: Page) -> Page:
        """Wraps a route: an error of ours becomes a cookie, whose message the page shows."""

        async def run_page(request: Request) -> Response:
            try:
                return await page(request)
            except PipecdError as error:
                message = add_hint(error, error.hint)
                log.info("sign_in.failed", path=request.url.path, error=str(error))
                path = getattr(request.state, "next_path", "/")
                response = _lead_on(request, path, status=303)
                self._cookies.set_error(request, response, message)
                return response

        return run_page


def _keep_next(request: Request, wanted: str) -> str:
    """Returns where the sign-in leads to, and keeps it for an error: a page of ours, or `/`."""
    request.state.next_path = wanted if wanted in NEXT_PATHS else "/"
    return str(request.state.next_path)


def _lead_on(request: Request, path: str, *, status: int) -> Response:
    """Returns a redirect; to a plain page of ours, after another site's page, one that leads on."""
    if request.method == "POST" or path == "/":
        return RedirectResponse(path, status_code=status)
    return show_onward(path)


async def _check_pace(attempts: AttemptLimiter, request: Request) -> None:
    """Raises TooManyAttemptsError for an address that tries too often."""
    if await attempts.take(network(_address(request))):
        raise TooManyAttemptsError("too many attempts to sign in", hint="try again later")


def _address(request: Request) -> str:
    return request.client.host if request.client else ""
