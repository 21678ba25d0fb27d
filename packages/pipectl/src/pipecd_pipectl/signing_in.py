# SPDX-License-Identifier: Apache-2.0
"""Getting a session from a control plane: over HTTP, before there is a credential for gRPC."""

import json
import re
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pipecd_model.errors import (
    DeniedError,
    PipecdError,
    StateError,
    TimedOutError,
    UnauthenticatedError,
    UnavailableError,
)
from pipecd_pipectl.addresses import Address
from pipecd_wire.rpc import ClientTls, is_local, make_ssl_context

if TYPE_CHECKING:
    import httpx2

PAGE: Final = "/auth/terminal"
REQUEST_SECONDS: Final = 15.0
LARGEST_BYTES: Final = 64 * 1024
LONGEST_WAIT_SECONDS: Final = 1800
TOKEN: Final = re.compile(r"[A-Za-z0-9._~-]{1,500}")

ERRORS: Final[dict[int, type[PipecdError]]] = {401: UnauthenticatedError, 403: DeniedError}


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedIn:
    """A session, and whose it is."""

    session: str
    project: str
    subject: str
    expires_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownCode:
    """What a person is shown: where to go, and what to type there."""

    url: str
    code: str
    minutes: int


class SignInClient:
    """Signs in at one control plane."""

    def __init__(self, client: "httpx2.Client", address: Address) -> None:
        self._client = client
        self._address = address

    def sign_in_with_password(self, project: str, username: str, password: str) -> SignedIn:
        """Returns a session. Raises UnauthenticatedError for a wrong password."""
        told = self._post(
            "password",
            {
                "project": project,
                "username": username,
                "password": password,
                "client": describe_client(),
            },
        )
        return _read_session(told)

    def sign_in_with_browser(
        self,
        show: Callable[[ShownCode], None],
        project: str,
        *,
        warn: Callable[[str], None] = lambda _: None,
    ) -> SignedIn:
        """Shows a code, and returns the session once a person has confirmed it in a browser.

        `warn` is told when the control plane goes away meanwhile; it is waited for. Raises
        DeniedError when they refuse it, TimedOutError when nobody does in its time.
        """
        begun = self._post("start", {"client": describe_client()})
        seconds = min(_read_number(begun, "expires_in"), LONGEST_WAIT_SECONDS)
        pause = min(max(_read_number(begun, "interval"), 1), 30)
        query = f"?project={project}" if re.fullmatch("[A-Za-z0-9._-]{1,100}", project) else ""
        show(
            ShownCode(
                url=f"{self._address.url}{PAGE}{query}",
                code=_read_text(begun, "user_code"),
                minutes=seconds // 60,
            )
        )
        secret = _read_text(begun, "device_code")
        limit = time.monotonic() + seconds
        away: UnavailableError | None = None
        while time.monotonic() < limit:
            time.sleep(pause)
            try:
                told = self._post("poll", {"device_code": secret})
            except UnavailableError as error:
                if away is None:
                    warn(f"{error}; waiting for it")
                away = error
                continue
            away = None
            if told.get("status") != "pending":
                return _read_session(told)
        if away is not None:
            raise away
        raise TimedOutError(
            "nobody has confirmed the code in its time", hint="begin again: pipectl login"
        )

    def _post(self, path: str, form: dict[str, str]) -> dict[str, Any]:
        import httpx2  # noqa: PLC0415 - only signing in needs it

        try:
            response = self._client.post(f"{PAGE}/{path}", data=form)
        except httpx2.HTTPError as error:
            raise UnavailableError(f"no connection to {self._address.url}: {error}") from None
        return _read_answer(response.status_code, response.content)


@contextmanager
def open_sign_in(address: Address, roots: bytes | None) -> Iterator[SignInClient]:
    """Yields a client for signing in."""
    import httpx2  # noqa: PLC0415 - only signing in needs it

    with httpx2.Client(
        base_url=address.url,
        timeout=REQUEST_SECONDS,
        verify=make_ssl_context(ClientTls(roots=roots)),
        # A proxy of the environment is for the world outside, never for this machine itself.
        trust_env=not is_local(address.target),
        headers={"user-agent": "pipectl"},
    ) as client:
        yield SignInClient(client, address)


def describe_client() -> str:
    """Returns what the page of the browser shows of this program."""
    return f"pipectl on {socket.gethostname()}"


def _read_answer(status: int, content: bytes) -> dict[str, Any]:
    """Returns the answer of the control plane. Raises the error that it tells of."""
    try:
        told = json.loads(content[:LARGEST_BYTES])
    except ValueError:
        told = None
    if not isinstance(told, dict) or (status != 200 and not isinstance(told.get("error"), str)):
        raise StateError(
            f"this control plane cannot sign in a terminal (it answered with {status})",
            hint="use an API key: --api-key-file",
        )
    if status != 200:
        error = ERRORS.get(status, StateError)
        raise error(str(told["error"]), hint=str(told.get("hint", "")))
    return told


def _read_session(told: dict[str, Any]) -> SignedIn:
    token = _read_text(told, "token")
    if not TOKEN.fullmatch(token):
        raise _bad_answer()
    return SignedIn(
        session=token,
        project=_read_text(told, "project"),
        subject=_read_text(told, "subject"),
        expires_at=_read_number(told, "expires_at"),
    )


def _read_text(told: dict[str, Any], name: str) -> str:
    value = told.get(name)
    if not isinstance(value, str) or not 0 < len(value) <= 500:
        raise _bad_answer()
    return value


def _read_number(told: dict[str, Any], name: str) -> int:
    value = told.get(name)
    if not isinstance(value, int) or not 0 <= value < 2**40:
        raise _bad_answer()
    return value


def _bad_answer() -> StateError:
    return StateError("the control plane's answer cannot be read", hint="check the address")
