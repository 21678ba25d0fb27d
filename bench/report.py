# SPDX-License-Identifier: Apache-2.0
"""How a measurement is printed: one line with the bar it should reach, or without one.

A miss is a line that says so, not a failed run: a busy machine must not look like a broken program.
"""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Bar:
    """What a measurement should be: `Bar(">=", 0.7)`."""

    op: Literal[">=", "<="]
    limit: float

    def verdict(self, value: float) -> str:
        reached = value >= self.limit if self.op == ">=" else value <= self.limit
        return f"(bar {self.op} {self.limit:.2f}) {'ok' if reached else 'MISS'}"


def report(name: str, value: float, unit: str, bar: Bar | None) -> None:
    """A measurement, and the claim that we make about it."""
    line = f"bench {name}: {value:.2f} {unit}"
    print(line if bar is None else f"{line} {bar.verdict(value)}", flush=True)


def info(name: str, value: float, unit: str) -> None:
    """A measurement that only helps to understand the others."""
    report(name, value, unit, None)


class Unheard:
    """A log that nobody reads."""

    def append(self, severity: object, line: str) -> None:
        pass

    def set_next_index(self, index: int, at: float | None) -> None:
        pass

    async def drain(self) -> None:
        pass
