# SPDX-License-Identifier: Apache-2.0
"""Whether a repository can be reached, as a sentence with a name."""

from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum


class Reachability(StrEnum):
    """The names of the states."""

    OPENING = "opening"
    REACHABLE = "reachable"
    UNREACHABLE = "unreachable"
    NO_BRANCH = "no branch"


@dataclass(frozen=True, slots=True, kw_only=True)
class RepositoryState:
    """Where a repository stands, since when, and why."""

    reach: Reachability
    since: datetime
    reason: str = ""

    @classmethod
    def now(cls, reach: Reachability, reason: str = "") -> "RepositoryState":
        return cls(reach=reach, since=datetime.now(UTC), reason=reason)

    def next_state(self, reach: Reachability, reason: str = "") -> "RepositoryState":
        """The next state: of one that goes on, the beginning is kept."""
        if reach is self.reach:
            return RepositoryState(reach=reach, since=self.since, reason=reason)
        return RepositoryState.now(reach, reason)

    def __str__(self) -> str:
        since = f"{self.reach} since {self.since:%Y-%m-%dT%H:%M:%SZ}"
        return f"{since} because {self.reason}" if self.reason else since
