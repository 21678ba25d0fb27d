# SPDX-License-Identifier: Apache-2.0
"""Whether two addresses are of the same repository, however each of them is written.

A git host offers one repository under several addresses, and people write each of them in several
ways. What is compared is the host and the path: neither the scheme, user, password and port, nor
`.git` and the case of letters. Two repositories that differ in the case of letters alone count as
one, which costs a look too many and nothing else.
"""

import posixpath
import re
from typing import Final
from urllib.parse import unquote, urlsplit

LONGEST: Final = 4096
"""Characters; no address that git takes is longer."""

_URL: Final = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://")
_SCP_LIKE: Final = re.compile(r"(?:[^@/]*@)?(?P<host>\[[^\]/]*\]|[^:/@\s]+):(?P<path>.*)")
_WEB_SCHEMES: Final = frozenset({"http", "https"})
# Bitbucket Server has this before the path over HTTP, and not over ssh.
_WEB_PREFIX: Final = "scm/"
# Where hosts listen for ssh on port 443.
_SSH_HOSTS: Final = {
    "ssh.github.com": "github.com",
    "altssh.gitlab.com": "gitlab.com",
    "altssh.bitbucket.org": "bitbucket.org",
}


def normalize_remote(remote: str) -> str:
    """Returns what all addresses of one repository have in common; empty for what is no address.

    `host/path` for a repository on a host, `file:/path` for one in a folder of a machine.
    """
    text = remote.strip()
    if not text or len(text) > LONGEST or not text.isprintable():
        return ""
    if found := _URL.match(text):
        return _normalize_url(text, found["scheme"].lower())
    if text.startswith(("/", "./", "../", "~")):
        return f"file:{_normalize_folder(text)}"
    if found := _SCP_LIKE.fullmatch(text):
        return _join(found["host"], found["path"])
    return ""


def has_path(normalized: str, path: str) -> bool:
    """Returns whether a normalized address ends with a path, such as `owner/name`.

    For hosts that say which repository they mean, but not where it is.
    """
    wanted = _normalize_path(path)
    return bool(wanted) and f"/{normalized}".endswith(f"/{wanted}")


def _normalize_url(text: str, scheme: str) -> str:
    try:
        parts = urlsplit(text)
        host = parts.hostname or ""
    except ValueError:
        return ""
    if scheme == "file":
        return f"file:{_normalize_folder(unquote(parts.path))}"
    path = parts.path.lstrip("/")
    if scheme in _WEB_SCHEMES and path.lower().startswith(_WEB_PREFIX):
        path = path[len(_WEB_PREFIX) :]
    return _join(host, path)


def _join(host: str, path: str) -> str:
    name = host.strip("[]").lower().rstrip(".")
    name = _SSH_HOSTS.get(name, name)
    rest = _normalize_path(path)
    return f"{name}/{rest}" if name and rest else ""


def _normalize_path(path: str) -> str:
    clean = re.sub(r"/+", "/", unquote(path)).strip("/").removesuffix(".git")
    return clean.rstrip("/").lower()


def _normalize_folder(path: str) -> str:
    """Returns a folder of this machine in its shortest form. The case of letters counts there."""
    return posixpath.normpath(path).removesuffix("/.git").removesuffix(".git").rstrip("/")
