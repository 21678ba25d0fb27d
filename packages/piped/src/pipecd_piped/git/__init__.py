# SPDX-License-Identifier: Apache-2.0
"""The desired state: one mirror per repository, its branch watched, its commits read."""

import hashlib
from pathlib import Path
from urllib.parse import quote

from pipecd_model.config import PipedConfig
from pipecd_piped.git.access import Credentials
from pipecd_piped.git.commit import Commit, commit_url
from pipecd_piped.git.errors import (
    DamagedMirrorError,
    GitError,
    NoBranchError,
    NoCommitError,
    RemoteError,
)
from pipecd_piped.git.merge import MergeConflictError
from pipecd_piped.git.repository import Repository, TreeFile
from pipecd_piped.git.state import Reachability, RepositoryState

__all__ = [
    "Commit",
    "DamagedMirrorError",
    "GitError",
    "MergeConflictError",
    "NoBranchError",
    "NoCommitError",
    "Reachability",
    "RemoteError",
    "Repository",
    "RepositoryState",
    "TreeFile",
    "commit_url",
    "folder_name",
    "repositories",
]


def repositories(config: PipedConfig, data_dir: Path) -> dict[str, Repository]:
    """Returns the repositories of a piped's configuration by id; nothing is fetched yet."""
    credentials = Credentials(config.git, data_dir / "ssh")
    credentials.prepare()
    return {
        each.repo_id: Repository(
            id=each.repo_id,
            remote=each.remote,
            branch=each.branch,
            folder=data_dir / "mirrors" / folder_name(each.repo_id),
            access=credentials.for_remote(each.remote),
            sync_interval=config.sync_interval,
        )
        for each in config.repositories
    }


def folder_name(repository_id: str) -> str:
    """Returns a file name for a repository's id, unique among all ids."""
    name = quote(repository_id, safe="").replace(".", "%2E")
    if len(name) <= 100:
        return name
    return f"{name[:80]}-{hashlib.sha256(repository_id.encode()).hexdigest()[:16]}"
