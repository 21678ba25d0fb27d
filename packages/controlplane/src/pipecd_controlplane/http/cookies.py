# SPDX-License-Identifier: Apache-2.0
"""Sets cookies with their attributes: HttpOnly, Secure, SameSite and lifetime."""

from dataclasses import dataclass
from typing import Final, Literal
from urllib.parse import quote, unquote

from starlette.requests import Request
from starlette.responses import Response

from pipecd_controlplane.auth.session_authenticator import TOKEN, find_cookie
from pipecd_controlplane.auth.sso.journey import SECONDS as STATE_SECONDS

STATE: Final = "state"
ERROR: Final = "error"
ERROR_SECONDS: Final = 600
LONGEST_ERROR: Final = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class CookieWriter:
    """Sets cookies. They are Secure when browsers reach us over TLS, ours or a proxy's."""

    public_url: str = ""
    insecure: bool = False

    def set_token(self, request: Request, response: Response, value: str, *, hours: int) -> None:
        self._set(request, response, TOKEN, value, seconds=hours * 3600, same_site="strict")

    def set_state(self, request: Request, response: Response, value: str) -> None:
        self._set(request, response, STATE, value, seconds=STATE_SECONDS, same_site="lax")

    def set_error(self, request: Request, response: Response, message: str) -> None:
        """Lets the page that the response leads to show a message."""
        # The page's own script reads it. Only sentences of ours go in, never what a client sent.
        response.set_cookie(
            ERROR,
            quote(message),
            max_age=ERROR_SECONDS,
            path="/",
            secure=self._secure(request),
            samesite="strict",
        )

    def read_error(self, request: Request) -> str:
        """Returns the message that `set_error` has sent; empty without one."""
        return unquote(find_cookie(request.headers.get("cookie", ""), ERROR))[:LONGEST_ERROR]

    def forget(self, request: Request, response: Response, *names: str) -> None:
        for name in names:
            response.delete_cookie(
                name, path="/", secure=self._secure(request), httponly=True, samesite="lax"
            )

    def _set(
        self,
        request: Request,
        response: Response,
        name: str,
        value: str,
        *,
        seconds: int,
        same_site: Literal["strict", "lax"],
    ) -> None:
        response.set_cookie(
            name,
            value,
            max_age=seconds,
            path="/",
            httponly=True,
            secure=self._secure(request),
            samesite=same_site,
        )

    def _secure(self, request: Request) -> bool:
        over_tls = request.url.scheme == "https" or self.public_url.startswith("https://")
        return over_tls and not self.insecure
