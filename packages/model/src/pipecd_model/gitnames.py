# SPDX-License-Identifier: Apache-2.0
"""Names that reach git: branches, commits, remotes, paths. A value of these types was checked.

Git gives many characters a meaning of their own where it expects a name: `a:b` writes one ref into
another, `-x` is an option, `@{…}` and `^` compute. A name is checked as git itself checks it before
it comes near a git, and refused with a sentence. Nothing here runs git or touches a file.
"""

from __future__ import annotations

import posixpath
import re
import unicodedata
from typing import Final, Self

from pipecd_model.errors import ConfigError

_LONGEST_NAME: Final = 1024  # bytes; hosts and file systems give up long before
_LONGEST_PATH: Final = 4096  # bytes, as a path on this machine
_LONGEST_REMOTE: Final = 4096

_FORBIDDEN: Final = re.compile(r"[\x00-\x20\x7f~^:?*\[\\]")
_UNPRINTABLE: Final = frozenset({"Cc", "Cs", "Zl", "Zp", "Zs"})
# They turn the direction of what follows: a name would be shown as another one.
_DIRECTIONS: Final = frozenset(
    "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
)

_HASH: Final = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_ABBREVIATION: Final = re.compile(r"[0-9a-f]{4,64}")

_SCHEMES: Final = frozenset({"file", "git", "git+ssh", "http", "https", "ssh", "ssh+git"})
_HELPER: Final = re.compile(r"(?P<name>[A-Za-z0-9+.-]*)::")
_HELPER_NAME: Final = re.compile(r"[a-z0-9][a-z0-9-]*")
# They run a command, or take over a descriptor, that the address itself names.
_RUNNING_HELPERS: Final = frozenset({"ext", "fd"})
_SCP_LIKE: Final = re.compile(r"(?P<host>[^/]*?):")


class BadGitNameError(ConfigError):
    """A text that git must not get; the message says which character or form is the reason."""


class BranchName(str):
    """The name of a branch, without `refs/heads/`. Raises BadGitNameError for any other text.

    The rules are those of `git check-ref-format --branch`. Beyond them it refuses names that begin
    with `+`, are just `@`, are not printable, or are longer than any host allows.
    """

    __slots__ = ()

    def __new__(cls, text: str) -> Self:
        if why := _fault_of_branch(text):
            raise BadGitNameError(
                f"{_shorten(text)} is not the name of a branch: {why}",
                hint="give the name as `git branch` shows it, e.g. main",
            )
        return super().__new__(cls, text)

    @property
    def ref(self) -> str:
        """The whole name of its ref."""
        return f"refs/heads/{self}"


class CommitHash(str):
    """The whole hash of a commit, in small letters. Raises BadGitNameError for any other text."""

    __slots__ = ()

    def __new__(cls, text: str) -> Self:
        lowered = text.lower()
        if not _HASH.fullmatch(lowered):
            raise BadGitNameError(
                f"{_shorten(text)} is not the hash of a commit",
                hint="give all of its 40 hexadecimal digits, as `git rev-parse` shows them",
            )
        return super().__new__(cls, lowered)


class RemoteAddress(str):
    """The address of a repository as git takes it. Raises BadGitNameError for any other text."""

    __slots__ = ()

    def __new__(cls, text: str) -> Self:
        if why := _fault_of_remote(text):
            raise BadGitNameError(
                f"{_shorten(text)} is not the address of a repository: {why}",
                hint="e.g. git@host:owner/name.git, https://host/owner/name.git or a path",
            )
        return super().__new__(cls, text)

    @property
    def helper(self) -> str:
        """The remote helper that the address asks for, as in `codecommit::…`; empty for none."""
        found = _HELPER.match(self)
        return found["name"] if found else ""


class RepositoryPath(str):
    """A path from the root of a repository, in its shortest form; empty for the root itself.

    Raises BadGitNameError for one that leads out, or that cannot be the path of a file.
    """

    __slots__ = ()

    def __new__(cls, text: str) -> Self:
        if why := _fault_of_path(text):
            raise BadGitNameError(
                f"{_shorten(text)} is not inside the repository: {why}",
                hint="write the path from the repository's root",
            )
        clean = posixpath.normpath(text)
        return super().__new__(cls, "" if clean == "." else clean)


def check_commit(text: str) -> None:
    """Raise BadGitNameError unless the text is the hash of a commit, or the beginning of one."""
    if not _ABBREVIATION.fullmatch(text.lower()):
        raise BadGitNameError(
            f"{_shorten(text)} is not the hash of a commit",
            hint="give its hexadecimal digits, as `git rev-parse` shows them",
        )


def _shorten(text: str) -> str:
    return repr(text if len(text) <= 100 else f"{text[:100]}…")


def _fault_of_branch(text: str) -> str:
    if not text:
        return "it is empty"
    if text[0] in "-+/":
        return f"it begins with {text[0]!r}"
    if text == "HEAD":
        return "HEAD is wherever somebody stands"
    if text == "@":
        return "'@' is another word for HEAD"
    if found := _FORBIDDEN.search(text):
        return f"it has the character {found.group()!r}"
    for form in ("..", "@{", "//"):
        if form in text:
            return f"it has {form!r}"
    if text[-1] in "/.":
        return f"it ends with {text[-1]!r}"
    for part in text.split("/"):
        if part.startswith("."):
            return f"its part {part!r} begins with '.'"
        if part.endswith(".lock"):
            return f"its part {part!r} ends with '.lock'"
    return _fault_of_text(text, _LONGEST_NAME)


def _fault_of_remote(text: str) -> str:
    if not text:
        return "it is empty"
    if why := _fault_of_text(text, _LONGEST_REMOTE, spaces=True):
        return why
    if text[0] == "-":
        return "it begins with '-'"
    if found := _HELPER.match(text):
        name = found["name"]
        if name in _RUNNING_HELPERS or not _HELPER_NAME.fullmatch(name):
            return f"{name + '::'!r} is not a way to a repository"
        return ""
    scheme, is_url, rest = text.partition("://")
    if is_url and "/" not in scheme:
        if scheme not in _SCHEMES:
            return f"{scheme!r} is not a way to a repository"
        host = re.split(r"[/?#]", rest, maxsplit=1)[0].rpartition("@")[2]
        return f"its host {host!r} begins with '-'" if host.startswith("-") else ""
    if scp := _SCP_LIKE.match(text):
        user, _, host = scp["host"].rpartition("@")
        if host.startswith("-") or user.startswith("-"):
            return f"its host {scp['host']!r} begins with '-'"
        if any(character.isspace() for character in host):
            return f"its host {host!r} has a space"
    return ""


def _fault_of_path(text: str) -> str:
    if text.startswith("/"):
        return "it begins with '/'"
    clean = posixpath.normpath(text)
    if clean == ".." or clean.startswith("../"):
        return "it leads out with '..'"
    if ".git" in (part.lower() for part in clean.split("/")):
        return "'.git' belongs to git"
    return _fault_of_text(text, _LONGEST_PATH, spaces=True)


def _fault_of_text(text: str, longest: int, *, spaces: bool = False) -> str:
    for character in text:
        if character.isascii() and (character.isprintable() and (spaces or character != " ")):
            continue
        category = unicodedata.category(character)
        if spaces and category == "Zs":
            continue
        if category in _UNPRINTABLE or character in _DIRECTIONS:
            return f"it has the character {character!r}"
    if len(text.encode()) > longest:
        return f"it is longer than {longest} bytes"
    return ""
