# SPDX-License-Identifier: Apache-2.0
"""Where in a repository an application lives: words that people register, as a path.

Whoever registers an application chooses them, and whoever reads the repository asks git for them:
both hold them to the same rule.
"""

import posixpath
import re
from typing import Final

from pipecd_model.errors import SourceError

LONGEST_PATH: Final = 3968
"""Bytes: no checkout could hold a longer one together with its own folder."""

_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
_SHOWN: Final = 200  # characters of a path in a sentence


def path_in_repository(path: str) -> str:
    """The path in its shortest form, empty for the root; raises SourceError for one that is none.

    That is one that leads out of the repository, is absolute, too long, or has control characters.
    """
    shown = repr(path if len(path) <= _SHOWN else f"{path[:_SHOWN]}…")
    if _CONTROL.search(path) or len(path.encode(errors="replace")) > LONGEST_PATH:
        raise SourceError(
            f"{shown} cannot be an application's path",
            hint=f"use one without control characters, of at most {LONGEST_PATH} bytes",
        )
    clean = posixpath.normpath(path)
    if path.startswith("/") or clean == ".." or clean.startswith("../"):
        raise SourceError(
            f"{shown} is not inside the repository",
            hint="write the application's path from the repository's root",
        )
    return "" if clean == "." else clean


def file_in_repository(folder: str, filename: str) -> str:
    """The application file, which may lie beside or below its folder; raises SourceError."""
    return path_in_repository(posixpath.join(path_in_repository(folder), filename))
