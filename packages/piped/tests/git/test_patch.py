# SPDX-License-Identifier: Apache-2.0
"""Patches between commits: only of the files that were named, whatever their names are."""

from pathlib import Path

from pipecd_piped.git import Repository
from pipecd_piped.git.patch import read_patch
from pipecd_test_support.git_remote import Remotes

STRANGE = ":(exclude)*"


async def test_only_named_files_are_in_a_patch(git_remote: Remotes, tmp_path: Path) -> None:
    remote = git_remote()
    old = remote.commit({"web/a": "one\n", STRANGE: "first\n", "other": "x\n"})
    new = remote.commit({"web/a": "two\n", STRANGE: "second\n", "other": "y\n"})
    async with Repository(
        id="repo", remote=remote.remote, branch="main", folder=tmp_path / "mirror"
    ) as repository:
        await repository.fetch()
        patch = await read_patch(repository.mirror, old, new, ["web/a"])
        strange = await read_patch(repository.mirror, old, new, [STRANGE])
        nothing = await read_patch(repository.mirror, old, new, [])

    assert "-one\n+two\n" in patch
    assert "other" not in patch
    assert "-first\n+second\n" in strange
    assert "two" not in strange
    assert nothing == ""
