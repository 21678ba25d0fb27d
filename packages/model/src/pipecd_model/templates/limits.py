# SPDX-License-Identifier: Apache-2.0
"""How much a template may be and do, and the meters that hold it to that.

The engine counts output, loops and calls. What it does not see is measured here: the size of the
values that functions make, and the time that all of it takes.
"""

from __future__ import annotations

import inspect
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from types import FrameType
from typing import Any, Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one rendering may use. Far more than real files need, little enough for a second."""

    text: int = 1 << 20
    """Characters of the template."""
    actions: int = 4000
    """Actions, that is `{{ … }}`, in the template."""
    action_text: int = 1 << 16
    """Characters in all its actions together: reading these is what takes time."""
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
    seconds: float = 0.4
    """Processor time: a busy machine does not make a good template fail."""


LIMITS: Final = Limits()

ITEM: Final = 16
"""What an item of a list or map counts beside its content."""


class TooMuchError(Exception):
    """A template makes more than it may."""


class NoSuchKeyError(LookupError):
    """A template asks a map for what it has not."""

    def __init__(self, key: object) -> None:
        super().__init__("no such key")
        self.key = key


class TooLongError(BaseException):
    """A template takes longer than it may. Not an Exception: the engine catches those."""


class Meter:
    """What one rendering may do, and what it has made so far."""

    __slots__ = ("_made", "limits", "strict")

    def __init__(self, limits: Limits, *, strict: bool) -> None:
        self.limits = limits
        self.strict = strict  # is a key that a map lacks an error?
        self._made = 0

    def admit(self, arguments: Iterable[object]) -> int:
        """Measure the arguments of a call; raises TooMuchError when they are too large."""
        total = 0
        for each in arguments:
            total += weigh(each, self.limits)
            self.allow(total)
        return total

    def allow(self, weight: int) -> None:
        """Refuse to make a value of this size."""
        if weight > self.limits.value:
            raise TooMuchError("a value becomes too large")

    def made(self, value: object) -> None:
        """Count a value that a function has made."""
        self._made += weigh(value, self.limits)
        if self._made > self.limits.made:
            raise TooMuchError("the values become too large")


METER: Final[ContextVar[Meter]] = ContextVar("meter")


def weigh(value: object, limits: Limits) -> int:
    """Say how large a value is when it is written out: what stands in it twice counts twice."""
    if isinstance(value, str):
        return len(value)
    total = 0
    waiting = [(value, 0)]
    while waiting:
        each, depth = waiting.pop()
        if isinstance(each, str | bytes | bytearray):
            total += len(each)
        elif isinstance(each, int):
            total += each.bit_length() >> 3
        elif isinstance(each, dict | list | tuple):
            if depth == limits.depth:
                raise TooMuchError("a value is nested too deeply")
            total += ITEM * len(each)
            if isinstance(each, dict):
                waiting += [(key, depth + 1) for key in each]
                waiting += [(item, depth + 1) for item in each.values()]
            else:
                waiting += [(item, depth + 1) for item in each]
        if total > limits.value:
            raise TooMuchError("a value becomes too large")
    return total


_EVENTS: Final = 500
"""Calls between two looks at the clock."""


@contextmanager
def time_limit(seconds: float, *, within: tuple[str, ...]) -> Iterator[None]:
    """Raise TooLongError in the block once this thread has worked for so long.

    The interpreter tells a profiler of every call it makes in this thread, at a point where an
    exception is safe. Nothing else stops code that runs in our own process. Only functions of the
    folders `within` are stopped: in between the interpreter may clean up something of somebody
    else, and what is raised there, or in a generator that is being closed, is lost.
    """
    end = time.thread_time() + seconds
    events = 0
    late = False

    def called(frame: FrameType, event: str, _argument: Any) -> None:
        nonlocal events, late
        events += 1
        if events % _EVENTS == 0:
            late = time.thread_time() > end
        if not late:
            return
        code = frame.f_code
        stoppable = event in _BEGINS and not code.co_flags & inspect.CO_GENERATOR
        if stoppable and code.co_filename.startswith(within):
            raise TooLongError

    before = sys.getprofile()
    sys.setprofile(called)
    try:
        yield
    finally:
        sys.setprofile(before)


_BEGINS: Final = frozenset({"call", "c_call"})
