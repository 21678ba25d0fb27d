# SPDX-License-Identifier: Apache-2.0
"""What is kept of one analysis in the stage's metadata: enough to go on, and to draw it. Pure.

Each analysis has a key of its own, `analysis/<id>`, with JSON of bounded size: when it does not
fit, the oldest evaluations go first. A page needs nothing else.
"""

import math
from collections.abc import Sequence
from datetime import timedelta
from typing import Final, Literal, TypeAlias

import msgspec

from pipecd_plugin_analysis.evaluation import Evaluation
from pipecd_sdk.kit.text import make_printable_line

PREFIX: Final = "analysis/"
LARGEST_RECORDS: Final = 48 * 1024
"""Bytes of all records of a stage: they travel with every change of the deployment."""
MOST_VALUES: Final = 30
"""Values of one sample that are kept; of a larger one these many, spread evenly."""
MOST_EVALUATIONS: Final = 500
LONGEST_TEXT: Final = 300


KeptNumber: TypeAlias = float | Literal["Infinity", "-Infinity"]
"""JSON has no way to write what is infinite."""


class KeptEvaluation(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """One evaluation as it is kept."""

    at: float
    """Unix seconds."""
    verdict: str
    text: str = ""
    count: int = 0
    """How many values there were."""
    values: tuple[KeptNumber, ...] = ()
    control_count: int = 0
    control: tuple[KeptNumber, ...] | None = None
    p_value: float | None = None
    warning: str = ""


class AnalysisRecord(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """One analysis of a stage so far."""

    id: str
    attempt: int = 0
    """Of the stage; each begins anew."""
    name: str = ""
    kind: str = ""
    strategy: str = ""
    deviation: str = ""
    """Of a comparison: which way of differing counts."""
    query: str = ""
    expected: dict[str, float] = msgspec.field(default_factory=dict)
    interval_seconds: float = 0.0
    failure_limit: int = 0
    failure_window_seconds: float = 0.0
    """How long failures count; 0 means until the end."""
    looks: int = 0
    """How many are planned."""
    done: int = 0
    """The number of the last one, from 1."""
    failures: tuple[float, ...] = ()
    """When, in Unix seconds; those that still count, where some are forgotten."""
    evaluated: int = 0
    """How many evaluations there were, also those that are not kept."""
    all_failures: int = 0
    values_seen: int = 0
    ended: str = ""
    """Why it ended early, if it did."""
    evaluations: tuple[KeptEvaluation, ...] = ()

    @property
    def key(self) -> str:
        return f"{PREFIX}{self.id}"

    def add(
        self, number: int, evaluation: Evaluation, *, window: timedelta | None
    ) -> "AnalysisRecord":
        """Returns the record with one more evaluation; failures before the window are forgotten."""
        at = evaluation.at.timestamp()
        failures: tuple[float, ...] = ()
        if window is not None:
            failures = (
                (*self.failures, round(at, 3)) if evaluation.verdict.is_failure else (self.failures)
            )
            failures = tuple(each for each in failures if each > at - window.total_seconds())
        return msgspec.structs.replace(
            self,
            done=number,
            failures=failures,
            evaluated=self.evaluated + 1,
            all_failures=self.all_failures + evaluation.verdict.is_failure,
            values_seen=self.values_seen + len(evaluation.values),
            evaluations=(*self.evaluations[-MOST_EVALUATIONS + 1 :], _keep(evaluation)),
        )

    def count_failures(self, *, window: timedelta | None) -> int:
        """Returns how many failures count: all, or those that a window has not forgotten."""
        return self.all_failures if window is None else len(self.failures)

    def encode(self, largest: int) -> str:
        """Returns the record as JSON of at most so many bytes, without the oldest evaluations.

        Where even that is too much, the query is cut.
        """
        bare = msgspec.structs.replace(self, evaluations=())
        room = largest - len(msgspec.json.encode(bare)) - 32
        if room < 0:
            query = _cut_json(self.query, len(msgspec.json.encode(self.query)) + room)
            cut = msgspec.structs.replace(bare, query=query)
            return msgspec.json.encode(cut).decode()
        kept: list[KeptEvaluation] = []
        for each in reversed(self.evaluations):
            room -= len(msgspec.json.encode(each)) + 1
            if room < 0:
                break
            kept.append(each)
        whole = msgspec.structs.replace(self, evaluations=tuple(reversed(kept)))
        return msgspec.json.encode(whole).decode()


def decode_record(text: str | None, fresh: AnalysisRecord) -> AnalysisRecord:
    """Returns a record to go on with: what was kept of the same analysis, else a fresh one."""
    if text is None:
        return fresh
    try:
        kept = msgspec.json.decode(text, type=AnalysisRecord)
    except msgspec.MsgspecError:
        return fresh
    is_same = (kept.id, kept.attempt, kept.interval_seconds) == (
        fresh.id,
        fresh.attempt,
        fresh.interval_seconds,
    )
    if not is_same or not fresh.query.startswith(kept.query):
        return fresh
    return msgspec.structs.replace(
        fresh,
        done=kept.done,
        failures=kept.failures,
        evaluated=kept.evaluated,
        all_failures=kept.all_failures,
        values_seen=kept.values_seen,
        ended=kept.ended,
        evaluations=kept.evaluations,
    )


def _keep(evaluation: Evaluation) -> KeptEvaluation:
    control = evaluation.control
    return KeptEvaluation(
        at=round(evaluation.at.timestamp(), 3),
        verdict=evaluation.verdict.value,
        text=make_printable_line(evaluation.text)[:LONGEST_TEXT],
        count=len(evaluation.values),
        values=_thin_out(evaluation.values),
        control_count=len(control or ()),
        control=None if control is None else _thin_out(control),
        p_value=None if evaluation.p_value is None else _round(evaluation.p_value),
        warning=make_printable_line(evaluation.warning)[:LONGEST_TEXT],
    )


def _thin_out(values: Sequence[float]) -> tuple[KeptNumber, ...]:
    """Returns at most as many values as are kept, evenly from the whole."""
    if len(values) > MOST_VALUES:
        step = (len(values) - 1) / (MOST_VALUES - 1)
        values = [values[round(number * step)] for number in range(MOST_VALUES)]
    return tuple(_keep_number(each) for each in values)


def _keep_number(value: float) -> KeptNumber:
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return _round(value)


def _round(value: float) -> float:
    return float(f"{value:.6g}")


def _cut_json(text: str, largest: int) -> str:
    """Returns the beginning of a text that takes at most so many bytes as JSON."""
    while text and len(msgspec.json.encode(text)) > largest:
        text = text[: len(text) // 2]
    return text
