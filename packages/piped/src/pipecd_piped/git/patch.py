# SPDX-License-Identifier: Apache-2.0
"""The lines that differ between two commits, as a patch."""

from collections.abc import Sequence
from typing import Final

from pipecd_model.gitnames import CommitHash
from pipecd_piped.git.mirror import MirrorFolder
from pipecd_runtime.process import own, word

MOST_BYTES: Final = 8 * 1024 * 1024

# fmt: off
_COMMAND: Final = own(
    "diff-tree", "-r", "-p", "--no-renames", "--no-color", "--no-ext-diff", "--no-textconv",
    "--end-of-options",
)
# fmt: on
"""Neither programs nor filters that a configuration names: nothing of the repository is run."""


async def read_patch(mirror: MirrorFolder, old: str, new: str, paths: Sequence[str]) -> str:
    """Returns how files differ between two commits of the mirror; nothing without a path.

    Raises GitError, also for a patch of more than MOST_BYTES.
    """
    if not paths or old == new:
        return ""
    commits = (word(CommitHash(old)), word(CommitHash(new)))
    wanted = (word(path) for path in paths)  # git is told to take them literally
    output = await mirror.run(*_COMMAND, *commits, *own("--"), *wanted, most_output=MOST_BYTES)
    return output.decode(errors="replace")
