# SPDX-License-Identifier: Apache-2.0
"""The files of one commit made ready: a writable tree from a pool, described for plugins."""

from pipecd_piped.source.application import (
    ApplicationFile,
    ApplicationPlace,
    file_in,
    find_application,
    missing_file_error,
    place_of,
)
from pipecd_piped.source.dotgit import GitIdentity
from pipecd_piped.source.preparation import Preparation
from pipecd_piped.source.provider import SourceProvider, source_of
from pipecd_piped.source.shared import SharedSources
from pipecd_piped.source.worktree import Worktree

__all__ = [
    "ApplicationFile",
    "ApplicationPlace",
    "GitIdentity",
    "Preparation",
    "SharedSources",
    "SourceProvider",
    "Worktree",
    "file_in",
    "find_application",
    "missing_file_error",
    "place_of",
    "source_of",
]
