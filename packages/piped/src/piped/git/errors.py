# SPDX-License-Identifier: Apache-2.0
"""What can be wrong with git, split by what heals it.

GitError                 git failed, or said something we do not understand
├── RemoteError          the remote is away or refuses us: tried again, with pauses
│   └── NoBranchError    it answers, but has no such branch: deleted, or nothing pushed yet
├── NoCommitError        a commit that the mirror lacks and the remote does not give
└── DamagedMirrorError   our own copy is broken: made anew
"""

import re

from pipecd_model.errors import SourceError


class GitError(SourceError):
    """Git failed; the message says at what and why."""


class RemoteError(GitError):
    """The remote cannot be reached, or does not let us in."""


class NoBranchError(RemoteError):
    """The remote has no such branch."""


class NoCommitError(GitError):
    """There is no such commit."""


class DamagedMirrorError(GitError):
    """Our copy of the repository cannot be read any more."""


_CREDENTIALS = re.compile(r"(?<=://)[^/\s@]+@")

# Git's own words (in the C locale) for a repository that lost or garbled something.
_DAMAGE = re.compile(
    r"not a git repository|bad config (?:line|file)|bad ref |reference broken"
    r"|unable to resolve reference|(?:object|packfile) .* is corrupt|object file .* is empty"
    r"|bad (?:tree )?object|not a tree object|inflate: data stream|unable to unpack [0-9a-f]+ "
    r"|unable to read (?:tree|sha1|object)|(?:could not|cannot) read (?:object )?[0-9a-f]{40}"
    r"|failed to (?:read object|traverse)|missing (?:blob|tree|commit|necessary objects)"
    r"|packfile .* (?:cannot be accessed|does not match)|index file .* is too small"
    r"|did not receive expected object|exists; cannot create",
    re.IGNORECASE,
)
_NO_BRANCH = re.compile(r"couldn't find remote ref|could not find remote branch", re.IGNORECASE)
_NOT_OURS = re.compile(
    r"correct access rights|could not read from remote|does not appear to be a git repository",
    re.IGNORECASE,
)


def summarize_stderr(stderr: str) -> str:
    """What git says, in one line and without credentials: `fatal: repository '…' not found`."""
    lines = [_CREDENTIALS.sub("", line).strip() for line in stderr.splitlines()]
    lines = [line for line in lines if line and not line.startswith(("hint:", "warning:"))]
    errors = [line for line in lines if line.startswith(("fatal:", "error:", "remote: fatal:"))]
    chosen = errors or lines[-3:]
    return "; ".join(re.sub(r"^(?:fatal|error): ", "", line) for line in chosen[:3])


def strip_credentials(remote: str) -> str:
    """A remote's address as it may be shown."""
    return _CREDENTIALS.sub("", remote)


def says_no_branch(stderr: str) -> bool:
    """Did the remote answer that it has no such branch?"""
    return bool(_NO_BRANCH.search(stderr))


def advice(stderr: str) -> str:
    """What a person can do about a remote that refuses us, where git's words do not say it."""
    if "dubious ownership" in stderr:
        return "tell the user that runs piped to trust it: git config --global safe.directory PATH"
    return ""


def says_damaged(stderr: str) -> bool:
    """Does git complain about our copy? What the remote complains about starts with `remote:`."""
    ours = [line for line in stderr.splitlines() if not line.startswith("remote:")]
    if "out of memory" in stderr.lower():
        return False  # what it could not read then, another can
    return any(_DAMAGE.search(line) and not _NOT_OURS.search(line) for line in ours)
