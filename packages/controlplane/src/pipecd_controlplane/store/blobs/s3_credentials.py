# SPDX-License-Identifier: Apache-2.0
"""Credentials of a bucket from files, read again every few minutes: files are rotated.

Whatever the environment offers (variables, the identity of a pod, a task, a machine) is found by
the driver itself; only what the configuration names is read here.
"""

import configparser
import os
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pipecd_controlplane.store.blobs.config import AwsProfile, KeyFiles
from pipecd_model.errors import ConfigError

if TYPE_CHECKING:
    from obstore.store import S3Credential

LIFETIME: Final = timedelta(minutes=5)
"""After which files are read again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _AccessKeys:
    """What a request is signed with."""

    access_key: str
    secret_key: str
    token: str | None = None


def make_credential_provider(source: AwsProfile | KeyFiles) -> Callable[[], "S3Credential"]:
    """Returns what the driver asks for credentials. It raises ConfigError."""

    def provide() -> "S3Credential":
        keys = read_keys(source)
        return {
            "access_key_id": keys.access_key,
            "secret_access_key": keys.secret_key,
            "token": keys.token,
            "expires_at": datetime.now(UTC) + LIFETIME,
        }

    return provide


def read_keys(source: AwsProfile | KeyFiles) -> _AccessKeys:
    """Returns the keys that the files hold now. Raises ConfigError."""
    if isinstance(source, KeyFiles):
        return _AccessKeys(
            access_key=_read_secret(source.access_key), secret_key=_read_secret(source.secret_key)
        )
    return _read_profile(source)


def _read_secret(file: Path) -> str:
    text = _read_text(file).strip()
    if not text:
        raise ConfigError(f"the file {str(file)!r} is empty", hint="it must hold the key alone")
    return _check_secret(text, file)


def _check_secret(text: str, file: Path) -> str:
    """Returns the text. Raises ConfigError for one that no request can be signed with."""
    if not all("!" <= character <= "~" for character in text):
        raise ConfigError(
            f"the file {str(file)!r} holds a key with a space, a line break or another character"
            " that no key has",
            hint="it must hold the key alone",
        )
    return text


def _read_profile(source: AwsProfile) -> _AccessKeys:
    file = source.file or Path(
        os.environ.get("AWS_SHARED_CREDENTIALS_FILE") or Path.home() / ".aws" / "credentials"
    )
    name = source.name or os.environ.get("AWS_PROFILE") or "default"
    parsed = configparser.RawConfigParser(default_section="")
    try:
        parsed.read_string(_read_text(file))
    except configparser.Error:
        # What it says of a line would show the line, and with it a secret.
        raise ConfigError(
            f"the file {str(file)!r} is no credentials file",
            hint="it needs [default] and aws_access_key_id = …",
        ) from None
    if not parsed.has_section(name):
        raise ConfigError(f"the file {str(file)!r} has no profile {name!r}")
    profile = parsed[name]
    access_key = profile.get("aws_access_key_id", "")
    secret_key = profile.get("aws_secret_access_key", "")
    if not access_key or not secret_key:
        raise ConfigError(
            f"the profile {name!r} in {str(file)!r} has no keys",
            hint="it needs aws_access_key_id and aws_secret_access_key;"
            " profiles that lead to other ones are not followed",
        )
    token = profile.get("aws_session_token") or None
    for text in (access_key, secret_key, token or "token"):
        _check_secret(text, file)
    return _AccessKeys(access_key=access_key, secret_key=secret_key, token=token)


def _read_text(file: Path) -> str:
    try:
        return file.read_text()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no text"
        raise ConfigError(f"cannot read {str(file)!r}: {why}") from error
