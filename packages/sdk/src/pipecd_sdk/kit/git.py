# SPDX-License-Identifier: Apache-2.0
"""One commit of another git repository, fetched without running anything that it brings.

Example:
    commit = await fetch_commit(remote, "v1.2.0", into=folder, what="fetching the chart")
"""

import asyncio
import os
import re
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from pipecd_runtime.git_remote import (
    make_credential_settings,
    make_settings_environment,
    split_credentials,
)
from pipecd_sdk.kit import shell, tools
from pipecd_sdk.kit.hosts import IpAddress
from pipecd_sdk.kit.process import Argument, own, word
from pipecd_sdk.kit.text import make_printable_line
from pipecd_sdk.results import StageFailedError

__all__ = ["GitFetchError", "fetch_commit"]

LIMIT: Final = timedelta(minutes=5)
"""How long one program of git may run."""
_REF: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/+@-]*")
_PASSWORD: Final = re.compile(r"://[^/?#@]*:[^/?#]*@")
_KNOWN: Final = (
    *("SSH_AUTH_SOCK", "GIT_SSH_COMMAND", "GIT_SSL_CAINFO", "SSL_CERT_FILE", "SSL_CERT_DIR"),
    *("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy"),
)
"""Variables by which the operator says how other repositories are reached."""
_LONGEST_REASON: Final = 2_000


class GitFetchError(StageFailedError):
    """A repository could not be fetched; the message has what git complained about.

    Example:
        raise GitFetchError("fetching the chart failed: repository not found")
    """


async def fetch_commit(
    remote: str,
    ref: str,
    *,
    into: Path,
    what: str,
    option: str = "ref",
    addresses: Sequence[IpAddress] = (),
) -> str:
    """Fetches the files of a branch, tag or commit into a new folder; returns the commit's hash.

    The remote's host has been checked (`kit.hosts`), and `addresses` are where it may be; none
    means anywhere. A password in an address over HTTP is given to git where other users do not
    see it, and is not kept in the folder; ssh uses the keys of the user that the plugin runs as.
    `what` begins the sentences of errors, `option` is what the author calls `ref`. Raises
    GitFetchError.

    Example:
        addresses = await Hosts(config.allowed_hosts, public=True).check(remote, "the remote")
        await fetch_commit(remote, "v1", into=folder, what="fetching it", addresses=addresses)
    """
    git = tools.find_on_path("git")
    if git is None:
        raise GitFetchError("git is not installed where the plugin runs", hint="install it on PATH")
    wanted = ref or "HEAD"
    if not _REF.fullmatch(wanted) or ".." in wanted:
        raise GitFetchError(f"{option} cannot be {ref[:100]!r}")
    address, settings = _split_remote(remote, what)
    await asyncio.to_thread(into.mkdir, parents=True)
    start = (
        word(git),
        *own("-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false"),
        *own("-c", "submodule.recurse=false", "-c", "http.followRedirects=false"),
        *_pin(address, addresses),
    )
    run = _Runner(folder=into, what=what, settings=settings)
    await run((*start, *own("init", "-q")))
    fetch = (*start, *own("fetch", "-q", "--no-tags", "--no-recurse-submodules"))
    try:
        await run((*fetch, *own("--depth=1", "--"), word(address), word(wanted)))
        found = "FETCH_HEAD"
    except GitFetchError:
        # Servers give a short commit, or any commit, only with everything else.
        every = own("+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*")
        await run((*fetch, *own("--"), word(address), *every))
        found = wanted
    await run((*start, *own("checkout", "-q", "--detach"), word(found), *own("--")))
    return (await run((*start, *own("rev-parse", "HEAD")))).strip()


def _split_remote(remote: str, what: str) -> tuple[str, Mapping[str, str]]:
    """Returns the address that everybody may see, and the settings with its credentials."""
    try:
        address, credentials = split_credentials(remote)
    except ValueError:
        raise GitFetchError(f"{what} failed: it has no address") from None
    if _PASSWORD.search(address):
        raise GitFetchError(
            f"{what} failed: only an address with http or https may have a password",
            hint="ssh uses the keys of the user that the plugin runs as",
        )
    if credentials is None:
        return address, {}
    return address, make_credential_settings(address, credentials)


def _pin(remote: str, addresses: Sequence[IpAddress]) -> tuple[Argument, ...]:
    """Returns what keeps a name from meaning another host by the time that git looks it up."""
    if not addresses or "://" not in remote:
        return ()
    parts = urlsplit(remote)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        return ()
    port = parts.port or (443 if parts.scheme == "https" else 80)
    places = ",".join(f"[{each}]" if each.version == 6 else str(each) for each in addresses)
    return (*own("-c"), word(f"http.curloptResolve={parts.hostname}:{port}:{places}"))


class _Runner:
    """Runs git in a folder, with an environment of its own."""

    def __init__(self, *, folder: Path, what: str, settings: Mapping[str, str]) -> None:
        self._folder = folder
        self._what = what
        self._env = {**_make_environment(folder.parent), **make_settings_environment(settings)}

    async def __call__(self, arguments: Sequence[Argument]) -> str:
        try:
            done = await shell.run(
                arguments, cwd=self._folder, env=self._env, inherit_env=False, limit=LIMIT
            )
        except shell.CommandFailedError as error:
            said = error.completed.errors.strip()[-_LONGEST_REASON:]
            reason = make_printable_line(said) if said else str(error)
            raise GitFetchError(f"{self._what} failed: {reason}") from None
        return done.output


def _make_environment(home: Path) -> Mapping[str, str]:
    known = {name: value for name in _KNOWN if (value := os.environ.get(name))}
    known.setdefault("GIT_SSH_COMMAND", "ssh -o BatchMode=yes")
    return {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": os.environ.get("HOME") or str(home),  # for the keys and known hosts of ssh
        "TMPDIR": str(home),
        "LANG": "C.UTF-8",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_ASKPASS": "/bin/false",
        "GIT_ALLOW_PROTOCOL": "https:http:ssh",
        **known,
    }
