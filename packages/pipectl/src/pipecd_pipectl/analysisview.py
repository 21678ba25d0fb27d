# SPDX-License-Identifier: Apache-2.0
"""The numbers of an analysis, which its plugin keeps with the stage, as people read them.

Any plugin may write such metadata: what is not as it should be is left out, never a failure.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pipecd_model.stage import format_stage_number
from pipecd_pipectl.output import echo
from pipecd_pipectl.tables import Column, print_table
from pipecd_pipectl.times import format_clock
from pipecd_wire.model import deployment_pb2 as pb

PREFIX: Final = "analysis/"
LARGEST: Final = 64 * 1024
MOST_ANALYSES: Final = 50
MOST_LOOKS: Final = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptLook:
    """One evaluation of an analysis, as it is shown."""

    at: int
    verdict: str
    text: str
    p_value: float | None
    warning: str


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptAnalysis:
    """One metric, log query or check, as far as it has come."""

    name: str
    evaluated: int
    planned: int
    failures: int
    allowed: int
    ended: str
    looks: Sequence[KeptLook]
    """Those that are kept, the newest last."""

    @property
    def last(self) -> KeptLook | None:
        return self.looks[-1] if self.looks else None


def print_analyses(stages: Sequence[pb.PipelineStage], *, wide: bool) -> None:
    """Prints what the analyses of a deployment have found; in `-o wide` every evaluation."""
    for stage in stages:
        found = list(read_analyses(stage.metadata))
        if not found:
            continue
        echo()
        echo(f"analysis of stage {format_stage_number(stage)}")
        columns: list[Column[KeptAnalysis]] = [
            Column(heading="NAME", cell=lambda it: it.name),
            Column(heading="EVALUATED", cell=_describe_evaluated, fixed=True),
            Column(
                heading="FAILURES",
                cell=lambda it: f"{it.failures} ({it.allowed} allowed)",
                fixed=True,
            ),
            Column(heading="P-VALUE", cell=lambda it: _format_p_value(it.last), fixed=True),
            Column(heading="LAST", cell=lambda it: it.last.text if it.last else it.ended),
        ]
        print_table(columns, found, wide=wide)
        for each in found:
            _print_more(each, wide=wide)


def _print_more(analysis: KeptAnalysis, *, wide: bool) -> None:
    warned = [each.warning for each in analysis.looks if each.warning]
    if warned:
        echo(f"warning: {analysis.name}: {warned[-1]} ({len(warned)} of {len(analysis.looks)})")
    if wide and analysis.looks:
        echo()
        columns: list[Column[KeptLook]] = [
            Column(heading=analysis.name, cell=lambda it: format_clock(it.at), fixed=True),
            Column(heading="VERDICT", cell=lambda it: it.verdict, fixed=True),
            Column(heading="P-VALUE", cell=_format_p_value, fixed=True),
            Column(heading="WHAT", cell=lambda it: it.text),
        ]
        print_table(columns, analysis.looks, wide=True)


def read_analyses(metadata: Mapping[str, str]) -> Iterator[KeptAnalysis]:
    """Yields the analyses that a stage keeps, in the order of their names."""
    keys = sorted((each for each in metadata if each.startswith(PREFIX)), key=_rank_key)
    for key in keys[:MOST_ANALYSES]:
        text = metadata[key]
        try:
            raw = json.loads(text) if len(text) <= LARGEST else None
        except (ValueError, RecursionError):
            raw = None
        if isinstance(raw, dict):
            yield _read_analysis(key.removeprefix(PREFIX), raw)


def _rank_key(key: str) -> tuple[str, int, str]:
    kind, _, number = key.rpartition("-")
    return kind, int(number) if number.isdecimal() and len(number) < 6 else 0, key


def _read_analysis(id_: str, raw: Mapping[str, Any]) -> KeptAnalysis:
    name = _text(raw.get("name"))
    remembered = raw.get("failures")
    failures = _count(raw.get("allFailures"))
    if _count(raw.get("failureWindowSeconds")):
        failures = len(remembered) if isinstance(remembered, list) else 0
    looks = raw.get("evaluations")
    return KeptAnalysis(
        name=f"{id_} {name}" if name else id_,
        evaluated=_count(raw.get("evaluated")),
        planned=_count(raw.get("looks")),
        failures=failures,
        allowed=_count(raw.get("failureLimit")),
        ended=_text(raw.get("ended")),
        looks=[
            _read_look(each)
            for each in (looks[-MOST_LOOKS:] if isinstance(looks, list) else ())
            if isinstance(each, dict)
        ],
    )


def _read_look(raw: Mapping[str, Any]) -> KeptLook:
    p_value = raw.get("pValue")
    is_share = isinstance(p_value, int | float) and 0 <= p_value <= 1
    return KeptLook(
        at=_count(raw.get("at")),
        verdict=_text(raw.get("verdict")),
        text=_text(raw.get("text")),
        p_value=p_value if is_share else None,
        warning=_text(raw.get("warning")),
    )


def _text(raw: object) -> str:
    return raw[:1000] if isinstance(raw, str) else ""


def _count(raw: object) -> int:
    is_number = isinstance(raw, int | float) and 0 <= raw < 1e12
    return int(raw) if is_number and isinstance(raw, int | float) else 0


def _describe_evaluated(analysis: KeptAnalysis) -> str:
    return f"{analysis.evaluated} of {analysis.planned}"


def _format_p_value(look: KeptLook | None) -> str:
    return "" if look is None or look.p_value is None else f"{look.p_value:.4g}"
