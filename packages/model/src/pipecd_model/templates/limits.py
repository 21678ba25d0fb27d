# SPDX-License-Identifier: Apache-2.0
"""How much a template may be and do, and the meter that holds one rendering to that."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class RenderLimits:
    """What one rendering may use. Far more than real files need, little enough for a second."""

    text: int = 1 << 20
    """Characters of the template."""
    actions: int = 4000
    """Actions, that is `{{ … }}`, in the template."""
    action_text: int = 1 << 16
    """Characters in all its actions together: reading these is what takes time."""
    nesting: int = 100
    """How deep blocks and parentheses may stand in each other."""
    value: int = 4 << 20
    """Size of one value, and of all arguments of one call."""
    made: int = 32 << 20
    """Size of all values that functions make: each may be kept in a variable."""
    depth: int = 40
    """How deep lists and maps may be nested."""
    output: int = 8 << 20
    """Characters of the result."""
    iterations: int = 100_000
    calls: int = 20_000
    templates: int = 50
    """How deep templates may call each other."""
    blocks: int = 200
    """How deep blocks may be while they run, those of templates that call each other included."""
    steps: int = 2_000_000
    """Actions, operands and functions that are evaluated."""
    seconds: float = 0.4
    """Processor time: a busy machine does not make a good template fail."""


LIMITS: Final = RenderLimits()

ITEM: Final = 16
"""What an item of a list or map counts beside its content."""


class TooMuchError(Exception):
    """A template makes more than it may."""


class TooLongError(Exception):
    """A template takes longer than it may."""


class Meter:
    """What one rendering may do, and what it has done so far."""

    __slots__ = (
        "_calls",
        "_end",
        "_iterations",
        "_made",
        "_steps",
        "_until_clock",
        "_written",
        "limits",
        "strict",
    )

    def __init__(self, limits: RenderLimits, *, strict: bool) -> None:
        self.limits = limits
        self.strict = strict  # is a key that a map lacks an error?
        self._made = self._calls = self._iterations = self._steps = self._written = 0
        self._until_clock = _CLOCK
        self._end = time.thread_time() + limits.seconds

    def step(self) -> None:
        """Counts one evaluation. Raises TooLongError beyond the limit of steps or of time."""
        self._steps += 1
        if self._steps > self.limits.steps:
            raise TooLongError
        self._until_clock -= 1
        if self._until_clock < 0:
            self._look_at_clock()

    def spend(self, work: int) -> None:
        """Counts work in characters that are processed. Raises TooLongError when time is over."""
        self._until_clock -= work >> _CHARACTERS
        if self._until_clock < 0:
            self._look_at_clock()

    def _look_at_clock(self) -> None:
        self._until_clock = _CLOCK
        if time.thread_time() > self._end:
            raise TooLongError

    def iterate(self, times: int = 1) -> None:
        """Counts iterations of loops. Raises TooMuchError beyond the limit."""
        self._iterations += times
        if self._iterations > self.limits.iterations:
            raise TooMuchError(f"the template loops more than {self.limits.iterations:,} times")

    def can_iterate(self, times: int) -> bool:
        return self._iterations + times <= self.limits.iterations

    def call(self) -> None:
        """Counts a call of a function or a template. Raises TooMuchError beyond the limit."""
        self._calls += 1
        if self._calls > self.limits.calls:
            raise TooMuchError(f"the template calls more than {self.limits.calls:,} functions")

    def write(self, size: int) -> None:
        """Counts characters of the result. Raises TooMuchError beyond the limit."""
        self._written += size
        if self._written > self.limits.output:
            raise TooMuchError(f"the template writes more than {self.limits.output:,} characters")

    def admit(self, arguments: Sequence[object]) -> int:
        """Measure the arguments of a call; raises TooMuchError when they are too large."""
        total = 0
        for each in arguments:
            total += weigh(each, self.limits)
            self.allow(total)
        self.spend(total)
        return total

    def allow(self, weight: int) -> None:
        """Refuse to make a value of this size."""
        if weight > self.limits.value:
            raise TooMuchError("a value becomes too large")

    def count_value(self, value: object) -> None:
        """Count a value that a function has made."""
        weight = weigh(value, self.limits)
        self.spend(weight)
        self._made += weight
        if self._made > self.limits.made:
            raise TooMuchError("the values become too large")


_CLOCK: Final = 500
"""Steps between two looks at the clock."""

_CHARACTERS: Final = 8
"""As a power of two: how many characters to go through count as one step."""


def weigh(value: object, limits: RenderLimits) -> int:
    """Say how large a value is when it is written out: what stands in it twice counts twice."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, bool | int | float):
        return 8
    total = depth = 0
    level: list[object] = [value]
    while level:
        deeper: list[object] = []
        for each in level:
            if isinstance(each, str):
                total += len(each)
            elif isinstance(each, dict | list | tuple):
                total += ITEM * len(each)
                if isinstance(each, dict):
                    deeper += each
                    deeper += each.values()
                else:
                    deeper += each
            if total > limits.value:
                raise TooMuchError("a value becomes too large")
        if deeper and depth == limits.depth:
            raise TooMuchError("a value is nested too deeply")
        depth += 1
        level = deeper
    return total
