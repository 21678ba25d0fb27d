# SPDX-License-Identifier: Apache-2.0
"""Whether a repository can be reached: a named state with its time and reason."""

from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum


class Reachability(StrEnum):
    """The states of a repository's remote."""

    OPENING = "opening"
    REACHABLE = "reachable"
    UNREACHABLE = "unreachable"
    NO_BRANCH = "no branch"


@dataclass(frozen=True, slots=True, kw_only=True)
class RepositoryState:
    """The reachability of a repository, since when, and why."""

    reach: Reachability
    since: datetime
    reason: str = ""

    @classmethod
    def now(cls, reach: Reachability, reason: str = "") -> "RepositoryState":
        return cls(reach=reach, since=datetime.now(UTC), reason=reason)

    def next_state(self, reach: Reachability, reason: str = "") -> "RepositoryState":
        """Returns the next state; `since` is kept when the reachability does not change."""
        if reach is self.reach:
            return RepositoryState(reach=reach, since=self.since, reason=reason)
        return RepositoryState.now(reach, reason)

    def __str__(self) -> str:
        since = f"{self.reach} since {self.since:%Y-%m-%dT%H:%M:%SZ}"
        return f"{since} because {self.reason}" if self.reason else since
