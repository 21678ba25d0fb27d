# SPDX-License-Identifier: Apache-2.0
"""The `.git` of a worktree: enough for a script to query its commit, and shared with no other.

Objects are read from the mirror as an alternate, never written to it. Everything else is written at
each checkout, so that settings and hooks of the last user are gone.
"""

import shutil
from dataclasses import dataclass
from pathlib import Path

from pipecd_piped.git import Repository


@dataclass(frozen=True, slots=True, kw_only=True)
class GitIdentity:
    """The author of commits that a script makes."""

    name: str = "piped"
    email: str = "pipecd.dev@gmail.com"


def write_dot_git(
    work: Path, commit: str, repository: Repository, identity: GitIdentity, index: Path
) -> None:
    """Write the `.git` folder of a worktree; it must not exist yet."""
    folder = work / ".git"
    for each in ("objects/info", "objects/pack", "refs/heads", "refs/tags", "info"):
        (folder / each).mkdir(parents=True)
    objects = repository.mirror.folder.absolute() / "objects"
    (folder / "objects" / "info" / "alternates").write_text(f"{objects}\n")
    (folder / "HEAD").write_text(f"{commit}\n")
    (folder / "config").write_text(_config(commit, repository.remote, identity))
    shutil.copyfile(index, folder / "index")


def _config(commit: str, remote: str, identity: GitIdentity) -> str:
    sha256 = len(commit) > 40
    extension = '[extensions]\n\tobjectFormat = "sha256"\n' if sha256 else ""
    return (
        "[core]\n"
        f"\trepositoryFormatVersion = {int(sha256)}\n"
        "\tfileMode = true\n"
        "\tbare = false\n"
        f"{extension}"
        "[gc]\n\tauto = 0\n"
        f"[user]\n\tname = {_quote(identity.name)}\n\temail = {_quote(identity.email)}\n"
        f'[remote "origin"]\n\turl = {_quote(remote)}\n'
        "\tfetch = +refs/heads/*:refs/remotes/origin/*\n"
    )


def _quote(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
