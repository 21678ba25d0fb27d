# SPDX-License-Identifier: Apache-2.0
"""The files of one commit made ready: a writable tree from a pool, described for plugins."""

from piped.source.application import (
    ApplicationFile,
    ApplicationPlace,
    file_in,
    find_application,
    missing,
    place_of,
)
from piped.source.dotgit import Identity
from piped.source.pool import Sources, source_of
from piped.source.preparation import Preparation
from piped.source.tree import Tree

__all__ = [
    "ApplicationFile",
    "ApplicationPlace",
    "Identity",
    "Preparation",
    "Sources",
    "Tree",
    "file_in",
    "find_application",
    "missing",
    "place_of",
    "source_of",
]
