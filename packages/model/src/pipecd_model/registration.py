# SPDX-License-Identifier: Apache-2.0
"""Where an application is in git, which tells applications apart that agents register themselves.

Nobody chooses the id of such an application: it follows from the place. So an agent that asks
again, and two that ask at the same moment, mean the same application.
"""

import uuid
from dataclasses import dataclass
from typing import Final

from pipecd_model.gitnames import RepositoryPath
from pipecd_model.remotes import normalize_remote
from pipecd_wire.model.common_pb2 import ApplicationGitPath

DEFAULT_FILE: Final = ".pipe.yaml"
"""What an application file was called before its name was recorded with the application."""

_NAMESPACE: Final = uuid.UUID("0f0c7f1e-8a35-5b0e-a6f3-6a6f3f2b7c11")


@dataclass(frozen=True, slots=True, kw_only=True)
class GitPlace:
    """A file of a branch of a repository, whatever an agent calls the repository."""

    repository: str
    branch: str
    path: str
    filename: str


def get_place(git_path: ApplicationGitPath) -> GitPlace:
    """Returns where an application is. Raises BadGitNameError for a path that leads out."""
    repository = git_path.repo
    return GitPlace(
        # What is no address on a host is compared as it is written.
        repository=normalize_remote(repository.remote) or repository.remote,
        branch=repository.branch,
        path=RepositoryPath(git_path.path),
        filename=git_path.config_filename or DEFAULT_FILE,
    )


def make_registered_id(project_id: str, place: GitPlace) -> str:
    """Returns the id of the application that an agent registers for a place."""
    parts = (project_id, place.repository, place.branch, place.path, place.filename)
    return str(uuid.uuid5(_NAMESPACE, "\n".join(parts)))
