# SPDX-License-Identifier: Apache-2.0
"""The files that changed between two commits, looked up by folder.

One commit may touch thousands of applications: each asks for its own folder only.
"""

from bisect import bisect_left
from collections.abc import Iterable, Sequence

from pipecd_model.config import ApplicationConfig


class ChangedFiles:
    """Changed files, from the repository's root."""

    def __init__(self, paths: Iterable[str]) -> None:
        self._paths = sorted(paths)

    def that_may_concern(self, config: ApplicationConfig, folder: str) -> Sequence[str]:
        """The files that an application has to look at: all, if it names files elsewhere."""
        if not folder or config.trigger.on_commit.paths:
            return self._paths
        start = bisect_left(self._paths, f"{folder}/")
        end = bisect_left(self._paths, f"{folder}0", start)  # "0" comes right after "/"
        return self._paths[start:end]
