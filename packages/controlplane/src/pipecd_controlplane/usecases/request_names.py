# SPDX-License-Identifier: Apache-2.0
"""Validates names in requests that an agent will pass to git, before they are stored."""

import posixpath
from collections.abc import Callable

from pipecd_model import gitnames
from pipecd_model.errors import ConfigError


def branch(field: str, value: str) -> None:
    """Raises ConfigError unless the value is the name of a branch."""
    _check(field, gitnames.BranchName, value)


def commit(field: str, value: str) -> None:
    """Raises ConfigError unless the value is the hash of a commit, or the beginning of one."""
    _check(field, gitnames.check_commit, value)


def application_path(path: str, config_filename: str) -> None:
    """Raises ConfigError when an application's folder, or its file, leads out of a repository."""
    _check("git_path.path", gitnames.RepositoryPath, path)
    # An empty name means the default one, which every agent knows.
    whole = posixpath.join(path, config_filename) if config_filename else path
    _check("git_path.config_filename", gitnames.RepositoryPath, whole)


def _check(field: str, check: Callable[[str], object], value: str) -> None:
    try:
        check(value)
    except gitnames.BadGitNameError as error:
        raise ConfigError(f"invalid request: {field}: {error}", hint=error.hint) from None
