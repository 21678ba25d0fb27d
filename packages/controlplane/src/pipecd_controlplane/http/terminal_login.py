# SPDX-License-Identifier: Apache-2.0
"""The routes of `pipectl login`: JSON for the program, plain pages for the person.

No secret is in a URL: codes, passwords and tokens travel in bodies.
"""

from collections.abc import Awaitable, Callable
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from pipecd_controlplane.auth.password import PasswordSignIn
from pipecd_controlplane.auth.session_authenticator import SessionAuthenticator
from pipecd_controlplane.auth.terminal_login import (
    LIFETIME_SECONDS,
    POLL_SECONDS,
    OpenedSession,
    TerminalLogin,
    format_code,
    open_session,
)
from pipecd_controlplane.http import plain_pages
from pipecd_controlplane.http.cookies import ERROR, CookieWriter
from pipecd_controlplane.http.forms import form
from pipecd_controlplane.http.plain_pages import TERMINAL_PATH
from pipecd_controlplane.http.senders import Sender, check_sender, sender_of
from pipecd_controlplane.store.entities import Now
from pipecd_controlplane.store.stores import Stores
from pipecd_model.errors import ConfigError, DeniedError, PipecdError
from pipecd_runtime.logs import logger
from pipecd_wire.pipecd.api import access_pb2

log = logger(__name__)

STATUSES: Final = {
    "INVALID_ARGUMENT": 400,
    "UNAUTHENTICATED": 401,
    "PERMISSION_DENIED": 403,
    "NOT_FOUND": 404,
    "RESOURCE_EXHAUSTED": 429,
    "UNAVAILABLE": 503,
}
LONGEST_PROJECT: Final = 100

Handler = Callable[[Request], Awaitable[Response]]


class TerminalLoginRoutes:
    """The routes under /auth/terminal."""

    def __init__(
        self,
        stores: Stores,
        login: TerminalLogin,
        password: PasswordSignIn,
        cookies: CookieWriter,
        now: Now,
    ) -> None:
        self._stores = stores
        self._login = login
        self._password = password
        self._cookies = cookies
        self._now = now
        self._sessions = SessionAuthenticator(stores, now)

    def routes(self) -> list[Route]:
        return [
            Route(TERMINAL_PATH, _show_refusals(self.show), methods=["GET"]),
            Route(TERMINAL_PATH, _show_refusals(self.ask), methods=["POST"]),
            Route(f"{TERMINAL_PATH}/answer", _show_refusals(self.answer), methods=["POST"]),
            Route(f"{TERMINAL_PATH}/start", _tell_refusals(self.start), methods=["POST"]),
            Route(f"{TERMINAL_PATH}/poll", _tell_refusals(self.poll), methods=["POST"]),
            Route(f"{TERMINAL_PATH}/password", _tell_refusals(self.password), methods=["POST"]),
        ]

    async def start(self, request: Request) -> Response:
        """Gives a program a code to show, and a secret to poll with."""
        check_sender(request, self._cookies.public_url)
        fields = await form(request)
        begun = await self._login.begin(fields.get("client", ""), address=_address(request))
        return _json(
            {
                "device_code": begun.device_code,
                "user_code": format_code(begun.user_code),
                "expires_in": LIFETIME_SECONDS,
                "interval": POLL_SECONDS,
            }
        )

    async def poll(self, request: Request) -> Response:
        """Gives a program its session, once a person has confirmed it."""
        check_sender(request, self._cookies.public_url)
        fields = await form(request)
        opened = await self._login.poll(fields.get("device_code", ""), address=_address(request))
        return _json({"status": "pending"} if opened is None else _describe(opened))

    async def password(self, request: Request) -> Response:
        """Gives a program a session for a name and a password."""
        check_sender(request, self._cookies.public_url)
        fields = await form(request)
        project_id, address = fields.get("project", ""), _address(request)
        identity = await self._password.sign_in(
            project_id, fields.get("username", ""), fields.get("password", ""), address=address
        )
        opened = await open_session(
            self._stores,
            project_id,
            identity,
            now=self._now,
            address=address,
            client=fields.get("client", ""),
        )
        log.info("sign_in.done", project_id=project_id, subject=identity.subject)
        return _json(_describe(opened))

    async def show(self, request: Request) -> Response:
        """Shows the form for the code; the one for signing in when nobody is signed in."""
        error = self._cookies.read_error(request)
        session = await self._sessions.find(request.headers.get("cookie", ""))
        if session is None:
            project = request.query_params.get("project", "")[:LONGEST_PROJECT]
            page: Response = plain_pages.show_sign_in(error, project)
        else:
            page = plain_pages.show_code_form(session, error)
        if error:
            self._cookies.forget(request, page, ERROR)
        return page

    async def ask(self, request: Request) -> Response:
        """Shows who asks under a code."""
        session = await self._find_asker(request)
        if session is None:
            return plain_pages.show_sign_in("you are not signed in", status=401)
        fields = await form(request)
        address = _address(request)
        try:
            found = await self._login.find(fields.get("code", ""), session, address=address)
        except PipecdError as error:
            return plain_pages.show_code_form(session, error.with_hint(), _status(error))
        return plain_pages.show_question(session, found, address)

    async def answer(self, request: Request) -> Response:
        """Takes the answer of the person."""
        session = await self._find_asker(request)
        if session is None:
            return plain_pages.show_sign_in("you are not signed in", status=401)
        fields = await form(request)
        answer = fields.get("answer", "")
        if answer not in {"confirm", "refuse"}:
            raise ConfigError("the form cannot be read")
        is_confirmed = answer == "confirm"
        await self._login.answer(
            fields.get("code", ""), session, is_confirmed=is_confirmed, address=_address(request)
        )
        return plain_pages.show_end(is_confirmed=is_confirmed)

    async def _find_asker(self, request: Request) -> access_pb2.Session | None:
        """Returns the session of a person who sent a form of ours. Raises DeniedError otherwise.

        Stricter than for signing in: what is answered here gives rights away, and every browser
        says which page a form comes from.
        """
        if sender_of(request, self._cookies.public_url) is not Sender.OWN_PAGE:
            raise DeniedError(
                "the form does not come from this site",
                hint="behind a proxy that changes Host, set spec.address to the URL of browsers",
            )
        return await self._sessions.find(request.headers.get("cookie", ""))


def _describe(opened: OpenedSession) -> dict[str, Any]:
    session = opened.session
    return {
        "status": "done",
        "token": opened.token,
        "project": session.project_id,
        "subject": session.subject,
        "expires_at": session.expires_at,
    }


def _json(value: dict[str, Any], status: int = 200) -> JSONResponse:
    return JSONResponse(value, status_code=status, headers={"cache-control": "no-store"})


def _show_refusals(handler: Handler) -> Handler:
    """Wraps a page: an error of ours becomes a page with its sentence."""

    async def run(request: Request) -> Response:
        try:
            return await handler(request)
        except PipecdError as error:
            log.info("login.failed", path=request.url.path, error=str(error))
            return plain_pages.show_refusal(error.with_hint(), _status(error))

    return run


def _tell_refusals(handler: Handler) -> Handler:
    """Wraps a route for programs: an error of ours becomes JSON with its sentence."""

    async def run(request: Request) -> Response:
        try:
            return await handler(request)
        except PipecdError as error:
            return _json({"error": str(error), "hint": error.hint}, _status(error))

    return run


def _status(error: PipecdError) -> int:
    return STATUSES.get(error.status, 409)


def _address(request: Request) -> str:
    return request.client.host if request.client else ""
