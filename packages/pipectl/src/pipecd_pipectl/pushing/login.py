# SPDX-License-Identifier: Apache-2.0
"""Finds the credentials for a registry that `docker login` and similar commands have stored."""

import base64
import binascii
import os
from pathlib import Path

import msgspec

from pipecd_model.errors import ConfigError


class _Login(msgspec.Struct, frozen=True):
    auth: str = ""


class _Logins(msgspec.Struct, frozen=True, rename="camel"):
    auths: dict[str, _Login] = {}
    creds_store: str = ""
    cred_helpers: dict[str, str] = {}


def find_login(host: str) -> tuple[str, str] | None:
    """Returns user and password for a registry, None when there are none. Raises ConfigError."""
    folder = os.environ.get("DOCKER_CONFIG") or Path.home() / ".docker"
    file = Path(folder) / "config.json"
    try:
        kept = msgspec.json.decode(file.read_bytes(), type=_Logins)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError) as error:
        raise ConfigError(f"cannot read {str(file)!r}: {error}") from None
    # Docker Hub is stored under the address that it had first.
    names = [host, f"https://{host}", *(["https://index.docker.io/v1/"] * (host == "docker.io"))]
    for name in names:
        if (found := kept.auths.get(name)) and found.auth:
            try:
                user, _, password = base64.b64decode(found.auth).decode().partition(":")
            except (binascii.Error, UnicodeDecodeError):
                raise ConfigError(f"{str(file)!r} has no login for {name!r}") from None
            return user, password
    if kept.creds_store or host in kept.cred_helpers:
        raise ConfigError(
            f"the login for {host!r} is kept by another program",
            hint="give --username and --password-stdin",
        )
    return None
