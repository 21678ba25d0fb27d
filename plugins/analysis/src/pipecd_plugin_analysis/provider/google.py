# SPDX-License-Identifier: Apache-2.0
"""Signing in to Google Cloud, to read metrics and logs only."""

import asyncio
from typing import Final

from pipecd_google.errors import SignInError
from pipecd_google.sign_in import GoogleSignIn, find_project
from pipecd_plugin_analysis.provider.base import EvaluationError
from pipecd_sdk.kit.web import show_text

SCOPES: Final = (
    "https://www.googleapis.com/auth/monitoring.read",
    "https://www.googleapis.com/auth/logging.read",
)


class GoogleReader:
    """The identity that asks: a service account, or that of the machine; and the project."""

    def __init__(self, service_account_file: str, project: str) -> None:
        self._file = service_account_file
        self._project = project
        self._signed_in = GoogleSignIn(service_account_file, SCOPES)

    async def read_token(self) -> tuple[str, str]:
        """Returns a token that is valid for some time, and the project. Raises EvaluationError."""
        try:
            token = await self._signed_in.get_token()
            if not self._project:
                self._project = await asyncio.to_thread(find_project, self._file)
        except SignInError as error:
            raise EvaluationError(
                f"signing in to Google Cloud failed: {show_text(str(error))}"
            ) from None
        if not self._project:
            raise EvaluationError("no project is known: set projectID of the provider")
        return token, self._project
