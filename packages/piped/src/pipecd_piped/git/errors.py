# SPDX-License-Identifier: Apache-2.0
"""The errors of git operations, split by how each of them is recovered from.

GitError                 git failed, or said something we do not understand
├── RemoteError          the remote cannot be reached or refuses us: retried with backoff
│   └── NoBranchError    it responds, but has no such branch: deleted, or nothing pushed yet
├── NoCommitError        a commit that the mirror lacks and the remote does not give
└── DamagedMirrorError   our own copy is broken: rebuilt from the remote
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
    """Returns git's error messages in one line, without credentials and `fatal:` prefixes."""
    lines = [_CREDENTIALS.sub("", line).strip() for line in stderr.splitlines()]
    lines = [line for line in lines if line and not line.startswith(("hint:", "warning:"))]
    errors = [line for line in lines if line.startswith(("fatal:", "error:", "remote: fatal:"))]
    chosen = errors or lines[-3:]
    return "; ".join(re.sub(r"^(?:fatal|error): ", "", line) for line in chosen[:3])


def strip_credentials(remote: str) -> str:
    """Returns a remote's address without the credentials in it."""
    return _CREDENTIALS.sub("", remote)


def says_no_branch(stderr: str) -> bool:
    """Returns whether git's output says that the remote has no such branch."""
    return bool(_NO_BRANCH.search(stderr))


def advice(stderr: str) -> str:
    """Returns a hint for a remote that refuses us, empty where git's message needs none."""
    if "dubious ownership" in stderr:
        return "tell the user that runs piped to trust it: git config --global safe.directory PATH"
    return ""


def says_damaged(stderr: str) -> bool:
    """Returns whether git reports damage in our mirror; lines of the remote are skipped."""
    ours = [line for line in stderr.splitlines() if not line.startswith("remote:")]
    if "out of memory" in stderr.lower():
        return False  # a transient failure: the object may be intact
    return any(_DAMAGE.search(line) and not _NOT_OURS.search(line) for line in ours)
