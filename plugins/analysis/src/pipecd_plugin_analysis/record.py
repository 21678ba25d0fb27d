# SPDX-License-Identifier: Apache-2.0
"""What is kept of one analysis in the stage's metadata: enough to go on, and to draw it. Pure.

Each analysis has a key of its own, `analysis/<id>`, with JSON of bounded size: when it does not
fit, the oldest evaluations go first. A page needs nothing else.
"""

from collections.abc import Sequence
from datetime import timedelta
from typing import Final

import msgspec

from pipecd_plugin_analysis.evaluation import Evaluation

PREFIX: Final = "analysis/"
LARGEST_RECORDS: Final = 48 * 1024
"""Bytes of all records of a stage: they travel with every change of the deployment."""
MOST_VALUES: Final = 30
"""Values of one sample that are kept; of a larger one these many, spread evenly."""
MOST_EVALUATIONS: Final = 500
LONGEST_TEXT: Final = 300


class KeptEvaluation(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """One evaluation as it is kept."""

    at: int
    """Unix seconds."""
    verdict: str
    text: str = ""
    count: int = 0
    """How many values there were."""
    values: tuple[float, ...] = ()
    control_count: int = 0
    control: tuple[float, ...] | None = None
    p_value: float | None = None
    warning: str = ""


class AnalysisRecord(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """One analysis of a stage so far."""

    id: str
    name: str = ""
    kind: str = ""
    strategy: str = ""
    query: str = ""
    expected: dict[str, float] = msgspec.field(default_factory=dict)
    interval_seconds: float = 0.0
    failure_limit: int = 0
    looks: int = 0
    """How many are planned."""
    done: int = 0
    """The number of the last one, from 1."""
    failures: tuple[float, ...] = ()
    """When, in Unix seconds; those that still count."""
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
        failures = self.failures
        if evaluation.verdict.is_failure:
            failures = (*failures, at)
        if window is not None:
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

    def encode(self, largest: int) -> str:
        """Returns the record as JSON of at most so many bytes, without the oldest evaluations."""
        bare = msgspec.structs.replace(self, evaluations=())
        room = largest - len(msgspec.json.encode(bare)) - 32
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
    if (kept.id, kept.query, kept.interval_seconds) != (
        fresh.id,
        fresh.query,
        fresh.interval_seconds,
    ):
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
        at=int(evaluation.at.timestamp()),
        verdict=evaluation.verdict.value,
        text=evaluation.text[:LONGEST_TEXT],
        count=len(evaluation.values),
        values=_thin_out(evaluation.values),
        control_count=len(control or ()),
        control=None if control is None else _thin_out(control),
        p_value=None if evaluation.p_value is None else _round(evaluation.p_value),
        warning=evaluation.warning,
    )


def _thin_out(values: Sequence[float]) -> tuple[float, ...]:
    """Returns at most as many values as are kept, evenly from the whole."""
    if len(values) > MOST_VALUES:
        step = (len(values) - 1) / (MOST_VALUES - 1)
        values = [values[round(number * step)] for number in range(MOST_VALUES)]
    return tuple(_round(each) for each in values)


def _round(value: float) -> float:
    return float(f"{value:.6g}")
