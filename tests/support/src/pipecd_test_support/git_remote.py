# SPDX-License-Identifier: Apache-2.0
"""A real git repository that somebody else writes to."""

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol


class GitRemote:
    """A repository that somebody else writes to, with a work tree."""

    def __init__(self, path: Path, branch: str = "main") -> None:
        self.path = path
        self.branch = branch
        path.mkdir(parents=True, exist_ok=True)
        self.git("init", "--quiet", f"--initial-branch={branch}")

    @property
    def remote(self) -> str:
        """Its address."""
        return str(self.path)

    def git(self, *arguments: str, env: Mapping[str, str] | None = None) -> str:
        """Run git in it."""
        identity = {
            "GIT_AUTHOR_NAME": "Ada",
            "GIT_AUTHOR_EMAIL": "ada@example.com",
            "GIT_COMMITTER_NAME": "Ada",
            "GIT_COMMITTER_EMAIL": "ada@example.com",
        }
        done = subprocess.run(
            ["git", *arguments],
            cwd=self.path,
            env={**os.environ, **identity, **(env or {})},
            check=True,
            capture_output=True,
            timeout=60,
        )
        return done.stdout.decode(errors="replace").strip()

    def commit(
        self,
        files: Mapping[str, str | bytes | None] | None = None,
        message: str = "a change",
        env: Mapping[str, str] | None = None,
    ) -> str:
        """Write files (None deletes one), commit everything and return the hash."""
        for name, content in (files or {}).items():
            file = self.path / name
            if content is None:
                file.unlink()
                continue
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content.encode() if isinstance(content, str) else content)
        self.git("add", "--all", "--force")
        self.git("commit", "--quiet", "--allow-empty", f"--message={message}", env=env)
        return self.git("rev-parse", "HEAD")


class Remotes(Protocol):
    """Makes repositories: `git_remote("name")`."""

    def __call__(self, name: str = "remote", branch: str = "main") -> GitRemote:
        """Returns a new and empty one."""
