# SPDX-License-Identifier: Apache-2.0
"""What happened when, for whoever wants to understand a round afterwards."""

import time
from dataclasses import dataclass
from datetime import UTC, datetime


@dataclass(frozen=True, slots=True, order=True)
class Moment:
    """One thing that happened."""

    at: float
    """Unix seconds."""
    what: str

    @classmethod
    def now(cls, what: str) -> "Moment":
        return cls(time.time(), what)

    def __str__(self) -> str:
        return f"{datetime.fromtimestamp(self.at, UTC):%H:%M:%S.%f} {self.what}"
