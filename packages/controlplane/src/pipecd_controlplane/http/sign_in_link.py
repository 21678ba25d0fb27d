# SPDX-License-Identifier: Apache-2.0
"""The page behind a one-time link, for browsers on the machine of the server.

The secret is in the fragment of the link, which browsers send to nobody: it is in no request line,
no log and no referrer. A script of ours puts it into a form; what fetches links ahead runs none.
"""

import ipaddress
from typing import Final
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from pipecd_controlplane.auth.sign_in_links import LINK_PATH, SESSION_HOURS, SignInLinks
from pipecd_controlplane.http import plain_pages
from pipecd_controlplane.http.addresses import parse_address
from pipecd_controlplane.http.connections import ClientConnection
from pipecd_controlplane.http.cookies import CookieWriter
from pipecd_controlplane.http.forms import form
from pipecd_controlplane.http.http1 import CONNECTION
from pipecd_controlplane.http.senders import Sender, sender_of
from pipecd_controlplane.store.entities import Now
from pipecd_controlplane.store.stores import Stores
from pipecd_controlplane.usecases import sessions
from pipecd_model.errors import DeniedError, PipecdError
from pipecd_runtime.logs import logger

log = logger(__name__)

SCRIPT_PATH: Final = "/auth/link.js"

SCRIPT: Final = """\
"use strict";
const form = document.forms[0];
form.elements.secret.value = location.hash.slice(1);
history.replaceState(null, "", location.pathname);
if (form.elements.secret.value) {
  form.submit();
} else {
  document.getElementById("told").textContent =
    "This address is not whole: copy all of it, with what follows the #.";
}
"""

PROXY_HEADERS: Final = (
    "forwarded",
    "via",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-proto",
    "x-forwarded-server",
    "x-real-ip",
    "x-client-ip",
    "x-original-forwarded-for",
    "true-client-ip",
    "cf-connecting-ip",
)
"""What proxies add: behind one nobody knows where the browser is, whatever the header says."""

STATUSES: Final = {"UNAUTHENTICATED": 401, "PERMISSION_DENIED": 403, "RESOURCE_EXHAUSTED": 429}


class SignInLinkRoutes:
    """The routes of one-time links."""

    def __init__(self, stores: Stores, links: SignInLinks, cookies: CookieWriter, now: Now) -> None:
        self._stores = stores
        self._links = links
        self._cookies = cookies
        self._now = now

    def routes(self) -> list[Route]:
        return [
            Route(LINK_PATH, self.show, methods=["GET"]),
            Route(LINK_PATH, self.take, methods=["POST"]),
            Route(SCRIPT_PATH, self.script, methods=["GET"]),
        ]

    async def show(self, _request: Request) -> Response:
        """Shows a page that sends the secret, for browsers that have it in their address."""
        return plain_pages.show_link(LINK_PATH, SCRIPT_PATH)

    async def script(self, _request: Request) -> Response:
        return Response(SCRIPT, media_type="text/javascript", headers={"cache-control": "no-store"})

    async def take(self, request: Request) -> Response:
        """Opens a session for the secret of a link."""
        try:
            return await self._let_in(request)
        except PipecdError as error:
            log.info("login.failed", path=LINK_PATH, error=str(error))
            status = STATUSES.get(error.status, 400)
            return plain_pages.show_refusal(error.with_hint(), status, again="")

    async def _let_in(self, request: Request) -> Response:
        check_is_here(request)
        if sender_of(request, self._cookies.public_url) is not Sender.OWN_PAGE:
            raise DeniedError("the form does not come from this site", hint="open the link itself")
        fields = await form(request)
        address = request.client.host if request.client else ""
        link = await self._links.take(fields.get("secret", ""), address=address)
        token = await sessions.start(
            self._stores,
            link.project_id,
            link.identity,
            now=self._now,
            hours=SESSION_HOURS,
            address=address,
            user_agent=request.headers.get("user-agent", ""),
        )
        log.info("sign_in.done", project_id=link.project_id, subject=link.name)
        response = RedirectResponse("/", status_code=303, headers={"cache-control": "no-store"})
        self._cookies.set_token(request, response, token, hours=SESSION_HOURS)
        return response


def check_is_here(request: Request) -> None:
    """Raises DeniedError for a browser that is not on this machine, or of which nobody knows.

    The name that it asks for counts as well: a page of somebody else's can make its own name lead
    to the loopback address.
    """
    hint = "open the link on the machine of the server, or through `ssh -L`"
    peer = parse_address(request.client.host) if request.client else None
    if peer is None or not peer.is_loopback:
        raise DeniedError("a sign-in link works only on the machine of the server", hint=hint)
    connection: ClientConnection | None = request.scope.get(CONNECTION)
    is_proxied = connection is not None and connection.is_proxied
    if is_proxied or any(name in request.headers for name in PROXY_HEADERS):
        raise DeniedError("a sign-in link does not work through a proxy", hint=hint)
    if not all(_is_loopback_name(host) for host in request.headers.getlist("host") or [""]):
        raise DeniedError("a sign-in link works only under a loopback address", hint=hint)


def _is_loopback_name(authority: str) -> bool:
    try:
        host = urlsplit(f"//{authority}").hostname or ""
    except ValueError:
        return False
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
