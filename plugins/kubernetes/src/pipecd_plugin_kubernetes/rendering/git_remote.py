# SPDX-License-Identifier: Apache-2.0
"""One commit of another git repository, for a chart that is there."""

from pathlib import Path

from pipecd_sdk.kit import git
from pipecd_sdk.kit.hosts import hide_password


async def fetch_commit(remote: str, ref: str, *, into: Path) -> Path:
    """Returns the folder with the files of a branch, tag or commit. Raises StageFailedError.

    The remote's host has been checked. ssh uses the keys of the user that the plugin runs as.
    """
    what = f"fetching the chart from {hide_password(remote)!r}"
    await git.fetch_commit(remote, ref, into=into, what=what, option="helmChart.ref")
    return into
