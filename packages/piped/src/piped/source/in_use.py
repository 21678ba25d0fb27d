# SPDX-License-Identifier: Apache-2.0
"""Which trees somebody still works in.

A script outlives the plugin and the piped that started it, and whoever keeps it stays in the
script's folder until its end. A tree with a process in it is nobody else's.
"""

import os
from collections.abc import Iterable
from pathlib import Path


def find_in_use(folders: Iterable[Path]) -> set[Path]:
    """Those of the folders that a process has as its working directory, or one below it."""
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
            continue  # it has ended, or is none of our business
        found |= {
            folder
            for root, folder in roots.items()
            if place == root or place.startswith(f"{root}/")
        }
    return found
