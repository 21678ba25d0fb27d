# SPDX-License-Identifier: Apache-2.0
"""One look at what is analysed: the numbers that came, and what they mean. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Final

from pipecd_plugin_analysis.mann_whitney import Alternative, compare
from pipecd_sdk.kit.analysis import ExpectedConfig

SIGNIFICANCE_SHARE: Final = 0.05
"""Two samples differ when chance alone would make them so in at most one case of twenty."""
FEWEST_SAMPLES: Final = 4
"""With fewer values on either side hardly any difference can be significant."""


class LookVerdict(Enum):
    """What an evaluation comes to."""

    EXPECTED = "EXPECTED"
    UNEXPECTED = "UNEXPECTED"
    ERROR = "ERROR"
    """It could not be told; counts as a failure."""
    NO_DATA = "NO_DATA"
    """There was nothing to judge, and that is allowed."""

    @property
    def is_failure(self) -> bool:
        return self in {LookVerdict.UNEXPECTED, LookVerdict.ERROR}


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """A stretch of time whose values are asked for."""

    start: datetime
    end: datetime

    @property
    def seconds(self) -> float:
        return (self.end - self.start).total_seconds()


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """What one look found."""

    at: datetime
    verdict: LookVerdict
    text: str
    """For people: the numbers, and what was expected of them."""
    values: Sequence[float] = ()
    control: Sequence[float] | None = None
    """What the values were compared with."""
    p_value: float | None = None
    warning: str = ""


def judge_range(at: datetime, values: Sequence[float], expected: ExpectedConfig) -> Evaluation:
    """Returns whether all values are in the expected range; no values at all are."""
    if not values:
        return Evaluation(at=at, verdict=LookVerdict.EXPECTED, text="no values: nothing to judge")
    outside = [each for each in values if not _is_in(each, expected)]
    wanted = f"expected {format_range(expected)}"
    if not outside:
        text = f"{format_values(values)}; {wanted}"
        return Evaluation(at=at, verdict=LookVerdict.EXPECTED, text=text, values=values)
    worst = max(outside, key=lambda each: _distance(each, expected))
    text = f"{format_number(worst)} is out of range: {format_values(values)}; {wanted}"
    if len(values) > 1:
        text += f"; {len(outside)} outside"
    return Evaluation(at=at, verdict=LookVerdict.UNEXPECTED, text=text, values=values)


def judge_difference(
    at: datetime,
    values: Sequence[float],
    control: Sequence[float],
    *,
    names: tuple[str, str],
    deviation: Alternative,
) -> Evaluation:
    """Returns whether two samples differ in the way that counts."""
    if not values and not control:
        text = "no values on either side: nothing to compare"
        return Evaluation(at=at, verdict=LookVerdict.EXPECTED, text=text, control=())
    if not values or not control:
        without, given = names if not values else (names[1], names[0])
        text = f"no values of {without}, while {given} has {format_values(values or control)}"
        return Evaluation(
            at=at, verdict=LookVerdict.ERROR, text=text, values=values, control=control
        )
    found = compare(values, control, deviation)
    differs = found.p_value <= SIGNIFICANCE_SHARE
    text = (
        f"{names[0]} {format_values(values)}; {names[1]} {format_values(control)};"
        f" p-value {found.p_value:.4g}"
        f" ({'exact' if found.is_exact else 'approximate'},"
        f" differs at {SIGNIFICANCE_SHARE} or less)"
    )
    if differs:
        text = f"{names[0]} {_describe(deviation, names[1])}: {text}"
    warning = ""
    if (fewest := min(len(values), len(control))) < FEWEST_SAMPLES:
        warning = (
            f"only {fewest} {'value' if fewest == 1 else 'values'} on one side: too few for a"
            f" difference to show; take a longer interval, for {FEWEST_SAMPLES} values or more"
        )
    return Evaluation(
        at=at,
        verdict=LookVerdict.UNEXPECTED if differs else LookVerdict.EXPECTED,
        text=text,
        values=values,
        control=control,
        p_value=found.p_value,
        warning=warning,
    )


def _describe(deviation: Alternative, other: str) -> str:
    match deviation:
        case Alternative.HIGH:
            return f"is higher than {other}"
        case Alternative.LOW:
            return f"is lower than {other}"
        case Alternative.EITHER:
            return f"differs from {other}"


def _is_in(value: float, expected: ExpectedConfig) -> bool:
    return (expected.min is None or value >= expected.min) and (
        expected.max is None or value <= expected.max
    )


def _distance(value: float, expected: ExpectedConfig) -> float:
    below = 0.0 if expected.min is None else expected.min - value
    above = 0.0 if expected.max is None else value - expected.max
    return max(below, above)


def format_range(expected: ExpectedConfig) -> str:
    """Returns a range in words, e.g. `at most 0.1`."""
    words = []
    if expected.min is not None:
        words.append(f"at least {format_number(expected.min)}")
    if expected.max is not None:
        words.append(f"at most {format_number(expected.max)}")
    return " and ".join(words)


def format_values(values: Sequence[float]) -> str:
    """Returns a sample in words: its size, its ends and its middle."""
    if len(values) == 1:
        return f"1 value: {format_number(values[0])}"
    ordered = sorted(values)
    half = len(ordered) // 2
    middle = ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2
    low, mid, high = (format_number(each) for each in (ordered[0], middle, ordered[-1]))
    return f"{len(values)} values from {low} to {high}, median {mid}"


def format_number(value: float) -> str:
    return f"{value:.6g}"
