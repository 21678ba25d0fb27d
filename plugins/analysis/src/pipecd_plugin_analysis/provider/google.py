# SPDX-License-Identifier: Apache-2.0
"""Signing in to Google Cloud. google-auth is loaded with the first token, and runs in a thread."""

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from pipecd_plugin_analysis.provider.base import EvaluationError
from pipecd_plugin_analysis.provider.http import show_text

SCOPES: Final = (
    "https://www.googleapis.com/auth/monitoring.read",
    "https://www.googleapis.com/auth/logging.read",
)
TOKEN_SECONDS: Final = 20.0


class GoogleSignIn:
    """The identity that asks: a service account, or that of the machine."""

    def __init__(self, service_account_file: str, project: str) -> None:
        self._file = service_account_file
        self._project = project
        self._credentials: Any = None
        self._lock = asyncio.Lock()

    async def read_token(self) -> tuple[str, str]:
        """Returns a token that is valid for some time, and the project. Raises EvaluationError."""
        async with self._lock:
            return await asyncio.to_thread(self._refresh)

    def _refresh(self) -> tuple[str, str]:
        import google.auth.exceptions  # noqa: PLC0415 - an installation without Google never needs it

        try:
            if self._credentials is None:
                self._credentials = self._load()
            if not self._credentials.valid:
                self._credentials.refresh(_ask)
        except (google.auth.exceptions.GoogleAuthError, OSError, ValueError) as error:
            raise EvaluationError(
                f"signing in to Google Cloud failed: {show_text(str(error))}"
            ) from None
        if not self._project:
            raise EvaluationError("no project is known: set projectID of the provider")
        return str(self._credentials.token), self._project

    def _load(self) -> Any:
        import google.auth  # noqa: PLC0415
        from google.oauth2 import service_account  # noqa: PLC0415

        if not self._file:
            found, project = google.auth.default(scopes=SCOPES, request=_ask)
            self._project = self._project or project or ""
            return found
        loaded = service_account.Credentials.from_service_account_file(self._file, scopes=SCOPES)
        self._project = self._project or loaded.project_id or ""
        return loaded


class _Answer:
    """A response as google-auth reads it."""

    def __init__(self, status: int, headers: Mapping[str, str], data: bytes) -> None:
        self.status = status
        self.headers = headers
        self.data = data


def _ask(
    url: str,
    method: str = "GET",
    body: bytes | None = None,
    headers: Mapping[str, str] | None = None,
    timeout: float | None = None,
    **_more: object,
) -> _Answer:
    """Asks for a token with the HTTP client of the project, in place of google-auth's own."""
    import google.auth.exceptions  # noqa: PLC0415
    import httpx2  # noqa: PLC0415

    try:
        answer = httpx2.request(
            method, url, content=body, headers=dict(headers or {}), timeout=timeout or TOKEN_SECONDS
        )
    except httpx2.HTTPError as error:
        raise google.auth.exceptions.TransportError(str(error)) from None
    return _Answer(answer.status_code, answer.headers, answer.content)
