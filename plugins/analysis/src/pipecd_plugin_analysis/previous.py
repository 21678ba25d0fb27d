# SPDX-License-Identifier: Apache-2.0
"""Which earlier analysis PREVIOUS compares with. Pure.

An application keeps one object, `latest-analysis-result`. Other agents read and write its
`start_time` alone: when the last analysis that succeeded was begun, whichever stage it was. A
pipeline with two analyses would so compare the second one with the first of the same deployment.
Ours keeps beside it which stage of which deployment each start belongs to, the last of each stage.
"""

from datetime import UTC, datetime
from typing import Final

import msgspec

MOST_STAGES: Final = 20
"""Stages whose last analysis is kept."""


class FinishedAnalysis(msgspec.Struct, frozen=True, kw_only=True):
    """An analysis that succeeded."""

    start_time: int
    """Unix seconds."""
    deployment_id: str = ""
    stage_index: int = 0

    @property
    def started_at(self) -> datetime | None:
        try:
            return datetime.fromtimestamp(self.start_time, UTC)
        except (ValueError, OverflowError, OSError):
            return None


class LatestResult(msgspec.Struct, frozen=True, kw_only=True):
    """The object as it is kept."""

    start_time: int
    analyses: tuple[FinishedAnalysis, ...] = ()
    """The newest first."""


def find_previous(raw: bytes | None, *, deployment_id: str, stage_index: int) -> datetime | None:
    """Returns when the analysis was begun that one is compared with; None when there is none.

    That of the same stage of an earlier deployment, else the last of an earlier deployment.
    """
    kept = _decode(raw)
    if kept is None:
        return None
    if all(each.start_time != kept.start_time for each in kept.analyses):
        return FinishedAnalysis(start_time=kept.start_time).started_at  # another agent wrote it
    others = [each for each in kept.analyses if each.deployment_id != deployment_id]
    same = [each for each in others if each.stage_index == stage_index]
    found = next(iter(same or others), None)
    return found.started_at if found else None


def add_result(raw: bytes | None, finished: FinishedAnalysis) -> bytes:
    """Returns the object with one more analysis."""
    kept = _decode(raw)
    others = [
        each for each in (kept.analyses if kept else ()) if each.stage_index != finished.stage_index
    ]
    analyses = (finished, *others[: MOST_STAGES - 1])
    return msgspec.json.encode(LatestResult(start_time=finished.start_time, analyses=analyses))


def _decode(raw: bytes | None) -> LatestResult | None:
    try:
        return msgspec.json.decode(raw, type=LatestResult) if raw else None
    except msgspec.MsgspecError:
        return None
