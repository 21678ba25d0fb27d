# SPDX-License-Identifier: Apache-2.0
"""A file of a tree as it is compared: what kind it is, its mode and a digest of its content."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

Kind = Literal["file", "link", "other"]

PLAIN: Final = 0o644
EXECUTABLE: Final = 0o755
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")


@dataclass(frozen=True, slots=True)
class Entry:
    """One file or link. Folders are not compared: git has none."""

    kind: Kind
    mode: int
    size: int
    digest: str
    """SHA-256 of a file's content; where a link leads; the type of anything else."""


Tree = Mapping[str, Entry]
"""Paths within a folder, with `/`, to what is there."""


def to_deployed_mode(mode: int) -> int:
    """Returns the mode that a file is deployed with: git knows two, executable or not."""
    return EXECUTABLE if mode & 0o111 else PLAIN


def format_path(path: str) -> str:
    """Returns a path for messages: on one line, with control characters escaped."""
    return _CONTROL.sub(
        lambda found: f"\\x{ord(found[0]):02x}", path.encode("utf-8", "backslashreplace").decode()
    )
