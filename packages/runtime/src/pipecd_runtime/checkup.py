# SPDX-License-Identifier: Apache-2.0
"""The rows of a checkup: what was looked at, whether it is well, and what to do if it is not."""

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any


class Verdict(enum.StrEnum):
    """How a checked thing is."""

    OK = "ok"
    WARN = "warn"
    """It works now, and will not for long, or not for everybody."""
    FAIL = "fail"


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckRow:
    """One thing that was checked."""

    subject: str
    """What was looked at: `certificate`, `agent dev`."""
    verdict: Verdict
    text: str
    """How it is, in one sentence."""
    next_step: str = ""
    """What to do; a command where there is one."""

    def to_json(self) -> dict[str, str]:
        return {
            "check": self.subject,
            "verdict": self.verdict.value,
            "text": self.text,
            "next": self.next_step,
        }


def read_row(value: Mapping[str, Any]) -> CheckRow:
    """Returns the row that `to_json` wrote. Raises ValueError for anything else."""
    try:
        return CheckRow(
            subject=str(value["check"]),
            verdict=Verdict(value["verdict"]),
            text=str(value["text"]),
            next_step=str(value["next"]),
        )
    except (KeyError, TypeError) as error:
        raise ValueError(f"not a row of a checkup: {error}") from None


def ok(subject: str, text: str) -> CheckRow:
    """Returns the row of a thing that is well."""
    return CheckRow(subject=subject, verdict=Verdict.OK, text=text)


def warn(subject: str, text: str, next_step: str) -> CheckRow:
    """Returns the row of a thing that needs a look."""
    return CheckRow(subject=subject, verdict=Verdict.WARN, text=text, next_step=next_step)


def fail(subject: str, text: str, next_step: str) -> CheckRow:
    """Returns the row of a thing that is broken."""
    return CheckRow(subject=subject, verdict=Verdict.FAIL, text=text, next_step=next_step)


def has_failed(rows: Iterable[CheckRow]) -> bool:
    return any(row.verdict is Verdict.FAIL for row in rows)
