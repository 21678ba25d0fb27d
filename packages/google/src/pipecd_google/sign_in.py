# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: PLC0415 - libraries are loaded at the first token, and of their kind only
"""Tokens for Google Cloud: from a credentials file, or from where google's tools look for them.

google-auth is loaded at the first token, and works in a thread: a plugin that only waits for work
does not pay for it. Credentials whose file names a program to run are refused: children are started
through one door, and not by a library.
"""

import asyncio
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pipecd_google.errors import SignInError, clean_message

if TYPE_CHECKING:
    from google.auth.credentials import Credentials

SCOPE: Final = "https://www.googleapis.com/auth/cloud-platform"
SCOPES: Final = (SCOPE,)
VARIABLE: Final = "GOOGLE_APPLICATION_CREDENTIALS"
PROJECT_VARIABLE: Final = "GOOGLE_CLOUD_PROJECT"
LARGEST_FILE_BYTES: Final = 1024 * 1024
AWS_SUBJECT: Final = "urn:ietf:params:aws:token-type:aws4_request"
REFRESH_LIMIT_SECONDS: Final = 60.0


class GoogleSignIn:
    """The tokens of one account. Kept until shortly before they run out, then fetched anew."""

    def __init__(self, credentials_file: str = "", scopes: Sequence[str] = SCOPES) -> None:
        self._file = credentials_file
        self._scopes = tuple(scopes)
        self._credentials: Credentials | None = None
        self._lock = asyncio.Lock()

    @property
    def source(self) -> str:
        """Returns where the credentials come from, for hints."""
        return self._file or "the application default credentials"

    async def get_token(self, *, refused: str = "") -> str:
        """Returns a token that is valid, and another one than `refused`. Raises SignInError."""
        async with self._lock:
            held = self._credentials
            if held is not None and held.valid and held.token != refused:
                return str(held.token)
            try:
                async with asyncio.timeout(REFRESH_LIMIT_SECONDS):
                    return await asyncio.to_thread(self._refresh, is_new=bool(refused))
            except TimeoutError:
                raise SignInError(
                    f"cannot sign in with {self.source}: no token"
                    f" in {REFRESH_LIMIT_SECONDS:.0f} seconds",
                    hint="is the token endpoint, or the metadata server, reachable from piped?",
                ) from None

    def _refresh(self, *, is_new: bool) -> str:
        from google.auth import exceptions

        from pipecd_google.auth_transport import TokenTransport

        if self._credentials is None or is_new:  # a file that was replaced is read again
            self._credentials = load_credentials(self._file, self._scopes)
        try:
            self._credentials.refresh(TokenTransport())  # type: ignore[no-untyped-call]
        except (exceptions.GoogleAuthError, ValueError) as error:
            said = clean_message(str(error.args[0]) if error.args else type(error).__name__)
            raise SignInError(
                f"cannot sign in with {self.source}: {said}",
                hint="credentialsFile of the deploy target names a key, or a federation file",
            ) from None
        token = self._credentials.token
        if not isinstance(token, str) or not token:
            raise SignInError(f"cannot sign in with {self.source}: there was no token")
        return token


def load_credentials(file: str, scopes: Sequence[str] = SCOPES) -> "Credentials":
    """Returns the credentials of a file, or without one those that Google's tools would use.

    These are: the file that GOOGLE_APPLICATION_CREDENTIALS names, the one that
    `gcloud auth application-default login` has written, and the account of the machine.
    Raises SignInError.
    """
    if file:
        return _load_file(Path(file), scopes)
    if named := os.environ.get(VARIABLE):
        return _load_file(Path(named), scopes)
    known = _find_gcloud_file()
    if known is not None and known.is_file():
        return _load_file(known, scopes)
    from google.auth import compute_engine

    return compute_engine.Credentials(scopes=scopes)  # type: ignore[no-untyped-call]


def _find_gcloud_file() -> Path | None:
    folder = os.environ.get("CLOUDSDK_CONFIG")
    try:
        base = Path(folder) if folder else Path.home() / ".config" / "gcloud"
    except RuntimeError:  # an account without a home
        return None
    return base / "application_default_credentials.json"


def find_project(file: str) -> str:
    """Returns the project that a credentials file, or the environment, names; else empty.

    Raises SignInError for a file that cannot be read.
    """
    named = file or os.environ.get(VARIABLE, "")
    known = str(_read_file(Path(named)).get("project_id") or "") if named else ""
    return known or os.environ.get(PROJECT_VARIABLE, "")


def _load_file(file: Path, scopes: Sequence[str]) -> "Credentials":
    info = _read_file(file)
    try:
        return _make_credentials(info, str(file), scopes)
    except (ValueError, KeyError, TypeError) as error:
        # What a library says of a broken key may quote it: only the kind of failure is told.
        raise SignInError(
            f"the credentials {str(file)!r} cannot be used ({type(error).__name__})",
            hint="download the key, or make the federation file, again",
        ) from None


def _read_file(file: Path) -> dict[str, Any]:
    try:
        with file.open("rb") as opened:
            text = opened.read(LARGEST_FILE_BYTES + 1)
    except OSError as error:
        raise SignInError(
            f"cannot read the credentials {str(file)!r}: {error.strerror or error}",
            hint="credentialsFile, or GOOGLE_APPLICATION_CREDENTIALS, names a file piped can read",
        ) from None
    try:
        info = json.loads(text) if len(text) <= LARGEST_FILE_BYTES else None
    except (ValueError, RecursionError):
        info = None
    if not isinstance(info, dict):
        raise SignInError(f"the credentials {str(file)!r} are no JSON object")
    return info


def _make_credentials(info: Mapping[str, Any], file: str, scopes: Sequence[str]) -> "Credentials":
    """Returns the credentials of the kind that a file names. Libraries load as they are needed."""
    match info.get("type"):
        case "service_account":
            from google.oauth2 import service_account

            return service_account.Credentials.from_service_account_info(  # type: ignore[no-untyped-call,no-any-return]
                info, scopes=scopes
            )
        case "authorized_user":
            from google.oauth2 import credentials

            return credentials.Credentials.from_authorized_user_info(  # type: ignore[no-untyped-call,no-any-return]
                info, scopes=scopes
            )
        case "external_account":
            return _make_federated(info, file, scopes)
        case "impersonated_service_account":
            from google.auth import impersonated_credentials

            return impersonated_credentials.Credentials.from_impersonated_service_account_info(  # type: ignore[no-untyped-call,no-any-return]
                info, scopes=scopes
            )
        case other:
            raise SignInError(
                f"the credentials {file!r} are of an unknown type: {clean_message(repr(other))}",
                hint="service_account, authorized_user, external_account (workload identity"
                " federation) or impersonated_service_account",
            )


def _make_federated(info: Mapping[str, Any], file: str, scopes: Sequence[str]) -> "Credentials":
    source = info.get("credential_source")
    if isinstance(source, dict) and source.get("executable") is not None:
        raise SignInError(
            f"the credentials {file!r} name a program to run, which is not supported",
            hint="let it write its token into a file, and name that: credential_source.file",
        )
    if info.get("subject_token_type") == AWS_SUBJECT:
        from google.auth import aws

        return aws.Credentials.from_info(info, scopes=scopes)  # type: ignore[no-untyped-call,no-any-return]
    from google.auth import identity_pool

    return identity_pool.Credentials.from_info(info, scopes=scopes)  # type: ignore[no-untyped-call,no-any-return]
