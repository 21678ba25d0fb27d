# SPDX-License-Identifier: Apache-2.0
"""Merge two commits inside a mirror, without a checkout, to preview a branch after a merge."""

from pathlib import Path
from typing import Final

from pipecd_model.gitnames import CommitHash
from pipecd_piped.git import process as git
from pipecd_piped.git.errors import GitError
from pipecd_runtime.process import Argument, join_option, own, word

_CONFLICT: Final = 1
"""The exit code of `git merge-tree` for a conflict."""

_SHOWN: Final = 5


class MergeConflictError(GitError):
    """The two commits have a conflict that a person must resolve."""


async def merge(folder: Path, base: CommitHash, head: CommitHash, *, env: dict[str, str]) -> str:
    """Creates a merge commit of two commits of a bare repository and returns its hash.

    The same two commits always give the same hash. The merge commit is only read; no branch points
    to it. Raises MergeConflictError.
    """
    where = join_option("--git-dir=", folder)
    output, code = await _try(
        where,
        *own("merge-tree", "--write-tree", "--name-only", "--no-messages", "--end-of-options"),
        *(word(base), word(head)),
        env=env,
    )
    lines = output.decode(errors="replace").splitlines()
    if code == _CONFLICT and lines:
        files = ", ".join(lines[1 : _SHOWN + 1]) + (" …" if len(lines) > _SHOWN + 1 else "")
        raise MergeConflictError(
            f"{head[:7]} does not merge into {base[:7]}: both changed {files}",
            hint="merge the base branch, or rebase onto it",
        )
    if code != 0 or not lines:
        raise GitError("the merge failed", hint="a plan preview needs git 2.38 or newer")
    who = {
        f"GIT_{role}_{key}": value
        for role in ("AUTHOR", "COMMITTER")
        for key, value in (
            ("NAME", "piped"),
            ("EMAIL", "piped@localhost"),
            ("DATE", "1700000000 +0000"),
        )
    }
    made = await git.run(
        *(*own("commit-tree", "-p"), word(base), *own("-p"), word(head)),
        *(*own("-m"), word(f"Merge {head} into {base}")),
        *(*own("--end-of-options"), word(lines[0])),
        env={**env, **who},
        options=(where,),
    )
    return made.decode().strip()


async def _try(*arguments: Argument, env: dict[str, str]) -> tuple[bytes, int]:
    process = await git.start(*arguments, env=env)
    try:
        output = await git.read_output(process)
    finally:
        await git.end(process)
    if output is None:
        raise git.too_much("merge-tree")
    return output, process.returncode or 0
