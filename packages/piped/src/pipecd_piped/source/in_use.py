# SPDX-License-Identifier: Apache-2.0
"""Finds the worktrees that a process still works in.

A script outlives the plugin and the piped that started it, and the process that supervises it stays
in the script's folder until its end. A worktree with a process in it must not be reused.
"""

import os
from collections.abc import Iterable
from pathlib import Path


def find_in_use(folders: Iterable[Path]) -> set[Path]:
    """Returns the folders that are, or contain, the working directory of a process."""
    roots = {os.path.realpath(folder): folder for folder in folders}
    found: set[Path] = set()
    if not roots:
        return found
    for entry in os.listdir("/proc"):  # noqa: PTH208 - hundreds of names
        if not entry.isdigit():
            continue
        try:
            place = os.readlink(f"/proc/{entry}/cwd")  # noqa: PTH115 - as above
        except OSError:
            continue  # it has ended, or belongs to another user
        found |= {
            folder
            for root, folder in roots.items()
            if place == root or place.startswith(f"{root}/")
        }
    return found
