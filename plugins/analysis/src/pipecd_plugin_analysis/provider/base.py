# SPDX-License-Identifier: Apache-2.0
"""What a provider of metrics or logs promises, whichever system it asks."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from pipecd_plugin_analysis.evaluation import Window

MOST_VALUES: Final = 20_000
"""Values of one answer: a query that gives more was not meant so."""
LONGEST_STEP_SECONDS: Final = 60.0


class EvaluationError(Exception):
    """An evaluation could not be made; the message says why, without secrets."""


class NoDataError(EvaluationError):
    """The provider has no data for the query."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricAnswer:
    """The values of all series of a window."""

    values: Sequence[float]
    warnings: Sequence[str] = ()
    """What the provider itself says about its answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogAnswer:
    """The log lines of a window that match."""

    count: int
    has_more: bool = False
    """There are more than were counted."""
    lines: Sequence[str] = ()
    """Some of them."""


class MetricsProvider(Protocol):
    """Queries metrics from where they are collected."""

    async def query(self, query: str, window: Window) -> MetricAnswer:
        """Returns the values of a window. Raises EvaluationError."""


class LogsProvider(Protocol):
    """Counts log lines where they are collected."""

    async def count_lines(self, query: str, window: Window, *, most: int) -> LogAnswer:
        """Counts the matching lines, up to one more than `most`. Raises EvaluationError."""


def choose_step_seconds(window: Window) -> float:
    """Returns the distance of two values: a minute, or the window where that is shorter."""
    return min(LONGEST_STEP_SECONDS, window.seconds)


def read_values(raw: Iterable[object]) -> list[float]:
    """Reads numbers, also those that are written as texts. Raises NoDataError for one that is none.

    Raises EvaluationError for what is no number, and for too many of them.
    """
    values: list[float] = []
    for each in raw:
        if isinstance(each, bool) or not isinstance(each, int | float | str):
            raise EvaluationError(f"the answer has {_name(each)} where a number should be")
        try:
            value = float(each)
        except ValueError:
            raise EvaluationError(f"the answer has no number but {str(each)[:80]!r}") from None
        except OverflowError:
            raise EvaluationError("the answer has a number that is too large") from None
        if math.isnan(value):
            raise NoDataError("the answer has a value that is not a number (NaN)")
        values.append(value)
        if len(values) > MOST_VALUES:
            raise EvaluationError(f"the query gives more than {MOST_VALUES:,} values")
    return values


def _name(value: object) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return "a mapping"
    return "a list" if isinstance(value, list) else "something else"
