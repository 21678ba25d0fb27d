# SPDX-License-Identifier: Apache-2.0
"""Credentials for a git remote over HTTP, which are no arguments of a process.

Every user of a machine can see the arguments of a process; its environment is seen by its own user
alone. Settings that git finds there are not written into the configuration of a clone.
"""

import base64
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import unquote, urlsplit, urlunsplit


class UserAndPassword(NamedTuple):
    """Who asks, and what proves it."""

    user: str
    password: str


def split_credentials(remote: str) -> tuple[str, UserAndPassword | None]:
    """Returns the address without credentials, and those that an address over HTTP has.

    Other addresses are returned as they are. Raises ValueError for what is no address.
    """
    parts = urlsplit(remote) if "://" in remote else None
    if parts is None or parts.scheme not in {"http", "https"}:
        return remote, None
    address = urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
    if parts.username is None:
        return address, None
    return address, UserAndPassword(unquote(parts.username), unquote(parts.password or ""))


def make_credential_settings(address: str, credentials: UserAndPassword) -> dict[str, str]:
    """Returns the settings by which git sends credentials to the host of an address, at once.

    To this host alone: another one that we are sent to must not get them.
    """
    parts = urlsplit(address)
    token = base64.b64encode(":".join(credentials).encode()).decode()
    return {f"http.{parts.scheme}://{parts.netloc}/.extraHeader": f"Authorization: Basic {token}"}


def make_settings_environment(settings: Mapping[str, str]) -> dict[str, str]:
    """Returns the variables that give git settings; those of its files count less."""
    env = {"GIT_CONFIG_COUNT": str(len(settings))}
    for number, (key, value) in enumerate(settings.items()):
        env[f"GIT_CONFIG_KEY_{number}"] = key
        env[f"GIT_CONFIG_VALUE_{number}"] = value
    return env
